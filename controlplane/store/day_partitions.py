"""Which days of receipt logs have, and what those can hold: to plan a statement over all partitions
takes longer than to read a page from one or two of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from typing import NamedTuple

from arrester.controlplane.store import prepared_statements
from arrester.controlplane.store.column_limits import MOST

#: So many days are looked into first; and each further look is at so many times as many as before.
FIRST, TIMES = 2, 4
_EARLIEST, _LATEST = (each.replace(tzinfo=UTC) for each in (datetime.min, datetime.max))


class Day(NamedTuple):
    """A day of receipt, in UTC, and when the newest of what it has occurred."""

    day: date
    newest: datetime


def known(
    applications: Sequence[str],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    end: int = MOST,
) -> list[Day]:
    """Return the days in which logs may have, up to a position, what occurred from `since` on, and
    by `until`; the last ones first."""
    found = prepared_statements.rows(
        "SELECT day, max(newest) FROM log_day WHERE application = ANY(%s::text[])"
        " AND newest >= %s AND oldest <= %s AND first <= %s GROUP BY day ORDER BY day DESC",
        [list(applications), since or _EARLIEST, until or _LATEST, end],
    )
    return [Day(*row) for row in found]


def among(days: Sequence[date]) -> tuple[str, list[date]]:
    """Return the condition that `day` is one of `days`, as SQL, and its parameters.

    Of a list that is one parameter, a statement that is planned once would leave no partition out.
    There are as many as would be looked into at once, so that statements are few.
    """
    many = FIRST
    while many < len(days):
        many *= TIMES
    given = [*days, *[days[-1]] * (many - len(days))]
    # One by one: a list of parameters would be made anew for each row.
    return f"({' OR '.join(['day = %s::date'] * many)})", given


def parted(days: Sequence[Day], *, first: int = FIRST) -> Iterator[Sequence[Day]]:
    """Yield days to look into: a few, then ever more of them, as long as there are any."""
    while days:
        yield days[:first]
        days, first = days[first:], TIMES * first
