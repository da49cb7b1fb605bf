"""The metrics of applications: tasks, instances, commands, queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from arrester.controlplane import queries
from arrester.dashboard.metrics import failures, pipelines, server
from arrester.dashboard.metrics.units import unit_of


class MetricGauge(NamedTuple):
    """A gauge, and how its samples are read from the values."""

    name: str
    meaning: str
    samples: Callable[[queries.MetricValues], Mapping[Any, float | None]]
    labels: Sequence[str] = ("application",)


def _by_application(
    value: Callable[[queries.Lag], float | None],
) -> Callable[[queries.MetricValues], Mapping[Any, float | None]]:
    """Return a function that reads a value of the lag of each application."""
    return lambda values: {lag.application: value(lag) for lag in values.lags}


_SERVER_LABELS = ("part",)
_BY_STATUS = ("application", "status")
_GAUGES = (
    MetricGauge(
        "arrester_up",
        "1 when a part of the server answers, else 0.",
        lambda values: {name: reach.up for name, reach in values.health.parts.items()},
        _SERVER_LABELS,
    ),
    MetricGauge(
        "arrester_application_latched",
        "1 while the application is LATCHED, else 0.",
        lambda values: values.latched,
    ),
    MetricGauge(
        "arrester_tasks",
        "Tasks with failures since creation, by status; live checkpoints only.",
        lambda values: values.tasks,
        _BY_STATUS,
    ),
    MetricGauge(
        "arrester_tasks_without_run",
        "Tasks that wait for a run: none uses their checkpoint. They are not among RUNNING ones.",
        lambda values: values.tasks_without_run,
    ),
    MetricGauge(
        "arrester_instances",
        "All known instances, by status; a killed instance keeps its last status.",
        lambda values: values.instances,
        _BY_STATUS,
    ),
    MetricGauge(
        "arrester_instances_alive",
        "Live instances, including lost ones that are not replaced.",
        lambda values: values.alive,
    ),
    MetricGauge(
        "arrester_instances_lost",
        "Lost instances: not ended, no heartbeat, not replaced.",
        lambda values: values.lost,
    ),
    MetricGauge(
        "arrester_in_progress_seconds",
        "Time for which the oldest micro-batch or chunk of held records in progress has run.",
        lambda values: values.in_progress_seconds,
        ("application", "pipeline"),
    ),
    MetricGauge(
        "arrester_spool_events",
        "Events of live instances that the server has not confirmed yet.",
        lambda values: {name: each.events for name, each in values.spools.items()},
    ),
    MetricGauge(
        "arrester_spool_bytes",
        "Their packed size.",
        lambda values: {name: each.bytes for name, each in values.spools.items()},
    ),
    MetricGauge(
        "arrester_spool_age_seconds",
        "Age of the oldest of them.",
        lambda values: {name: each.age_seconds for name, each in values.spools.items()},
    ),
    MetricGauge(
        "arrester_spool_counted_only_records",
        "Failed records that live instances have only counted, since their start.",
        lambda values: {name: each.counted_only for name, each in values.spools.items()},
    ),
    MetricGauge(
        "arrester_spool_dropped_batches",
        "Batches that live instances have dropped since their start: disk and memory were full.",
        lambda values: {name: each.dropped for name, each in values.spools.items()},
    ),
    MetricGauge(
        "arrester_commands",
        "Commands since creation, by status.",
        lambda values: values.commands,
        _BY_STATUS,
    ),
    MetricGauge(
        "arrester_queue_batches",
        "Batches of events in Redis that are not processed yet.",
        _by_application(lambda lag: lag.waiting),
    ),
    MetricGauge(
        "arrester_queue_age_seconds",
        "Waiting time of the oldest batch that is not processed, in seconds.",
        _by_application(lambda lag: lag.waiting_seconds),
    ),
    MetricGauge(
        "arrester_fold_lag_seconds",
        "Time between the newest processed and the newest received batch, in seconds.",
        _by_application(lambda lag: lag.fold_seconds),
    ),
    MetricGauge(
        "arrester_overloaded",
        "1 while agents are asked to count failed records without details, else 0.",
        _by_application(lambda lag: lag.overloaded),
    ),
    MetricGauge(
        "arrester_quarantined",
        "Quarantined entries that are neither requeued nor dismissed.",
        _by_application(lambda lag: lag.quarantined),
    ),
    MetricGauge(
        "arrester_too_old",
        "Batches of the last day that are quarantined as older than the replay horizon.",
        _by_application(lambda lag: lag.too_old),
    ),
    MetricGauge(
        "arrester_retention_refused",
        "1 while no day is dropped because the application's base is not verified, else 0.",
        lambda values: {lag.application: lag.application in values.refused for lag in values.lags},
    ),
)


class MetricsCollector(Collector):
    """The samples of one result of `queries.metrics`, with those of the server or without."""

    def __init__(self, values: queries.MetricValues, *, server: bool = True) -> None:
        self._values = values
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its samples."""
        values = self._values
        for gauge in _GAUGES:
            if gauge.labels == _SERVER_LABELS and not self._server:
                continue
            yield _gauge(gauge.name, gauge.meaning, gauge.samples(values), gauge.labels)
        yield _gauge(
            "arrester_conditions",
            "Conditions that last and need a person; application is empty for the server.",
            {key: number for key, number in values.conditions.items() if key[0] or self._server},
            ("application", "cause"),
        )
        yield from pipelines.samples(values)
        yield from failures.samples(values)
        applications = frozenset(values.latched)
        yield server.command_durations(values.sums, applications)
        if self._server:
            yield from server.samples(values.sums)
        yield _counter("arrester_failed_records", "Failed records since creation.", values.failed)
        yield _counter(
            "arrester_events_folded",
            "Events in the log: its newest log position.",
            {lag.application: lag.sequence for lag in values.lags},
        )
        yield _counter(
            "arrester_limits_reached",
            "What a limit of the server dropped or refused, since the first time.",
            values.limits_reached,
            ("application", "limit"),
        )


def _gauge(
    name: str,
    meaning: str,
    samples: Mapping[Any, float | None],
    labels: Sequence[str] = ("application",),
) -> GaugeMetricFamily:
    """Return a gauge; values unknown while Redis is unreachable are omitted."""
    family = GaugeMetricFamily(name, meaning, labels=labels, unit=unit_of(name))
    for key, value in samples.items():
        if value is not None:
            family.add_metric([key] if isinstance(key, str) else list(key), float(value))
    return family


def _counter(
    name: str,
    meaning: str,
    samples: Mapping[Any, int],
    labels: Sequence[str] = ("application",),
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, meaning, labels=labels)
    for key, value in samples.items():
        family.add_metric([key] if isinstance(key, str) else list(key), value)
    return family
