"""Pages of lists: their limits, and their cursors.

A cursor has the name of its list, with its order if it has several, and the sort key of the last
row: keys of some lists have the same types, and would continue at any row of another list.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

import msgspec

from arrester.domain.errors import InvalidValue

T = TypeVar("T")
MAX_ROWS = 1000
#: The list of a task's events: all of them, or those that changed its state.
OF_TASK = "events of a task"


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some rows, and the opaque cursor of the next ones; None for the last page."""

    rows: tuple[T, ...]
    next: str | None = None
    #: For a page that ends before it is full although more may follow: the time of the last row
    #: searched.
    searched_until: datetime | None = None


def page(rows: Sequence[T], *, of: str, limit: int, key: Callable[[T], object]) -> Page[T]:
    """Return the first `limit` of `rows`; one more row means that there is a next page.

    Args:
        of: the name of the list.
        key: returns the sort key of a row.
    """
    if len(rows) <= limit:
        return Page(rows=tuple(rows))
    return Page(rows=tuple(rows[:limit]), next=pack(key(rows[limit - 1]), of=of))


def pack(key: object, *, of: str) -> str:
    """Return the key of a list as an opaque cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode((of, key))).decode().rstrip("=")


def unpack(cursor: str | None, shape: type[T], *, of: str) -> T | None:
    """Return the key in `cursor`, None for the first page; raise InvalidValue."""
    if cursor is None:
        return None
    try:
        packed = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        # `shape` is a type at run time only.
        of_list: Any = tuple[str, shape]  # type: ignore[valid-type]
        name, key = msgspec.json.decode(packed, type=of_list)
        if name != of:
            raise ValueError(f"a cursor of {name}, not of {of}")
        if not all(map(_is_valid, key if isinstance(key, tuple) else (key,))):
            raise ValueError("no page gives a NUL, or a time without its zone")
        return cast(T, key)
    except ValueError as exc:
        allowed = "`next` of an earlier page of the same list in the same order"
        raise InvalidValue("cursor", cursor, allowed) from exc


def _is_valid(part: object) -> bool:
    if isinstance(part, datetime):
        return part.tzinfo is not None
    return not (isinstance(part, str) and "\0" in part)


def checked(limit: int) -> int:
    """Return `limit` if it is valid, else raise InvalidValue."""
    if not 1 <= limit <= MAX_ROWS:
        raise InvalidValue("limit", limit, f"1 to {MAX_ROWS}")
    return limit


def task_id(digest: str) -> UUID:
    """Return the id of a task's digest; raise InvalidValue."""
    try:
        return UUID(hex=digest)
    except ValueError as exc:
        raise InvalidValue("task", digest, "32 hexadecimal digits") from exc
