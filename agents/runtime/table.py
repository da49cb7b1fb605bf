"""A small table as text for a terminal, and as HTML for a notebook."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from arrester.domain.python_versions import UTC

Cell = str | int | float | datetime | None

#: The characters of a cell that are shown if it has more than the second number: the note about the
#: rest takes up to 20 itself.
_CELL_LENGTH, _CUT_FROM = 60, 80


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under the names of their columns. Numbers are aligned to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    #: The text below the rows, or in place of a table without rows.
    note: str = ""

    def text(self) -> str:
        """Return the table with a line per row."""
        if not self.rows:
            return self.note
        lines = [self.columns, *(tuple(map(cell_text, row)) for row in self.rows)]
        widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
        numeric = self._numeric()
        padded = (
            "  ".join(map(_padded, line, widths, numeric)).rstrip()
            for line in [lines[0], ["-" * width for width in widths], *lines[1:]]
        )
        return "\n".join([*padded, *filter(None, [self.note])])

    def html(self) -> str:
        """Return the table without colours of its own: the notebook's are inherited."""
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        if not self.rows:
            return note
        head = self._html_row("th", self.columns)
        body = "".join(self._html_row("td", row) for row in self.rows)
        return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>{note}"

    def _html_row(self, tag: str, row: Sequence[Cell]) -> str:
        cells = (
            f'<{tag} style="text-align: {"right" if numeric else "left"}">'
            f"{html.escape(cell_text(cell))}</{tag}>"
            for cell, numeric in zip(row, self._numeric(), strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    def _numeric(self) -> list[bool]:
        """Return which columns have numbers."""
        columns = zip(*self.rows, strict=True)
        return [any(isinstance(cell, int | float) for cell in column) for column in columns]


def cell_text(cell: Cell) -> str:
    """Return the text of a cell; its control characters are escaped, and a long one is cut."""
    match cell:
        case None:
            return ""
        case datetime():
            return f"{cell.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        case float():
            return f"{cell:,.1f}"
        case int():
            return f"{cell:,}"
    if len(cell) <= _CUT_FROM:
        return "".join(map(_printable, cell))
    text = "".join(map(_printable, cell[:_CELL_LENGTH]))
    return f"{text}… (+{len(cell) - _CELL_LENGTH:,} characters)"


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def _padded(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)
