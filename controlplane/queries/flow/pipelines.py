"""Pipelines in one line each: whether they run, what flows, and how far behind they are.

Each query needs a fixed number of statements for any number of pipelines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta

from arrester.controlplane.queries import paging
from arrester.controlplane.queries.current_state import task_grid
from arrester.controlplane.queries.flow.measured import Measured, Trend, measures_flow
from arrester.controlplane.queries.flow.sums import FlowSums, NewestFlow
from arrester.controlplane.queries.paging import Page
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.controlplane.views.live_checkpoints import PipelineKey
from arrester.domain.errors import NotFound
from arrester.domain.state.live_runs import RunStatus, live, no_run_since, run_status
from arrester.domain.state.states import (
    InstanceState,
    PipelinePause,
    TaskStatus,
    ThreadState,
)


class PipelineFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline on its live checkpoint: its run and its flow."""

    application: str
    pipeline: str
    checkpoint: str
    run: RunStatus
    #: The run, and since when it is in this state.
    epoch: int = 0
    since: datetime | None = None
    reason: str | None = None
    release: Annotated[str | None, Meta(description="The version of the application.")] = None
    observed: Annotated[
        bool, Meta(description="An unguarded query: the outcome of a record is not known.")
    ] = False
    records_in_per_second: Annotated[
        float | None, Meta(description="In the last minutes; null: not known.")
    ] = None
    records_out_per_second: Annotated[
        float | None, Meta(description="In the last minutes; null: not known.")
    ] = None
    recent: Annotated[
        FlowSums | None, Meta(description="The last hour; null: its agent measures no flow.")
    ] = None
    batch_p95_ms: Annotated[
        float | None,
        Meta(
            description="95 % of the micro-batches took no longer, in this hour and the one before."
        ),
    ] = None
    newest: NewestFlow = NewestFlow()
    backlog_trend: Annotated[
        Trend | None, Meta(description="Null: the source does not report it, or not for long.")
    ] = None
    pause: Annotated[
        PipelinePause | None,
        Meta(description="Set while it is PAUSED; of an ended run: the next one starts PAUSED."),
    ] = None
    paused: Annotated[int, Meta(description="PAUSED tasks.")] = 0
    dead: Annotated[int, Meta(description="DEAD tasks.")] = 0
    held: Annotated[int, Meta(description="Records that are held now.")] = 0

    @property
    def key(self) -> PipelineKey:
        """The pipeline and its checkpoint."""
        return (self.application, self.pipeline, self.checkpoint)

    @property
    def failed_share(self) -> float | None:
        """The share of failed records in the last hour; None: nothing flowed, or is not known."""
        return None if self.recent is None or self.observed else self.recent.failed_share


class PipelineFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which pipelines are listed."""

    application: Annotated[str | None, Meta(description="Of one application.")] = None
    run: Annotated[RunStatus | None, Meta(description="With a run in this state.")] = None

    def takes(self, flow: PipelineFlow) -> bool:
        """Return whether a pipeline is listed."""
        return self.application in (None, flow.application) and self.run in (None, flow.run)


#: The key of the application's version among those of an instance.
RELEASE: Final = "release"
_FIRST: Final = (
    RunStatus.DEAD, RunStatus.LOST, RunStatus.PAUSED, RunStatus.RUNNING, RunStatus.STOPPED,
)  # fmt: skip


def pipeline_flows(
    *,
    now: datetime,
    application: str | None = None,
    threads: Sequence[ThreadState] | None = None,
    tasks: Mapping[PipelineKey, Counter[str]] | None = None,
) -> tuple[PipelineFlow, ...]:
    """Return the pipelines of all applications or of one: dead ones first, then by name.

    `threads` are those of all applications, and `tasks` the counts of their pipelines, if the
    caller has read them.
    """
    if threads is None:
        where = "true" if application is None else "application = %s"
        parameters = [] if application is None else [application]
        threads = row_mapping.THREADS.load_readable(where, parameters)
    if tasks is None:
        tasks = task_grid.counts_by_pipeline(sorted({each.application for each in threads}))
    runs = [each for each in live(threads) if application in (None, each.application)]
    instances = live_checkpoints.instances_of(runs)
    measured = Measured.of(runs, instances, now=now)
    rows = [_row(each, instances, tasks, measured) for each in runs]
    return tuple(
        sorted(rows, key=lambda each: (_FIRST.index(each.run), each.application, each.pipeline))
    )


def pipeline_page(
    wanted: PipelineFilter, *, now: datetime, cursor: str | None = None, limit: int = 50
) -> Page[PipelineFlow]:
    """Return pipelines by name."""
    after = paging.unpack(cursor, tuple[str, str, str], of="pipelines") or ("", "", "")
    found = [
        each
        for each in pipeline_flows(now=now, application=wanted.application)
        if wanted.takes(each) and each.key > after
    ]
    rows = sorted(found, key=lambda each: each.key)
    rows = rows[: paging.checked(limit) + 1]
    return paging.page(rows, of="pipelines", limit=limit, key=lambda each: each.key)


def _row(
    run: ThreadState,
    instances: Mapping[UUID, InstanceState],
    counts: Mapping[PipelineKey, Counter[str]],
    measured: Measured,
) -> PipelineFlow:
    key, status = live_checkpoints.pipeline_key(run), run_status(run, instances)
    counted = counts.get(key, Counter())
    instance = None if run.instance is None else instances.get(run.instance)
    return PipelineFlow(
        application=run.application,
        pipeline=run.pipeline,
        checkpoint=run.checkpoint,
        run=status,
        epoch=run.epoch,
        since=_since(run, status, instances),
        reason=run.reason,
        release=None if instance is None else instance.versions.get(RELEASE),
        observed=run.unguarded,
        pause=run.paused,
        paused=counted[TaskStatus.PAUSED],
        dead=counted[TaskStatus.DEAD],
        held=counted["held"],
        **_measured(run, status, instances, measured),
    )


def _since(
    run: ThreadState, status: RunStatus, instances: Mapping[UUID, InstanceState]
) -> datetime | None:
    """Return since when a run is in a state."""
    if status is RunStatus.LOST:
        return no_run_since(run, instances)
    # The time of a run is that of its last change, also of a pause that gets another end.
    return run.paused.since if status is RunStatus.PAUSED and run.paused else run.since


def _measured(
    run: ThreadState,
    status: RunStatus,
    instances: Mapping[UUID, InstanceState],
    measured: Measured,
) -> dict[str, Any]:
    """Return the fields of what flows; none of a run whose agent does not measure it."""
    if status.is_live and not measures_flow(run, instances):
        return {}
    key = live_checkpoints.pipeline_key(run)
    values = measured.values(key, since=run.since if status.is_live else None)
    return values | {"records_out_per_second": None} if run.unguarded else values


def pipeline_flow(application: str, name: str, *, now: datetime) -> PipelineFlow:
    """Return one pipeline; raise NotFound."""
    for each in pipeline_flows(now=now, application=application):
        if each.pipeline == name:
            return each
    raise NotFound(f"there is no pipeline {name!r} in {application!r}")
