"""Time ranges in URLs: `range=6h`, which stays relative, or `from=…&to=…`, which does not.

All lists, charts and exports read them here, so that a URL means the same everywhere. All charts of
a page share the `Span` of its URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from arrester.domain.errors import InvalidValue

RELATIVE = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
WORDS = {
    "15m": "last 15 min",
    "1h": "last hour",
    "6h": "last 6 h",
    "24h": "last 24 h",
    "7d": "last 7 days",
    "30d": "last 30 days",
}
CUSTOM = "custom"
_NAMES = ", ".join(RELATIVE)
#: The steps of charts with their names; the smallest with few enough columns is chosen.
STEPS = (
    (timedelta(minutes=1), "minute"),
    (timedelta(minutes=5), "5 minutes"),
    (timedelta(hours=1), "hour"),
    (timedelta(hours=3), "3 hours"),
    (timedelta(hours=12), "12 hours"),
    (timedelta(days=1), "day"),
    (timedelta(days=7), "week"),
    (timedelta(days=28), "4 weeks"),
)
#: Plus one, if the range begins within a step.
MOST_COLUMNS = 72
#: Charts are limited to these years.
EARLIEST, LATEST = datetime(1990, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
LAST_HOUR = "1h"
_TIME = "a time like 2026-11-20T12:00, in UTC or with its offset"


class Range(NamedTuple):
    """A range of time: from `since` on, before `until`; None is open."""

    since: datetime | None
    until: datetime | None
    #: One of RELATIVE, CUSTOM, or empty for all time.
    name: str = ""

    @property
    def query(self) -> dict[str, str]:
        """Return the parameters of a URL with this range."""
        if self.name in RELATIVE:
            return {"range": self.name}
        ends = {"from": self.since, "to": self.until}
        return {name: moment.isoformat() for name, moment in ends.items() if moment}

    @property
    def words(self) -> str:
        """Return the text of a heading."""
        if self.name in RELATIVE:
            return WORDS[self.name]
        if self.since is None and self.until is None:
            return "all time"
        begin = f"from {self.since:%Y-%m-%d %H:%M}" if self.since else ""
        end = f"until {self.until:%Y-%m-%d %H:%M}" if self.until else ""
        return f"{begin} {end}".strip()


class Span(NamedTuple):
    """A range of time, divided into the columns of a chart; the steps begin at `start`, in UTC."""

    range: Range
    start: datetime
    step: timedelta
    columns: int
    #: The name of a step, like "5 minutes".
    unit: str

    @property
    def end(self) -> datetime:
        """The end of the last column."""
        return self.start + self.step * self.columns

    @property
    def seconds(self) -> int:
        """The length of a column in seconds."""
        return int(self.step.total_seconds())

    @property
    def names(self) -> tuple[str, ...]:
        """The ranges to choose from."""
        return tuple(RELATIVE)

    def wider(self, *, now: datetime) -> Range:
        """Return a time range of twice the length around this one, but not after `now`."""
        half, end = (self.end - self.start) / 2, self.end
        later = min(end + half, max(end, _floor(now, STEPS[0][0]) + STEPS[0][0]))
        return Range(_limited(self.start - half), _limited(later), CUSTOM)

    def moment(self, column: int) -> datetime:
        """Return the begin of a column; that of the first one after the last is the end."""
        return self.start + self.step * column

    def column(self, moment: datetime) -> int | None:
        """Return the number of the column that contains a moment; None if no column does."""
        number = (moment - self.start) // self.step
        return number if 0 <= number < self.columns else None


def span(parameters: Mapping[str, str], *, now: datetime, default: str = LAST_HOUR) -> Span:
    """Return the time range of a URL's parameters in columns, by default the last hour.

    The columns contain all of it: the first may begin before it, the last end after it.
    """
    requested = read(parameters, now=now, default=default)
    until = _limited(requested.until or now)
    since = _limited(requested.since or until - RELATIVE["30d"])
    length = max(timedelta(minutes=1), until - since)
    step, unit = next((each for each in STEPS if length / each[0] <= MOST_COLUMNS), STEPS[-1])
    end = _floor(until - timedelta(microseconds=1), step) + step
    start = _floor(max(since, end - step * (MOST_COLUMNS + 1)), step)
    return Span(requested, start, step, max(1, (end - start) // step), unit)


def _limited(moment: datetime) -> datetime:
    """Return a moment, or the nearest one within the limits of charts."""
    return min(max(moment, EARLIEST), LATEST)


def _floor(moment: datetime, step: timedelta) -> datetime:
    seconds = step.total_seconds()
    return datetime.fromtimestamp(moment.timestamp() // seconds * seconds, UTC)


def read(parameters: Mapping[str, str], *, now: datetime, default: str = "") -> Range:
    """Return the range of a URL's parameters; `default` if they contain none.

    A relative range precedes absolute times: a form sends both. Raises InvalidValue with the value
    and the allowed ones.
    """
    name = parameters.get("range", "").strip()
    begin = moment("from", parameters.get("from", ""))
    end = moment("to", parameters.get("to", ""))
    if name in ("", CUSTOM) and (begin is not None or end is not None):
        if begin is not None and end is not None and begin >= end:
            raise InvalidValue("to", parameters.get("to"), "a time after from")
        return Range(begin, end, CUSTOM)
    name = name or default
    if name in ("", "all"):
        return Range(None, None)
    if name == CUSTOM:
        raise InvalidValue("from", "", f"{_TIME}; or a range of {_NAMES}")
    if name not in RELATIVE:
        raise InvalidValue("range", name, f"{_NAMES}, all, or from and to instead")
    return Range(now - RELATIVE[name], None, name)


def moment(name: str, text: str) -> datetime | None:
    """Return the time of a field, in UTC; None if it is empty."""
    if not text.strip():
        return None
    try:
        # A + in a URL is a space.
        plain = text.strip().replace(" ", "+") if "T" in text else text.strip()
        time = datetime.fromisoformat(plain)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidValue(name, text[:50], _TIME) from None
