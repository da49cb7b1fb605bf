"""The sums of a task, and of an error group. One addition counts many events, so a fold of
thousands of events makes few states.

The order of the events matters only for failures, of which the last is shown.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from arrester.controlplane.domain.events import (
    DeadLettersFailed,
    Failure,
    FailuresCounted,
    RecordFailed,
    RecordsDeadLettered,
    Response,
    RetriesCounted,
)
from arrester.controlplane.domain.state.states import GroupState, TaskState

#: Events of a task that only add to its counters.
CountedEvent = RetriesCounted | RecordsDeadLettered | DeadLettersFailed
COUNTED = (RetriesCounted, RecordsDeadLettered, DeadLettersFailed)
#: The number of further classes that are kept per condition.
MOST_CLASSES = 20


class OfTask(msgspec.Struct, kw_only=True, gc=False):
    """The sums of one task's events, and its last failure; starts from a state."""

    state: TaskState
    sequence: int
    epoch: int
    failure: Failure | None
    failure_sequence: int
    latest: datetime | None
    failed: int = 0
    attempts: int = 0
    skipped: int = 0
    retries: int = 0
    logged: int = 0
    dead_letters: int = 0
    dead_letters_failed: int = 0

    @classmethod
    def of(cls, state: TaskState) -> OfTask:
        """Return sums of nothing."""
        return cls(
            state=state,
            sequence=state.sequence,
            epoch=state.epoch,
            failure=state.failure,
            failure_sequence=state.failure_sequence,
            latest=state.counters.last_failure_timestamp,
        )

    def add(
        self,
        event: RecordFailed | FailuresCounted,
        *,
        sequence: int,
        occurred_at: datetime,
        epoch: int,
        late: bool,
        times: int = 1,
    ) -> None:
        """Add one event; with `late` it belongs to an older run, which changes no status.

        `times`: add as many events that differ in nothing that is added; the arguments are those of
        the last one, with the latest time.
        """
        failure, attempts, records = event.failure, event.failure.attempts, event.count * times
        # A record that failed again is not another record, but one more attempt.
        attempted = times if event.__class__ is RecordFailed else records
        self._move(sequence, epoch=epoch, late=late)
        self.failed += records
        self.attempts += attempted * attempts
        if attempts != 1:
            self.retries += attempted * (attempts - 1)
        if event.logged:
            self.logged += attempted
        if self.latest is None or occurred_at > self.latest:
            self.latest = occurred_at
        if event.response is Response.CONTINUE:
            self.skipped += attempted
        elif not late and event.__class__ is RecordFailed:
            self.failure, self.failure_sequence = failure, sequence

    def count(
        self,
        event: CountedEvent,
        *,
        sequence: int,
        occurred_at: datetime,
        epoch: int,
        late: bool,
    ) -> None:
        """Add an event that is not a failure; `late` as above."""
        self._move(sequence, epoch=epoch, late=late)
        match event:
            case RetriesCounted():
                self.attempts += event.retries
                self.retries += event.retries
                if self.latest is None or occurred_at > self.latest:
                    self.latest = occurred_at
            case RecordsDeadLettered():
                self.dead_letters += event.count
            case DeadLettersFailed():
                self.dead_letters_failed += event.failures

    def _move(self, sequence: int, *, epoch: int, late: bool) -> None:
        if sequence > self.sequence:
            self.sequence = sequence
        if not late and epoch > self.epoch:
            self.epoch = epoch

    def state_after(self) -> TaskState:
        """Return the starting state with the sums."""
        before = self.state.counters
        counters = replace(
            before,
            record_failures=before.record_failures + self.attempts,
            records_skipped=before.records_skipped + self.skipped,
            total_retries=before.total_retries + self.retries,
            failures_logged=before.failures_logged + self.logged,
            dlq_records_produced=before.dlq_records_produced + self.dead_letters,
            dlq_produce_failures=before.dlq_produce_failures + self.dead_letters_failed,
            last_failure_timestamp=self.latest,
        )
        return replace(
            self.state,
            sequence=self.sequence,
            failed=self.state.failed + self.failed,
            counters=counters,
            epoch=self.epoch,
            failure=self.failure,
            failure_sequence=self.failure_sequence,
        )


class OfGroup(msgspec.Struct, kw_only=True, gc=False):
    """The sums of failures of one cause, and the last of them; starts from a state."""

    state: GroupState
    sequence: int
    pipeline: str | None
    message: str
    example_sequence: int
    first_seen: datetime | None
    last_seen: datetime | None
    other_classes: tuple[str, ...] | None
    count: int = 0
    estimated: int = 0

    @classmethod
    def of(cls, state: GroupState) -> OfGroup:
        """Return sums of nothing."""
        return cls(
            state=state,
            sequence=state.sequence,
            pipeline=state.pipeline,
            message=state.message,
            example_sequence=state.example_sequence,
            first_seen=state.first_seen,
            last_seen=state.last_seen,
            other_classes=state.other_classes,
        )

    def add(
        self,
        event: RecordFailed | FailuresCounted,
        *,
        sequence: int,
        occurred_at: datetime,
        pipeline: str | None,
        earliest: datetime | None = None,
        times: int = 1,
    ) -> None:
        """Add one event, or `times` events: the arguments are those of the last one, with the
        latest and the `earliest` time. `came_in` adds the classes of the others."""
        count = event.count * times
        first = earliest or occurred_at
        self.sequence, self.pipeline = sequence, pipeline
        self.count += count
        if self.first_seen is None or first < self.first_seen:
            self.first_seen = first
        if self.last_seen is None or occurred_at > self.last_seen:
            self.last_seen = occurred_at
        if isinstance(event, RecordFailed):
            self.message, self.example_sequence = event.failure.message, sequence
        elif event.estimated:
            self.estimated += count
        if event.failure.condition is not None:
            self.came_in(event.failure.exception_class)

    def came_in(self, exception_class: str) -> None:
        """Add the class of a failure that has a condition."""
        state, known = self.state, self.other_classes
        if (
            state.condition is None
            or known is None
            or exception_class == state.exception_class
            or exception_class in known
        ):
            return
        full = len(known) == MOST_CLASSES
        self.other_classes = None if full else tuple(sorted((*known, exception_class)))

    def state_after(self) -> GroupState:
        """Return the starting state with the sums."""
        return replace(
            self.state,
            sequence=self.sequence,
            pipeline=self.pipeline,
            count=self.state.count + self.count,
            estimated=self.state.estimated + self.estimated,
            first_seen=self.first_seen,
            last_seen=self.last_seen,
            message=self.message,
            example_sequence=self.example_sequence,
            other_classes=self.other_classes,
        )
