"""The metrics of pipelines: what flows, how long micro-batches take, how far behind they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from arrester.controlplane import queries
from arrester.dashboard.metrics.units import unit_of
from arrester.domain import durations
from arrester.domain.durations import Phase
from arrester.domain.state.live_runs import RunStatus

_LABELS = ("application", "pipeline")
#: The outcomes of records, by the field of their sum.
OUTCOMES = {
    "read": "records_in",
    "written": "records_out",
    "failed": "failed",
    "skipped": "skipped",
    "held": "held",
    "drained": "drained",
}
#: Upper limits of the histogram, in seconds.
LIMITS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


def samples(values: queries.MetricValues) -> Iterator[Metric]:
    """Yield the metrics of pipelines; of what is not known there is no sample."""
    records = CounterMetricFamily(
        "arrester_pipeline_records",
        "Records since creation, by outcome; each is counted once.",
        labels=[*_LABELS, "outcome"],
    )
    batches = CounterMetricFamily(
        "arrester_pipeline_batches", "Committed micro-batches since creation.", labels=_LABELS
    )
    for key, sums in values.flow.items():
        for outcome, name in OUTCOMES.items():
            records.add_metric([*key, outcome], getattr(sums, name))
        batches.add_metric(key, sums.micro_batches)
    yield records
    yield batches
    yield _durations(values.durations)
    yield from _gauges(values.pipelines)
    held = GaugeMetricFamily(
        "arrester_pipeline_held_age_seconds",
        "How long the oldest task that holds records has been stopped, or drains.",
        labels=_LABELS,
        unit="seconds",
    )
    for (application, pipeline), seconds in values.held_seconds.items():
        held.add_metric([application, pipeline], seconds)
    yield held


def _durations(counted: Mapping[tuple[str, str], Mapping[str, int]]) -> HistogramMetricFamily:
    """Return the histogram of micro-batches; limits and sum are exact to a tenth."""
    family = HistogramMetricFamily(
        "arrester_pipeline_batch_duration_seconds",
        "Duration of micro-batches since creation, exact to a tenth.",
        labels=_LABELS,
        unit="seconds",
    )
    for key, histogram in counted.items():
        found = [
            (durations.middle_of(bucket) / 1000, count)
            for bucket, count in durations.buckets(histogram, Phase.TOTAL)
        ]
        buckets = [
            (str(limit), sum(count for seconds, count in found if seconds <= limit))
            for limit in LIMITS
        ]
        buckets.append(("+Inf", sum(count for _, count in found)))
        family.add_metric(key, buckets, sum(seconds * count for seconds, count in found))
    return family


def _gauges(pipelines: tuple[queries.PipelineFlow, ...]) -> Iterator[GaugeMetricFamily]:
    yield _gauge(
        "arrester_pipeline_running",
        "1 while a run of the pipeline runs, else 0.",
        pipelines,
        lambda each: each.run is RunStatus.RUNNING,
    )
    yield _gauge(
        "arrester_pipeline_paused",
        "1 while a person has paused the pipeline, else 0.",
        pipelines,
        lambda each: None if each.observed else each.pause is not None,
    )
    yield _gauge(
        "arrester_pipeline_backlog",
        "What the source has and the pipeline has not read, in the unit of the source.",
        pipelines,
        lambda each: each.newest.backlog,
    )
    yield _gauge(
        "arrester_pipeline_last_batch_timestamp_seconds",
        "When the last micro-batch ended, in seconds since 1970.",
        pipelines,
        lambda each: _timestamp(each.newest.last_batch_at),
    )
    yield _gauge(
        "arrester_pipeline_held_records",
        "Records that are held now.",
        pipelines,
        lambda each: each.held,
    )


def _gauge(
    name: str,
    meaning: str,
    pipelines: tuple[queries.PipelineFlow, ...],
    value: Callable[[queries.PipelineFlow], float | None],
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=_LABELS, unit=unit_of(name))
    for each in pipelines:
        found = value(each)
        if found is not None:
            family.add_metric([each.application, each.pipeline], float(found))
    return family


def _timestamp(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
