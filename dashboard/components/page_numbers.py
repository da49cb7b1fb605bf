"""The numbers of pages of a long list."""

from __future__ import annotations

from typing import NamedTuple

from arrester.domain.errors import InvalidValue

#: The highest one: far more than any list needs.
MOST = 100_000


class Part(NamedTuple):
    """The rows of a page: the numbers of the first and of the last of all, and the pages beside
    it."""

    first: int
    last: int
    total: int
    newer: int | None
    older: int | None


def requested(text: str) -> int:
    """Return the number in the URL, 1 by default; raise InvalidValue."""
    if not text:
        return 1
    if not text.isdecimal() or len(text) > 6 or not 1 <= int(text) <= MOST:
        raise InvalidValue("page", text, f"a whole number from 1 to {MOST}")
    return int(text)


def part(number: int, *, size: int, total: int) -> Part:
    """Return the part of a list that a page has, or the last one if the list ends before it."""
    number = min(number, max(1, -(-total // size)))
    before = (number - 1) * size
    last = min(before + size, total)
    return Part(
        first=before + 1,
        last=last,
        total=total,
        newer=number - 1 if number > 1 else None,
        older=number + 1 if last < total else None,
    )
