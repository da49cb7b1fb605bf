"""Tables and details for people, and JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from functools import cache
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Without a terminal no row is shortened or broken.
_UNLIMITED = 100_000
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


@cache
def _console(is_terminal: bool) -> Console:
    return Console(width=None if is_terminal else _UNLIMITED, highlight=False, markup=False)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2))


def print_table(rows: Iterable[Row], columns: Sequence[Column], *, empty: str) -> None:
    """Print rows with headings, or a line if there are none."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading, _ in columns:
        # A message may be shortened, names and numbers stay whole.
        fits = heading != "MESSAGE"
        table.add_column(heading, no_wrap=True, overflow="fold" if fits else "ellipsis")
    for row in rows:
        table.add_row(*(_cell(_value(row, field)) for _, field in columns))
    if table.row_count:
        print_rich(table)
    else:
        click.echo(empty)


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
    console = _console(sys.stdout.isatty())
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
