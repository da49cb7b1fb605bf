"""Serve `/metrics`, the state of all applications for Prometheus.

`docs/reference/metrics.md` lists each metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from rest_framework.request import Request

from arrester.controlplane import queries
from arrester.dashboard.rest.view_base import View

Sample = tuple[Sequence[str], float | None]


class Metrics(View):
    """The endpoint of Prometheus."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Return all current metrics; a viewer's token is enough."""
        registry = CollectorRegistry()
        registry.register(Everything(queries.metrics()))
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class Everything(Collector):
    """The samples of one result of `queries.metrics`."""

    def __init__(self, found: queries.Metrics) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its samples."""
        found, lags = self._found, self._found.lags
        health = found.health
        parts = {
            "postgres": health.postgres,
            "redis": health.redis,
            "wake": health.wake,
            "worker": health.worker,
            "housekeeper": health.housekeeper,
        }
        yield _gauge(
            "arrester_up",
            "1 when a part of the server answers, else 0.",
            ["part"],
            (([name], float(reach.up)) for name, reach in parts.items()),
        )
        yield _gauge(
            "arrester_application_latched",
            "1 while the application is LATCHED, else 0.",
            ["application"],
            (([name], float(latched)) for name, latched in found.latched.items()),
        )
        yield _gauge(
            "arrester_tasks",
            "Tasks with failures since creation, by status; live checkpoints only.",
            ["application", "status"],
            ((key, number) for key, number in found.tasks.items()),
        )
        yield _gauge(
            "arrester_instances",
            "All known instances, by status; a killed instance keeps its last status.",
            ["application", "status"],
            ((key, number) for key, number in found.instances.items()),
        )
        yield _gauge(
            "arrester_instances_alive",
            "Live instances, including lost ones that are not replaced.",
            ["application"],
            (([name], number) for name, number in found.alive.items()),
        )
        yield _gauge(
            "arrester_instances_lost",
            "Lost instances: not ended, no heartbeat, not replaced.",
            ["application"],
            (([name], number) for name, number in found.lost.items()),
        )
        yield _gauge(
            "arrester_commands",
            "Commands since creation, by status.",
            ["application", "status"],
            ((key, number) for key, number in found.commands.items()),
        )
        yield _counter(
            "arrester_failed_records",
            "Failed records since creation.",
            (([name], number) for name, number in found.failed.items()),
        )
        yield _counter(
            "arrester_events_folded",
            "Events in the log: its newest position.",
            (([lag.application], lag.sequence) for lag in lags),
        )
        yield _gauge(
            "arrester_queue_batches",
            "Batches of events in Redis that are not processed yet.",
            ["application"],
            (([lag.application], lag.waiting) for lag in lags),
        )
        yield _gauge(
            "arrester_queue_age_seconds",
            "Waiting time of the oldest batch that is not processed, in seconds.",
            ["application"],
            (([lag.application], lag.waiting_seconds) for lag in lags),
        )
        yield _gauge(
            "arrester_fold_lag_seconds",
            "Time between the newest processed and the newest received batch, in seconds.",
            ["application"],
            (([lag.application], lag.fold_seconds) for lag in lags),
        )
        yield _gauge(
            "arrester_overloaded",
            "1 while agents are asked to count failed records without details, else 0.",
            ["application"],
            (([lag.application], float(lag.overloaded)) for lag in lags),
        )
        yield _gauge(
            "arrester_quarantined",
            "Quarantined entries that are neither requeued nor dismissed.",
            ["application"],
            (([lag.application], lag.quarantined) for lag in lags),
        )
        yield _gauge(
            "arrester_too_old",
            "Batches of the last day that are quarantined as older than the replay horizon.",
            ["application"],
            (([lag.application], lag.too_old) for lag in lags),
        )
        yield _gauge(
            "arrester_retention_refused",
            "1 while no day is dropped because the application's base is not verified, else 0.",
            ["application"],
            (([lag.application], float(lag.application in found.refused)) for lag in lags),
        )


def _gauge(
    name: str, meaning: str, labels: Sequence[str], samples: Iterable[Sample]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=labels)
    _fill(family, samples)
    return family


def _counter(name: str, meaning: str, samples: Iterable[Sample]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, meaning, labels=["application"])
    _fill(family, samples)
    return family


def _fill(family: Any, samples: Iterable[Sample]) -> None:
    """Add samples; values unknown while Redis is unreachable are omitted."""
    for labels, value in samples:
        if value is not None:
            family.add_metric(list(labels), value)
