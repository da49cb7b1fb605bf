"""Sums of the flow of pipelines over a time, and what was last known of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from arrester.controlplane.queries import sql
from arrester.controlplane.views.live_checkpoints import TABLE, PipelineKey
from arrester.domain import durations
from arrester.domain.durations import BUCKETS, KEYS, Phase, key_of_packed
from arrester.domain.events import FLOW_COUNTS

_SUMS = ", ".join(f"sum({name})" for name in FLOW_COUNTS)
_LAST = ", ".join(
    f"coalesce(sum({name}) FILTER (WHERE minute >= %s AND minute < %s), 0)" for name in FLOW_COUNTS
)
_OF_MINUTES = f"""
SELECT application, pipeline, checkpoint,
    min(minute) FILTER (WHERE minute >= %s AND minute < %s), {_SUMS}, {_LAST}
FROM flow_minute WHERE minute >= %s AND minute < %s GROUP BY 1, 2, 3
"""
#: The buckets of micro-batches as a whole; their phase is the first.
_BUCKETS = f"CROSS JOIN LATERAL unnest(durations) AS each WHERE mod(each, {KEYS}) < {BUCKETS}"
_DURATIONS = f"""
SELECT application, pipeline, checkpoint, mod(each, {KEYS}), sum(each / {KEYS})
FROM flow_hour {_BUCKETS} AND hour >= %s AND hour < %s GROUP BY 1, 2, 3, 4
"""
_NEWEST = f"""
SELECT application, pipeline, checkpoint, last_batch_at, backlog, backlog_unit, watermark
FROM flow_total WHERE (application, pipeline, checkpoint) IN (SELECT * FROM {TABLE})
"""
_TOTALS = f"""
SELECT application, pipeline, {_SUMS} FROM flow_total GROUP BY 1, 2 ORDER BY 1, 2
"""
_ALL_DURATIONS = f"""
SELECT application, pipeline, mod(each, {KEYS}), sum(each / {KEYS})
FROM flow_total {_BUCKETS} GROUP BY 1, 2, 3
"""
_FIRST = "(array_agg(backlog ORDER BY minute, epoch))[1]"
_LAST_LEVEL = "(array_agg(backlog ORDER BY minute DESC, epoch DESC))[1]"
_BACKLOGS = f"""
SELECT application, pipeline, checkpoint, {_FIRST}, {_LAST_LEVEL} FROM flow_minute
WHERE minute >= %s AND minute < %s AND backlog IS NOT NULL GROUP BY 1, 2, 3 HAVING count(*) > 1
"""
_GROWING = f"""
SELECT application, pipeline, checkpoint, min(minute), {_FIRST}, {_LAST_LEVEL} FROM flow_minute
JOIN unnest(%s::text[], %s::timestamptz[]) AS wanted (application, since) USING (application)
WHERE minute >= %s AND minute >= since AND minute < %s AND backlog IS NOT NULL GROUP BY 1, 2, 3
HAVING max(backlog) FILTER (WHERE minute < since + (%s - since) / 3)
    < min(backlog) FILTER (WHERE minute >= %s - (%s - since) / 3)
"""


class FlowSums(msgspec.Struct, frozen=True, kw_only=True):
    """Micro-batches and records of a time; `records_in + drained` have gone to the other four."""

    micro_batches: Annotated[int, Meta(description="Committed micro-batches.")] = 0
    records_in: Annotated[int, Meta(description="Records read from the source.")] = 0
    records_out: Annotated[int, Meta(description="Records in the sink.")] = 0
    failed: Annotated[int, Meta(description="Records that failed for the first time.")] = 0
    skipped: Annotated[int, Meta(description="Records left out by a decision or a person.")] = 0
    held: Annotated[int, Meta(description="Records held in place of being processed.")] = 0
    drained: Annotated[int, Meta(description="Held records that were written or skipped.")] = 0

    @property
    def failed_share(self) -> float | None:
        """The share of failed records among those read; None if none was read."""
        return min(1.0, self.failed / self.records_in) if self.records_in else None


class NewestFlow(msgspec.Struct, frozen=True, kw_only=True):
    """What the last micro-batch of a pipeline left; None: unknown."""

    last_batch_at: datetime | None = None
    backlog: int | None = None
    backlog_unit: str | None = None
    watermark: datetime | None = None


class RecentSums(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of a time, and of its last whole minutes."""

    sums: FlowSums = FlowSums()
    last: FlowSums = FlowSums()
    #: The first of these minutes in which anything was measured.
    first: datetime | None = None


