"""The values of `/metrics`, in a fixed number of statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum

import msgspec
from django.db.models import Count

from arrester.controlplane import models
from arrester.controlplane.queries import conditions
from arrester.controlplane.queries.current_state.held_records import held_since
from arrester.controlplane.queries.current_state.instances import (
    SpoolSums,
    instance_counts,
    live_reports,
)
from arrester.controlplane.queries.current_state.task_grid import (
    COUNTED,
    NO_RUN,
    counts_by_pipeline,
    task_counts,
)
from arrester.controlplane.queries.flow import sums
from arrester.controlplane.queries.flow.pipelines import PipelineFlow, pipeline_flows
from arrester.controlplane.queries.flow.sums import FlowSums
from arrester.controlplane.queries.operation import health
from arrester.controlplane.queries.operation.health import Health, Lag
from arrester.controlplane.queries.operation.limits import limits_reached
from arrester.controlplane.redis import metric_sums
from arrester.controlplane.views import row_mapping
from arrester.domain.state.states import (
    ApplicationStatus,
    CommandStatus,
    InstanceStatus,
)

Counted = Mapping[tuple[str, str], int]


class MetricValues(msgspec.Struct, frozen=True, kw_only=True):
    """All states in numbers; counts are keyed by application and status."""

    lags: tuple[Lag, ...]
    health: Health
    latched: Mapping[str, bool]
    #: Failed records, since creation.
    failed: Mapping[str, int]
    #: The tasks of live checkpoints.
    tasks: Counted
    #: Those that wait for a run, which are not among the RUNNING ones.
    tasks_without_run: Mapping[str, int]
    instances: Counted
    commands: Counted
    #: By application: live instances, and those of them without a heartbeat.
    alive: Mapping[str, int]
    lost: Mapping[str, int]
    #: By application, which is empty for the server, and cause: the conditions that last.
    conditions: Counted
    #: By application and pipeline: for how long the oldest input in progress has run.
    in_progress_seconds: Counted
    #: The pipelines with their newest flow; and their sums and durations since creation, by
    #: application and pipeline.
    pipelines: tuple[PipelineFlow, ...]
    flow: Mapping[tuple[str, str], FlowSums]
    durations: Mapping[tuple[str, str], Mapping[str, int]]
    #: By application and limit: how often it dropped or refused something.
    limits_reached: Counted
    #: The applications for which retention is refused.
    refused: frozenset[str]
    #: The counters of failures, one row for each pipeline.
    failures: tuple[models.FailureTotal, ...]
    #: By application and pipeline: for how long the oldest held record has waited.
    held_seconds: Mapping[tuple[str, str], float]
    #: By application; without those of which nothing is known.
    spools: Mapping[str, SpoolSums]
    #: What all processes of the server have counted; empty while Redis is unreachable.
    sums: Mapping[metric_sums.Field, int]


def metrics() -> MetricValues:
    """Return the current values."""
    # Applications first: each of them has a lag by then.
    states = row_mapping.APPLICATIONS.load_readable("true ORDER BY name", [])
    names = [each.name for each in states]
    instances = instance_counts(names)
    lags, reached = health.lags(), health.health()
    now, threads = datetime.now(UTC), row_mapping.THREADS.load_readable("true", [])
    by_pipeline = counts_by_pipeline(names)
    tasks = task_counts(names, threads, by_pipeline)
    reports = live_reports()
    lasting = conditions.lasting(now=now, threads=threads, lags=lags, health=reached)
    return MetricValues(
        lags=lags,
        health=reached,
        conditions=Counter((each.application, each.cause.value) for each in lasting.conditions),
        latched={each.name: each.status is ApplicationStatus.LATCHED for each in states},
        failed={each.name: each.failed for each in states},
        tasks={(name, each.value): tasks[name][each] for name in names for each in COUNTED},
        tasks_without_run={name: tasks[name][NO_RUN] for name in names},
        instances=_counted(models.Instance, names, InstanceStatus),
        commands=_counted(models.Command, names, CommandStatus),
        limits_reached={
            (each.application, each.limit.value): each.count for each in limits_reached()
        },
        refused=frozenset(each.application for each in health.refusals()),
        alive={name: instances[name]["alive"] for name in names},
        lost={name: instances[name]["lost"] for name in names},
        in_progress_seconds={key: int(age) for key, age in reports.in_progress_seconds.items()},
        pipelines=pipeline_flows(now=now, threads=threads, tasks=by_pipeline),
        flow=sums.totals(),
        durations=sums.histograms(),
        failures=tuple(models.FailureTotal.objects.order_by("application", "pipeline")),
        held_seconds={
            key: (now - since).total_seconds() for key, since in held_since(threads).items()
        },
        spools=reports.spools,
        sums=metric_sums.read(),
    )


def _counted(
    model: type[models.Instance] | type[models.Command],
    names: Sequence[str],
    statuses: Iterable[StrEnum],
) -> Counted:
    """Return the number of rows by application and status, including zeros."""
    words = [status.value for status in statuses]
    rows = model._default_manager.values_list("application", "status").annotate(number=Count("*"))
    counted = {(application, status): number for application, status, number in rows}
    return {(name, word): counted.get((name, word), 0) for name in names for word in words}
