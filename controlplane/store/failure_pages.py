"""Pages of failures, put together from the days that they came on: the last ones first, and no more
days than a page needs, since each is a partition to plan over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from arrester.controlplane.domain.events import StoredEvent
from arrester.controlplane.store import batches, day_partitions
from arrester.controlplane.store.failures import Failures, Found, look
from arrester.controlplane.store.log import Newest

#: Where a day has so many pages, the newest day has one, mostly.
_PAGES_A_DAY = 4


class Searched(NamedTuple):
    """The failures that were found, and up to where was looked; None: there are no more."""

    events: list[StoredEvent]
    end: Newest | None


def read_failures(wanted: Failures, *, limit: int) -> Searched:
    """Return up to `limit` failures without bodies, those that occurred last first; of a task those
    that were told last, which is the order that its index has."""
    order = _by_time if wanted.task is None else _as_told
    found = Found([], None)
    left = _days(wanted)
    for some in day_partitions.parted(left, first=_at_first(wanted, left, limit)):
        there = look(wanted, [each.day for each in some], limit=limit)
        found = _joined(found, there, order, limit=limit)
        left = left[len(some) :]
        if found.end is not None and _is_newer(found.end, left, wanted):
            break
    events = batches.at([row.place for row in found.rows])
    # Two names may have one number.
    return Searched([each for each in events if wanted.has(each)], found.end)


def _days(wanted: Failures) -> Sequence[day_partitions.Day]:
    """Return the days that may have any, in the order of what they may have."""
    names = sorted(wanted.names)
    if wanted.task is not None:
        # Whatever came on an earlier day stands before all of a later one.
        end = wanted.end - 1
        return day_partitions.known(names, since=wanted.since, until=wanted.until, end=end)
    found = day_partitions.known(names, since=wanted.since, until=_latest(wanted))
    return sorted(found, key=lambda each: each.newest, reverse=True)


def _at_first(wanted: Failures, found: Sequence[day_partitions.Day], limit: int) -> int:
    """Return how many days to look into at first: all that may have the newest, and one more, which
    a page of what fails all the time does not need."""
    if wanted.rare:
        return day_partitions.FIRST * day_partitions.TIMES
    latest = _latest(wanted)
    if wanted.task is not None or latest is None:
        return day_partitions.FIRST
    newest = sum(each.newest >= latest for each in found)
    of_all = wanted.groups is None and wanted.tasks is None
    is_full = of_all or wanted.failed > _PAGES_A_DAY * limit * len(found)
    return newest if newest and is_full else max(day_partitions.FIRST, newest + 1)


def _latest(wanted: Failures) -> datetime | None:
    """Return a time that none occurred behind."""
    moments = [wanted.until, wanted.before and wanted.before[0]]
    return min((each for each in moments if each is not None), default=None)


def _is_newer(end: Newest, left: Sequence[day_partitions.Day], wanted: Failures) -> bool:
    """Whether all up to `end` is newer than whatever the days left may have."""
    return wanted.task is not None or all(each.newest < end[0] for each in left)


def _joined(
    one: Found, other: Found, order: Callable[[Newest], tuple[object, ...]], *, limit: int
) -> Found:
    """Return what both have, up to where both are known, and no more than a page."""
    end = max((each.end for each in (one, other) if each.end is not None), key=order, default=None)
    rows = sorted([*one.rows, *other.rows], key=lambda row: order(row.key), reverse=True)
    if end is not None:
        rows = [row for row in rows if order(row.key) >= order(end)]
    if len(rows) < limit:
        return Found(rows, end)
    return Found(rows[:limit], rows[limit - 1].key)


def _by_time(key: Newest) -> Newest:
    return key


def _as_told(key: Newest) -> tuple[int]:
    return (key[2],)
