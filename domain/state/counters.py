"""Mutable sums of a task, and of an error group: a fold of many events makes few states."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from arrester.domain.events import (
    DeadLettersFailed,
    Failure,
    FailuresCounted,
    FinalResponse,
    RecordFailed,
    RecordsDeadLettered,
    RecordsRedriven,
    RetriesCounted,
)
from arrester.domain.state.states import GroupState, TaskState, TaskStatus

#: Events of a task that change nothing but its counters.
CountedEvent = RetriesCounted | RecordsDeadLettered | DeadLettersFailed | RecordsRedriven
COUNTED = (RetriesCounted, RecordsDeadLettered, DeadLettersFailed, RecordsRedriven)
#: The number of further classes that are kept per condition.
MAX_CLASSES = 20


class FailureCounts(NamedTuple):
    """What one event of failures adds to the counters of its task."""

    failed: int
    attempts: int
    retries: int
    skipped: int
    logged: int

    @classmethod
    def of(
        cls, *, failed: int, operations: int, attempts: int, response: FinalResponse, logged: bool
    ) -> FailureCounts:
        """Return the counts of `operations` that failed, each after so many attempts.

        A record that failed again is a further operation, but not a further failed record.
        """
        return cls(
            failed=failed,
            attempts=operations * attempts,
            retries=operations * (attempts - 1),
            skipped=operations if response is FinalResponse.CONTINUE else 0,
            logged=operations if logged else 0,
        )


class TaskSums:
    """The sums of one task's events, and its last failure; they start from a state."""

    __slots__ = (
        *("_state", "_sequence", "_epoch", "_status", "_failure", "_failure_sequence", "_latest"),
        *("_failed", "_attempts", "_skipped", "_retries", "_logged"),
        *("_dead_letters", "_dead_letters_failed"),
    )

    def __init__(self, state: TaskState) -> None:
        self._state = state
        self._sequence, self._epoch, self._status = state.sequence, state.epoch, state.status
        self._failure, self._failure_sequence = state.failure, state.failure_sequence
        self._latest = state.counters.last_failure_timestamp
        self._failed = self._attempts = self._skipped = self._retries = self._logged = 0
        self._dead_letters = self._dead_letters_failed = 0

    def add(self, counts: FailureCounts, occurred_at: datetime, sequence: int) -> None:
        """Add the failures of one event."""
        self._sequence = sequence
        self._failed += counts.failed
        self._attempts += counts.attempts
        self._retries += counts.retries
        self._skipped += counts.skipped
        self._logged += counts.logged
        self._update_latest_failure(occurred_at)

    def add_event(
        self,
        event: RecordFailed | FailuresCounted,
        occurred_at: datetime,
        sequence: int,
        *,
        late: bool,
    ) -> None:
        """Add an event of failures; with `late` it belongs to an older run, and stops no task."""
        counts = FailureCounts.of(
            failed=event.count,
            operations=1 if isinstance(event, RecordFailed) else event.count,
            attempts=event.failure.attempts,
            response=event.response,
            logged=event.logged,
        )
        self.add(counts, occurred_at, sequence)
        if (
            isinstance(event, RecordFailed)
            and event.response is not FinalResponse.CONTINUE
            and not late
        ):
            self.set_failure(event.failure, sequence)

    def count(self, event: CountedEvent, occurred_at: datetime, sequence: int) -> None:
        """Add an event that is not a failure."""
        self._sequence = sequence
        match event:
            case RetriesCounted():
                self._attempts += event.retries
                self._retries += event.retries
                self._update_latest_failure(occurred_at)
            case RecordsDeadLettered():
                self._dead_letters += event.count
            case DeadLettersFailed():
                self._dead_letters_failed += event.failures
            case RecordsRedriven():
                pass

    def set_run(self, epoch: int) -> None:
        """Set the run of the events, unless it is an older one.

        A dismissed task is RUNNING again: an agent reports it.
        """
        self._epoch = max(self._epoch, epoch)
        if self._status is TaskStatus.DISMISSED:
            self._status = TaskStatus.RUNNING

    def set_failure(self, failure: Failure, sequence: int) -> None:
        """Set the failure that stops the task."""
        self._failure, self._failure_sequence = failure, sequence

    def _update_latest_failure(self, occurred_at: datetime) -> None:
        if self._latest is None or occurred_at > self._latest:
            self._latest = occurred_at

    def to_state(self) -> TaskState:
        """Return the starting state with the sums."""
        before = self._state.counters
        counters = replace(
            before,
            record_failures=before.record_failures + self._attempts,
            records_skipped=before.records_skipped + self._skipped,
            total_retries=before.total_retries + self._retries,
            failures_logged=before.failures_logged + self._logged,
            dlq_records_produced=before.dlq_records_produced + self._dead_letters,
            dlq_produce_failures=before.dlq_produce_failures + self._dead_letters_failed,
            last_failure_timestamp=self._latest,
        )
        return replace(
            self._state,
            sequence=self._sequence,
            failed=self._state.failed + self._failed,
            counters=counters,
            epoch=self._epoch,
            status=self._status,
            failure=self._failure,
            failure_sequence=self._failure_sequence,
        )