def sums(
    since: datetime, until: datetime, *, last: tuple[datetime, datetime]
) -> dict[PipelineKey, RecentSums]:
    """Return the sums of the minutes of [since, until), and of those of `last` among them."""
    parameters = [*last * (1 + len(FLOW_COUNTS)), since, until]
    found = {}
    for application, pipeline, checkpoint, first, *counts in sql.rows(_OF_MINUTES, parameters):
        found[(application, pipeline, checkpoint)] = RecentSums(
            sums=of_counts(counts[: len(FLOW_COUNTS)]),
            last=of_counts(counts[len(FLOW_COUNTS) :]),
            first=first,
        )
    return found


def of_counts(counts: Sequence[Any]) -> FlowSums:
    """Return sums in the order of `FLOW_COUNTS`, as a statement returns them."""
    return FlowSums(**{name: int(each) for name, each in zip(FLOW_COUNTS, counts, strict=True)})


def percentiles(since: datetime, until: datetime, share: float) -> dict[PipelineKey, float]:
    """Return how many milliseconds a share of the micro-batches of some hours took at most."""
    histograms: dict[PipelineKey, dict[str, int]] = defaultdict(dict)
    for application, pipeline, checkpoint, key, count in sql.rows(_DURATIONS, [since, until]):
        histograms[(application, pipeline, checkpoint)][key_of_packed(key)] = int(count)
    found = {
        key: durations.percentile(each, Phase.TOTAL, share) for key, each in histograms.items()
    }
    return {key: each for key, each in found.items() if each is not None}


def newest(lines: Sequence[Sequence[str]]) -> dict[PipelineKey, NewestFlow]:
    """Return the newest values of checkpoints, given as `live_checkpoints.columns`."""
    return {
        (application, pipeline, checkpoint): NewestFlow(
            last_batch_at=last, backlog=backlog, backlog_unit=unit, watermark=watermark
        )
        for application, pipeline, checkpoint, last, backlog, unit, watermark in sql.rows(
            _NEWEST, [list(each) for each in lines]
        )
    }


def backlogs(since: datetime, until: datetime) -> dict[PipelineKey, tuple[int, int]]:
    """Return the first and the last backlog of [since, until), of pipelines that reported two."""
    return {
        (application, pipeline, checkpoint): (first, last)
        for application, pipeline, checkpoint, first, last in sql.rows(_BACKLOGS, [since, until])
    }


class Growth(NamedTuple):
    """A backlog that grows: its first and last value, and the minute of the first."""

    since: datetime
    first: int
    last: int


def growing(since: Mapping[str, datetime], until: datetime) -> dict[PipelineKey, Growth]:
    """Return the backlogs that grew from the first to the last third of the time until now; it
    begins at the time given for an application."""
    if not since:
        return {}
    times = [min(since.values()), until, until, until, until]
    rows = sql.rows(_GROWING, [[*since], [*since.values()], *times])
    return {
        (application, pipeline, checkpoint): Growth(*values)
        for application, pipeline, checkpoint, *values in rows
    }


def totals() -> dict[tuple[str, str], FlowSums]:
    """Return the sums of all time, by application and pipeline."""
    return {
        (application, pipeline): of_counts(counts)
        for application, pipeline, *counts in sql.rows(_TOTALS)
    }


def histograms() -> dict[tuple[str, str], dict[str, int]]:
    """Return the durations of all micro-batches, by application and pipeline."""
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for application, pipeline, key, count in sql.rows(_ALL_DURATIONS):
        found[application, pipeline][key_of_packed(key)] = int(count)
    return found
