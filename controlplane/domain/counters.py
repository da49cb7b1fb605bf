"""The seven counters of KIP-298 as a run counts them: attempts that failed, records that fell."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from controlplane.domain.respond import Decided
from controlplane.domain.states import Counters


def attempt_failed(before: Counters, *, at: datetime, records: int = 1) -> Counters:
    """Count a failed attempt; an exhausted record is not counted once more for being exhausted."""
    return replace(
        before,
        record_failures=before.record_failures + records,
        last_failure_timestamp=max(before.last_failure_timestamp or at, at),
    )


def retried(before: Counters) -> Counters:
    """Count an attempt after the first, whatever comes of it."""
    return replace(before, total_retries=before.total_retries + 1)


def decided(before: Counters, fate: Decided, *, logged: bool) -> Counters:
    """Count the fate of failed records: the same on every path that leads to it."""
    return replace(
        before,
        records_skipped=before.records_skipped + fate.continued,
        failures_logged=before.failures_logged + (fate.decided if logged else 0),
    )


def dead_lettered(before: Counters, *, produced: int = 0, failed: int = 0) -> Counters:
    """Count dead letters that were written, and those that could not be."""
    return replace(
        before,
        dlq_records_produced=before.dlq_records_produced + produced,
        dlq_produce_failures=before.dlq_produce_failures + failed,
    )
