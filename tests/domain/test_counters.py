from __future__ import annotations

from datetime import UTC, datetime, timedelta

from controlplane.domain import counters
from controlplane.domain.events import Response
from controlplane.domain.respond import Because, Decided, TaskRun
from controlplane.domain.states import Counters

AT = datetime(2026, 1, 1, tzinfo=UTC)


def fate(response: Response, *, continued: int = 0, because: Because = Because.HANDLER) -> Decided:
    return Decided(response=response, because=because, run=TaskRun(), continued=continued)


def test_attempts_are_counted_and_exhaustion_is_no_further_attempt() -> None:
    state = counters.attempt_failed(Counters(), at=AT)
    state = counters.attempt_failed(counters.retried(state), at=AT)
    state = counters.decided(state, fate(Response.CONTINUE, continued=1), logged=False)
    assert (state.record_failures, state.total_retries, state.records_skipped) == (2, 1, 1)


def test_the_last_failure_is_the_latest() -> None:
    state = counters.attempt_failed(Counters(), at=AT, records=5)
    state = counters.attempt_failed(state, at=AT - timedelta(days=1))
    assert (state.record_failures, state.last_failure_timestamp) == (6, AT)


def test_reported_records_are_counted_alike_on_every_path() -> None:
    for fated, logged in (
        (fate(Response.PAUSE), 1),
        (fate(Response.FAIL), 1),
        (fate(Response.CONTINUE, continued=3), 3),
        (fate(Response.FAIL, continued=3), 4),
        (fate(Response.FAIL, because=Because.ALREADY_FAILED), 0),
    ):
        assert counters.decided(Counters(), fated, logged=True).failures_logged == logged


def test_dead_letters_that_could_not_be_written_are_counted_apart() -> None:
    state = counters.dead_lettered(Counters(), produced=2, failed=1)
    assert (state.dlq_records_produced, state.dlq_produce_failures) == (2, 1)


def test_a_held_record_is_no_dead_letter() -> None:
    assert fate(Response.PAUSE).dead_letters == 0
    assert fate(Response.FAIL, continued=2).dead_letters == 3
