"""What failed records add to a task and to their error group: sums, to which one event adds as many
do. So there is one way to count, and a fold of thousands of events makes few states.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from controlplane.domain.events import Failure, FailuresCounted, RecordFailed, Response
from controlplane.domain.states import GroupState, TaskState


class OfTask(msgspec.Struct, kw_only=True, gc=False):
    """What failures of one task add up to, and what the last of them says; begins at a state."""

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
    ) -> None:
        """Add one event; `late` says that an older run speaks, which changes no status."""
        failure, attempts, records = event.failure, event.failure.attempts, event.count
        # A record that failed again is no other record, but one more attempt.
        attempted = 1 if event.__class__ is RecordFailed else records
        self.sequence = sequence
        self.failed += records
        self.attempts += attempted * attempts
        if attempts != 1:
            self.retries += attempted * (attempts - 1)
        if event.logged:
            self.logged += attempted
        if self.latest is None or occurred_at > self.latest:
            self.latest = occurred_at
        if not late and epoch > self.epoch:
            self.epoch = epoch
        if event.response is Response.CONTINUE:
            self.skipped += attempted
        elif not late and event.__class__ is RecordFailed:
            self.failure, self.failure_sequence = failure, sequence

    def state_after(self) -> TaskState:
        """Return the state that it began at, with all that was added."""
        before = self.state.counters
        counters = replace(
            before,
            record_failures=before.record_failures + self.attempts,
            records_skipped=before.records_skipped + self.skipped,
            total_retries=before.total_retries + self.retries,
            failures_logged=before.failures_logged + self.logged,
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
    """What failures of one cause add up to, and what the last of them says; begins at a state."""

    state: GroupState
    sequence: int
    pipeline: str | None
    message: str
    example_sequence: int
    first_seen: datetime | None
    last_seen: datetime | None
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
        )

    def add(
        self,
        event: RecordFailed | FailuresCounted,
        *,
        sequence: int,
        occurred_at: datetime,
        pipeline: str | None,
    ) -> None:
        """Add one event."""
        count = event.count
        self.sequence, self.pipeline = sequence, pipeline
        self.count += count
        if self.first_seen is None or occurred_at < self.first_seen:
            self.first_seen = occurred_at
        if self.last_seen is None or occurred_at > self.last_seen:
            self.last_seen = occurred_at
        if isinstance(event, RecordFailed):
            self.message, self.example_sequence = event.failure.message, sequence
        elif event.estimated:
            self.estimated += count

    def state_after(self) -> GroupState:
        """Return the state that it began at, with all that was added."""
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
        )
