"""The opaque cursors of pages: the sort key of the last row, packed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.queries.results import Page

T = TypeVar("T")
MOST_ROWS = 1000


def page(rows: Sequence[T], *, limit: int, key: Callable[[T], object]) -> Page[T]:
    """Return the first `limit` of `rows`; one more row means that there is a next page.

    `key` returns the sort key of a row.
    """
    if len(rows) <= limit:
        return Page(rows=tuple(rows))
    return Page(rows=tuple(rows[:limit]), next=pack(key(rows[limit - 1])))


def where(
    equal: Mapping[str, str | UUID | None], order: str, before: Sequence[object] | None
) -> tuple[str, list[Any]]:
    """Return the SQL condition of a page: equal values unless None, and rows before a key."""
    wanted = {column: value for column, value in equal.items() if value is not None}
    conditions = [f"{column} = %s" for column in wanted]
    if before is not None:
        conditions.append(f"({order}) < ({', '.join(['%s'] * len(before))})")
    return " AND ".join(conditions) or "true", [*wanted.values(), *(before or ())]


def unpack(cursor: str | None, shape: type[T]) -> T | None:
    """Return the key in `cursor`, None for the first page; raise InvalidValue."""
    if cursor is None:
        return None
    try:
        packed = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        key = msgspec.json.decode(packed, type=shape)
        if not all(map(_may_be_given, key if isinstance(key, tuple) else (key,))):
            raise ValueError("no page gives a NUL, or a time without its zone")
        return key
    except (ValueError, binascii.Error, msgspec.DecodeError) as exc:
        raise InvalidValue("cursor", cursor, "what an earlier page gave as next") from exc


def _may_be_given(part: object) -> bool:
    if isinstance(part, datetime):
        return part.tzinfo is not None
    return not (isinstance(part, str) and "\0" in part)


def bounded(limit: int) -> int:
    """Return `limit` if it is valid, else raise InvalidValue."""
    if not 1 <= limit <= MOST_ROWS:
        raise InvalidValue("limit", limit, f"1 to {MOST_ROWS}")
    return limit


def pack(key: object) -> str:
    """Return a key as an opaque cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")
