"""Points of the past: their text form, and their position in a log."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec

from arrester.controlplane import store
from arrester.controlplane.views import row_mapping
from arrester.domain.errors import BeforeHistory, InvalidValue

#: The state before the newest command of the application.
LAST_COMMAND = "last-command"
FORMS = (
    f"an age (5m, 1h, 2d), a time (2026-11-20T09:00:00Z), a log position (@18233) or {LAST_COMMAND}"
)
#: How far the clock of the requester may be ahead of ours.
AHEAD = timedelta(minutes=5)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_POSITION = re.compile(r"@(\d{1,18})")
_AGE = re.compile(r"(\d{1,6}) ?([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class AsOf(msgspec.Struct, frozen=True, kw_only=True):
    """A point of the past: a time, or a log position of one application, or before its newest
    command if both are None."""

    moment: datetime | None = None
    position: int | None = None

    def __str__(self) -> str:
        if self.before_last_command:
            return LAST_COMMAND
        if self.moment is not None:
            return self.moment.isoformat()
        return f"@{self.position}"

    @property
    def printed(self) -> str:
        """The point for people: a time to the second in UTC, or a log position."""
        return f"{self.moment:%Y-%m-%d %H:%M:%S} UTC" if self.moment else str(self)

    @property
    def before_last_command(self) -> bool:
        """Whether it is the point before the newest command."""
        return self.moment is None and self.position is None


def as_of(text: str) -> AsOf:
    """Return the point of `text`; a time without a zone is UTC. Raise InvalidValue."""
    text = text.strip()
    if text == LAST_COMMAND:
        return AsOf()
    if match := _AGE.fullmatch(text):
        age = timedelta(**{_UNITS[match[2]]: int(match[1])})
        return AsOf(moment=max(datetime.now(UTC) - age, _EARLIEST))
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


def log_position(application: str, when: AsOf) -> int:
    """Return the position of `when` in the log of an application."""
    stream, begin = store.read_stream(application), store.base(application)
    if when.position is not None:
        if when.position > stream.sequence:
            allowed = f"up to @{stream.sequence}, the newest log position of {application}"
            raise InvalidValue("as_of", str(when), allowed)
        return when.position
    moment = when.moment or _before_last_command(application)
    if begin.received_at is not None and moment < begin.received_at:
        raise BeforeHistory(application, position=begin.position, moment=begin.received_at)
    return max(begin.position, store.position_at(application, moment))


def _before_last_command(application: str) -> datetime:
    newest = row_mapping.COMMANDS.load(
        "application = %s ORDER BY issued_at DESC LIMIT 1", [application]
    )
    if not newest:
        raise InvalidValue(
            "as_of", LAST_COMMAND, f"a time or log position: {application} has no command"
        )
    return newest[0].issued_at - timedelta(microseconds=1)
