"""Pipelines that are late, whose backlog grows, or of which too many records fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from arrester.controlplane.queries.conditions.causes import AlertCause, AllLimits, Limits
from arrester.controlplane.queries.conditions.condition import (
    Condition,
    duration,
    pipeline_path,
)
from arrester.controlplane.queries.current_state.instances import in_progress_seconds
from arrester.controlplane.queries.flow import sums
from arrester.controlplane.queries.flow.measured import ARRIVAL, RATE, measures_flow, newest
from arrester.controlplane.queries.flow.sums import FlowSums, NewestFlow
from arrester.controlplane.views import live_checkpoints
from arrester.domain.plural import plural
from arrester.domain.state.live_runs import RunStatus, live, run_status
from arrester.domain.state.states import InstanceState, ThreadState

#: A share of fewer records in some minutes is no sign.
LEAST_RECORDS = 100
CAUSES = frozenset(
    {
        AlertCause.PIPELINE_LATE,
        AlertCause.BATCH_LONG,
        AlertCause.BACKLOG_GROWS,
        AlertCause.FAILED_SHARE,
    }
)


def find(
    threads: Sequence[ThreadState],
    instances: Mapping[UUID, InstanceState],
    limits: AllLimits,
    *,
    now: datetime,
) -> Iterator[Condition]:
    """Yield the conditions of the flow of running pipelines, of what has a limit."""
    runs = [each for each in live(threads) if run_status(each, instances) is RunStatus.RUNNING]
    if limits.any("no_batch_minutes"):
        known = newest(live_checkpoints.columns_of(runs), instances.values())
        for run in (each for each in runs if measures_flow(each, instances)):
            key = live_checkpoints.pipeline_key(run)
            yield from _late(run, known.get(key), limits.of(run.application), now)
    if limits.any("batch_minutes"):
        ages = in_progress_seconds()
        for run in runs:
            age = ages.get((run.application, run.pipeline))
            yield from _long(run, age, limits.of(run.application), now)
    if limits.any("backlog_minutes"):
        yield from _growing(runs, limits, now)
    if limits.any("failed_percent"):
        until = (now - ARRIVAL).replace(second=0, microsecond=0)
        recent = sums.sums(until - RATE, until, last=(until - RATE, until))
        for run in runs:
            found = recent.get(live_checkpoints.pipeline_key(run))
            if found is not None:
                yield from _failing(run, found.sums, limits.of(run.application), until)


def _late(
    run: ThreadState, flow: NewestFlow | None, limits: Limits, now: datetime
) -> Iterator[Condition]:
    """Yield that a run has completed no micro-batch for long; of an older agent nothing is known.

    After its start a run has the same time.
    """
    minutes = limits.no_batch_minutes
    if minutes is None or flow is None:
        return
    times = [each for each in (flow.last_batch_at, run.since) if each is not None]
    last = max(times, default=now)
    if now - last < timedelta(minutes=minutes):
        return
    since = duration((now - last).total_seconds())
    yield _condition(
        AlertCause.PIPELINE_LATE,
        run,
        f"no micro-batch for {since}",
        f"The limit is {minutes} min. The source may have no new records, or the query waits.",
        since=last,
    )


def _long(
    run: ThreadState, seconds: float | None, limits: Limits, now: datetime
) -> Iterator[Condition]:
    minutes = limits.batch_minutes
    if minutes is None or seconds is None or seconds < 60 * minutes:
        return
    yield _condition(
        AlertCause.BATCH_LONG,
        run,
        f"a micro-batch has run for {duration(seconds)}",
        f"The limit is {minutes} min.",
        since=now - timedelta(seconds=seconds),
    )


def _growing(runs: Sequence[ThreadState], limits: AllLimits, now: datetime) -> Iterator[Condition]:
    minutes = {
        run.application: limit
        for run in runs
        if (limit := limits.of(run.application).backlog_minutes) is not None
    }
    growing = sums.growing(
        {name: now - timedelta(minutes=limit) for name, limit in minutes.items()}, now
    )
    for run in runs:
        grown = growing.get(live_checkpoints.pipeline_key(run))
        if grown is None:
            continue
        more = f"{grown.last - grown.first:,} more than {minutes[run.application]} min ago"
        yield _condition(
            AlertCause.BACKLOG_GROWS,
            run,
            f"its backlog grows: {grown.last:,}, {more}",
            "It reads less than arrives.",
            since=grown.since,
            count=grown.last,
        )


def _failing(
    run: ThreadState, recent: FlowSums, limits: Limits, until: datetime
) -> Iterator[Condition]:
    percent, share = limits.failed_percent, recent.failed_share
    if percent is None or share is None or recent.records_in < LEAST_RECORDS:
        return
    if 100 * share <= percent:
        return
    records = plural(recent.records_in, "record")
    yield _condition(
        AlertCause.FAILED_SHARE,
        run,
        f"{100 * share:.0f} % of {records} failed in {duration(RATE.total_seconds())}",
        f"The limit is {percent} %, of at least {LEAST_RECORDS} records.",
        since=until - RATE,
        count=recent.failed,
    )


def _condition(
    cause: AlertCause,
    run: ThreadState,
    text: str,
    detail: str,
    *,
    since: datetime,
    count: int = 1,
) -> Condition:
    return Condition(
        cause=cause,
        application=run.application,
        subject=run.pipeline,
        name=run.pipeline,
        title=f"{run.application}/{run.pipeline}: {text}",
        detail=detail,
        summary=text,
        path=pipeline_path(run.application, run.pipeline),
        count=count,
        since=since,
        pipeline=run.pipeline,
    )
