"""Points of the past: their text form, and their position in a log."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec

from arrester.controlplane import store
from arrester.controlplane.domain.errors import BeforeHistory, InvalidValue

FORMS = "a time (2026-11-20T09:00:00Z) or a position (@18233)"
#: How far the clock of the requester may be ahead of ours.
AHEAD = timedelta(minutes=5)
_POSITION = re.compile(r"@(\d{1,18})")


class AsOf(msgspec.Struct, frozen=True, kw_only=True):
    """A point of the past: a time, or a position in the log of one application."""

    moment: datetime | None = None
    position: int | None = None

    def __str__(self) -> str:
        if self.moment is not None:
            return self.moment.isoformat()
        return f"@{self.position}"


def as_of(text: str) -> AsOf:
    """Return the point of `text`; a time without a zone is UTC. Raise InvalidValue."""
    text = text.strip()
    if match := _POSITION.fullmatch(text.replace(",", "")):
        return AsOf(position=int(match[1]))
    try:
        # In a query string an unescaped plus sign is a space.
        moment = datetime.fromisoformat(text.replace(" ", "T", 1).replace(" ", "+"))
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        moment = aware.astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise InvalidValue("as_of", text, FORMS) from exc
    if moment > datetime.now(UTC) + AHEAD:
        raise InvalidValue("as_of", text, "a time in the past")
    return AsOf(moment=moment)


def position(application: str, when: AsOf) -> int:
    """Return the position of `when` in the log of an application."""
    stream, begin = store.read_stream(application), store.base(application)
    if when.position is not None:
        if when.position > stream.sequence:
            allowed = f"up to @{stream.sequence}, the newest position of {application}"
            raise InvalidValue("as_of", str(when), allowed)
        return when.position
    moment = when.moment or datetime.now(UTC)
    if begin.received_at is not None and moment < begin.received_at:
        raise BeforeHistory(application, position=begin.position, moment=begin.received_at)
    return max(begin.position, store.position_at(application, moment))
