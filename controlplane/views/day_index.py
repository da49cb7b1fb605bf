"""What pages know of the days of a log, derived again from it: a day that they take to have less
than it has is left out by them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import groupby
from typing import NamedTuple

from arrester.controlplane import models
from arrester.controlplane.domain.wire.failure_columns import Stored, occurred
from arrester.controlplane.views import row_mapping
from arrester.controlplane.views.bulk_upsert import Row, Upsert, upsert

#: It may say more than there is: nobody misses anything for that.
_AT_LEAST = {
    "first": "least(log_day.first, excluded.first)",
    "oldest": "least(log_day.oldest, excluded.oldest)",
    "newest": "greatest(log_day.newest, excluded.newest)",
}


class Span(NamedTuple):
    """The first position of a day, and when the first and last of its events occurred."""

    first: int
    oldest: datetime
    newest: datetime

    def covers(self, other: Span) -> bool:
        """Whether nothing of the other is outside of this one."""
        return (
            self.first <= other.first
            and self.oldest <= other.oldest
            and self.newest >= other.newest
        )


@dataclass(slots=True)
class LogDays:
    """The days of the events that were seen, of one application."""

    application: str
    days: dict[date, Span] = field(default_factory=dict)

    def see(self, told: Iterable[Stored]) -> None:
        """Note what follows in the log."""
        for day, some in groupby(told, key=_day):
            firsts, moments = zip(*((each.sequence, occurred(each)) for each in some), strict=True)
            oldest, newest = zip(*moments, strict=True)
            found = Span(firsts[0], min(oldest), max(newest))
            before = self.days.get(day, found)
            self.days[day] = Span(
                before.first, min(before.oldest, found.oldest), max(before.newest, found.newest)
            )

    def missed(self) -> list[tuple[date, Span, Span | None]]:
        """Return the days of which not all is known: what there is, and what is known."""
        known = {
            row["day"]: Span(row["first"], row["oldest"], row["newest"])  # type: ignore[arg-type]  # as the table's columns are
            for row in row_mapping.each_live_row(models.LogDay, self.application)
        }
        found = ((day, span, known.get(day)) for day, span in self.days.items())
        return [each for each in found if each[2] is None or not each[2].covers(each[1])]

    def put_right(self) -> None:
        """Let all be known; under the stream's lock."""
        wanted: list[Row] = [
            {"application": self.application, "day": day, **span._asdict()}
            for day, span, _ in self.missed()
        ]
        upsert([Upsert(models.LogDay, wanted, _AT_LEAST)])


def _day(stored: Stored) -> date:
    return stored.received_at.astimezone(UTC).date()
