"""Tables and details for people, and JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from shutil import get_terminal_size
from typing import Any, Literal

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Elsewhere than on a terminal no row is broken.
_UNLIMITED = 100_000
#: The columns that become narrower on a terminal: their texts are shortened, or broken into lines.
_SHORTENED = ("CAUSE", "CLASS", "MESSAGE", "REASON", "STAGE")
_BROKEN = ("ADVICE", "ALERT", "VALUE")
#: The space between columns, and the least width of those texts: the second where the first does
#: not fit.
_SPACINGS = ((2, 20), (1, 12))
_MESSAGE_CHARACTERS = 200
_STYLES = {
    "PAUSED": "yellow",
    "DEAD": "bold red",
    "LATCHED": "bold red",
    "LOST": "bold red",
    "REFUSED": "red",
    "EXPIRED": "red",
    "error": "bold red",
    "warning": "yellow",
    "ok": "green",
    "RUNNING": "green",
    "OPEN": "green",
    "APPLIED": "green",
}
Row = dict[str, Any]
#: A heading, and the value of a row: the name of a field, or a function.
Column = tuple[str, str | Callable[[Row], object]]


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2))


def print_table(rows: Iterable[Row], columns: Sequence[Column], *, empty: str) -> None:
    """Print rows with headings, or a line if there are none."""
    cells = [[_cell(_value(row, field)) for _, field in columns] for row in rows]
    if not cells:
        click.echo(empty)
        return
    headings = [heading for heading, _ in columns]
    widths = [
        max(len(heading), *(each[number].cell_len for each in cells))
        for number, heading in enumerate(headings)
    ]
    space, _ = _SPACINGS[0]
    if sys.stdout.isatty():
        space, widths = _fitted(headings, widths, get_terminal_size().columns)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, space, 0, 0))
    for heading, width in zip(headings, widths, strict=True):
        is_broken = heading in _BROKEN
        overflow: Literal["fold", "ellipsis"] = "fold" if is_broken else "ellipsis"
        table.add_column(heading, width=width, no_wrap=not is_broken, overflow=overflow)
    for each in cells:
        table.add_row(*each)
    print_rich(table)


def _fitted(headings: Sequence[str], widths: Sequence[int], most: int) -> tuple[int, list[int]]:
    """Return the space between columns and their widths on a terminal of a width.

    Texts become narrower, the last one first. Names and numbers stay whole, even if the terminal
    has to break the row.
    """
    for space, least in _SPACINGS:
        fitted = [*widths]
        excess = sum(widths) + space * (len(widths) - 1) - most
        for number in reversed(range(len(widths))):
            if headings[number] in (*_SHORTENED, *_BROKEN):
                less = max(0, min(excess, fitted[number] - least))
                fitted[number] -= less
                excess -= less
        if excess <= 0:
            break
    return space, fitted


def print_details(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair a line, without those that have no value."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value != "":
            table.add_row(name, _cell(value))
    print_rich(table)


def print_rich(renderable: Any) -> None:
    """Print with colours on a terminal, and without spaces at the ends of lines elsewhere."""
    console = Console(width=_UNLIMITED, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(renderable)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def plain(value: object) -> str:
    """Return a value as text on one line, in which no character can control the terminal."""
    text = str(value)
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


def message(text: str) -> str:
    """Return the first line of a message, shortened."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _MESSAGE_CHARACTERS else f"{line[:_MESSAGE_CHARACTERS]}…"


def age(moment: str | None) -> str:
    """Return how long ago a time of REST is, such as `5m`; a dash for none."""
    if moment is None:
        return "-"
    return duration((datetime.now(timezone.utc) - parsed(moment)).total_seconds())


def parsed(moment: str) -> datetime:
    """Return a time of REST."""
    # Python 3.10 does not accept the Z.
    return datetime.fromisoformat(moment.replace("Z", "+00:00"))


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: `45s`, `5m 3s`, `2h 10m`, `3d 4h`."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def _value(row: Row, field: str | Callable[[Row], object]) -> object:
    return row.get(field) if isinstance(field, str) else field(row)


def _cell(value: object) -> Text:
    if value is None or value == "":
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    text = f"{value:,}" if isinstance(value, int) else plain(value)
    return Text(text, style=_STYLES.get(text.partition(" ")[0], ""))
