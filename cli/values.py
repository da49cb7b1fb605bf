"""Values of options: durations as people write them, numbers of rows, and JSON Patches."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from arrester.cli.exit_codes import InvalidInput

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+)\s*([smhd])")


#: The most rows that a list prints.
MOST_ROWS = 1_000_000


def rows(text: str | int) -> int:
    """Return a number of rows; raise click.BadParameter."""
    text = str(text).strip()
    if not text.isdecimal() or not 1 <= int(text) <= MOST_ROWS:
        allowed = f"a whole number from 1 to {MOST_ROWS:,}"
        raise click.BadParameter(f"{text!r} is not allowed; allowed: {allowed}")
    return int(text)


def seconds(text: str | float) -> float:
    """Return a duration in seconds; a number alone is seconds; raise click.BadParameter."""
    text = str(text).strip()
    if text.isdecimal():
        return int(text)
    if not text or _PART.sub("", text).strip():
        raise click.BadParameter(f"{text!r} is not allowed; allowed: such as 90s, 10m or 1h 30m")
    return sum(int(count) * _SECONDS[unit] for count, unit in _PART.findall(text))


def json_patch(text: str) -> Any:
    """Return the JSON of a patch, or of a file if the text is @FILE; raise InvalidInput."""
    try:
        content = Path(text[1:]).read_text() if text.startswith("@") else text
        return json.loads(content)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"--patch {text!r} is not allowed: {error}") from None