class GroupSums:
    """The sums of failures of one cause, and the last of them; they start from a state."""

    __slots__ = (
        *("_state", "_sequence", "_pipeline", "_message", "_example_sequence", "_source_sequence"),
        *("_first_seen", "_last_seen", "_other_classes", "_count", "_estimated"),
    )

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._sequence, self._pipeline = state.sequence, state.pipeline
        self._message, self._example_sequence = state.message, state.example_sequence
        self._source_sequence = state.source_sequence
        self._first_seen, self._last_seen = state.first_seen, state.last_seen
        self._other_classes = state.other_classes
        self._count = self._estimated = 0

    def add(
        self, count: int, occurred_at: datetime, sequence: int, message: str | None = None
    ) -> None:
        """Add the failures of one event, with the message of one that was reported in full."""
        self._sequence = sequence
        if message is not None:
            # A record that only stopped its task has no message of its own.
            self._message, self._example_sequence = message or self._message, sequence
        self._count += count
        if self._first_seen is None or occurred_at < self._first_seen:
            self._first_seen = occurred_at
        if self._last_seen is None or occurred_at > self._last_seen:
            self._last_seen = occurred_at

    def add_event(
        self,
        event: RecordFailed | FailuresCounted,
        occurred_at: datetime,
        sequence: int,
        *,
        pipeline: str | None,
    ) -> None:
        """Add an event of failures."""
        failure = event.failure
        message = failure.message if isinstance(event, RecordFailed) else None
        self.add(event.count, occurred_at, sequence, message)
        self.set_source(pipeline, failure.exception_class, failure.condition)
        if isinstance(event, RecordFailed):
            if event.with_source:
                self._source_sequence = sequence
        elif event.estimated:
            self._estimated += event.count

    def set_source(self, pipeline: str | None, exception_class: str, condition: str | None) -> None:
        """Set the pipeline of the failures, and add their class if they have a condition."""
        self._pipeline = pipeline
        state, known = self._state, self._other_classes
        if (
            condition is None
            or state.condition is None
            or known is None
            or exception_class == state.exception_class
            or exception_class in known
        ):
            return
        full = len(known) == MAX_CLASSES
        self._other_classes = None if full else tuple(sorted((*known, exception_class)))

    def to_state(self) -> GroupState:
        """Return the starting state with the sums."""
        return replace(
            self._state,
            sequence=self._sequence,
            pipeline=self._pipeline,
            count=self._state.count + self._count,
            estimated=self._state.estimated + self._estimated,
            first_seen=self._first_seen,
            last_seen=self._last_seen,
            message=self._message,
            example_sequence=self._example_sequence,
            source_sequence=self._source_sequence,
            other_classes=self._other_classes,
        )
