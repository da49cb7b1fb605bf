"""Identifiers that sort by time: random UUIDv7, and derived UUIDv8 that can be repeated."""

from __future__ import annotations

import hashlib
import os
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from arrester.domain.python_versions import UTC

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VERSION_SHIFT, _VARIANT = 76, 0b10 << 62


def uuid7(now: datetime) -> UUID:
    """Return a new UUIDv7 (RFC 9562): 48 bits of milliseconds, then random bits."""
    chance = int.from_bytes(os.urandom(10), "big")
    return _compose(now, version=7, rest=chance)


def commit_id(
    at: datetime,
    *,
    application: str,
    pipeline: str,
    checkpoint: str,
    entry: int,
    part: int | str = 0,
) -> UUID:
    """Return the batch id of a journal entry's events: UUIDv8 of its time and its identity.

    Every host derives the same id when it sends the entry again. Two different entries never share
    one, since the time is stored in the entry and the other values name it.
    """
    name = "\0".join([application, pipeline, checkpoint, str(entry), str(part)])
    rest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:10], "big")
    return _compose(at, version=8, rest=rest)


def part_of(act: UUID, name: str) -> UUID:
    """Return the id of one part of an act on many things."""
    return uuid5(act, name)


def milliseconds(value: UUID) -> int:
    """Return the Unix milliseconds at the start of a UUIDv7 or our UUIDv8."""
    return value.int >> 80


def moment(value: UUID) -> datetime:
    """Return the time at the start of a UUIDv7 or our UUIDv8.

    Raises OverflowError after the year 9999, which fits 48 bits of milliseconds.
    """
    return _EPOCH + timedelta(milliseconds=milliseconds(value))


def _compose(at: datetime, *, version: int, rest: int) -> UUID:
    head = (int(at.timestamp() * 1000) & ((1 << 48) - 1)) << 80
    middle = (rest >> 62 & 0xFFF) << 64
    tail = rest & ((1 << 62) - 1)
    return UUID(int=head | version << _VERSION_SHIFT | middle | _VARIANT | tail)
