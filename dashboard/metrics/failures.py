"""The counters of Kafka Connect's error handling (KIP-298), by pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from arrester.controlplane import models, queries

_LABELS = ("application", "pipeline")
#: By metric: its meaning, with the name of KIP-298, and its value.
_COUNTERS: Final[dict[str, tuple[str, Callable[[models.FailureTotal], int]]]] = {
    "arrester_record_failures": (
        "Failed attempts; a retry or a later failure counts too (total-record-failures)",
        lambda row: row.record_failures,
    ),
    "arrester_record_errors": (
        "Failed records, each counted once (total-record-errors)",
        lambda row: row.failed,
    ),
    "arrester_records_skipped": (
        "Failed records left out by CONTINUE (total-records-skipped)",
        lambda row: row.records_skipped,
    ),
    "arrester_retries": ("Retries (total-retries)", lambda row: row.total_retries),
    "arrester_errors_logged": (
        "Failures in the log of the driver (total-errors-logged)",
        lambda row: row.failures_logged,
    ),
    "arrester_dead_letter_produce_requests": (
        "Dead letters to write, with failed attempts (deadletterqueue-produce-requests)",
        lambda row: row.dlq_records_produced + row.dlq_produce_failures,
    ),
    "arrester_dead_letter_produce_failures": (
        "Failed attempts to write dead letters (deadletterqueue-produce-failures)",
        lambda row: row.dlq_produce_failures,
    ),
}


def samples(values: queries.MetricValues) -> Iterator[Metric]:
    """Yield the counters since creation, and the time of the last failure."""
    for name, (meaning, value) in _COUNTERS.items():
        counter = CounterMetricFamily(name, f"{meaning}, since creation.", labels=_LABELS)
        for row in values.failures:
            counter.add_metric([row.application, row.pipeline], value(row))
        yield counter
    last = GaugeMetricFamily(
        "arrester_last_error_timestamp_seconds",
        "Time of the last failure, in seconds since 1970 (last-error-timestamp).",
        labels=_LABELS,
        unit="seconds",
    )
    for row in values.failures:
        if row.last_failure_timestamp is not None:
            last.add_metric([row.application, row.pipeline], row.last_failure_timestamp.timestamp())
    yield last
