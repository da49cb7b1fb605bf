"""Bulk fold: add events to sums before they become states, as most events of most logs allow."""

from __future__ import annotations

from itertools import count
from typing import get_args

from msgspec.structs import replace

from arrester.domain.events import (
    FAILED,
    Event,
    Failure,
    FailuresCounted,
    FinalResponse,
    RecordFailed,
    Run,
    StoredEvent,
    TaskEvent,
)
from arrester.domain.identity.names import task_digest, task_id
from arrester.domain.state import error_groups
from arrester.domain.state.counters import (
    CountedEvent,
    FailureCounts,
    GroupSums,
    TaskSums,
)
from arrester.domain.state.keyed_states import KeyedStates
from arrester.domain.state.states import TaskState, ThreadState
from arrester.domain.state.tolerance_usage import is_bounded
from arrester.domain.wire.failure_columns import FailedRecords, StoredFailures, moment

_TASK = get_args(TaskEvent)


class BulkFold:
    """The sums that events add to the states of a stream.

    They become states before an event that depends on these states is folded.
    """

    def __init__(self, states: KeyedStates) -> None:
        self._states = states
        self._tasks: dict[str, TaskSums] = {}
        self._groups: dict[str, GroupSums] = {}
        self._failed = 0
        self._run: Run | None = None
        self._thread: ThreadState | None = None

    def add(self, data: RecordFailed | FailuresCounted, run: Run, stored: StoredEvent) -> bool:
        """Add an event; return False if it has effects other than a sum."""
        group = self._group(data.failure) if self._uses_no_tolerance(run) else None
        if group is None:
            return False
        occurred_at, sequence = stored.event.occurred_at, stored.sequence
        late = self._is_late(run)
        self._task(run, data.task).add_event(data, occurred_at, sequence, late=late)
        group.add_event(data, occurred_at, sequence, pipeline=run.pipeline)
        self._failed += data.count
        return True

    def count(self, data: CountedEvent, run: Run, stored: StoredEvent) -> None:
        """Add an event of a task that is not a failure."""
        self._begin_run(run)
        self._task(run, data.task).count(data, stored.event.occurred_at, stored.sequence)

    def add_columns(self, stored: StoredFailures) -> bool:
        """Add failed records; return False if one of them has effects other than a sum."""
        failed, run = stored.failed, stored.failed.run
        if not self._uses_no_tolerance(run):
            return False
        groups = []
        for cause in range(len(failed.kind)):
            group = self._group_of_cause(failed, cause)
            if group is None:
                return False
            groups.append(group)
        counts = FailureCounts.of(
            failed=failed.failed_per_event,
            operations=1,
            attempts=failed.attempts,
            response=failed.response,
            logged=failed.logged,
        )
        tasks = {key: self._task(run, key) for key in set(failed.tasks)}
        rows = zip(
            count(stored.sequence),
            failed.moments,
            failed.tasks,
            failed.cause,
            failed.messages,
            strict=False,
        )
        for sequence, microseconds, task, cause, message in rows:
            occurred_at = moment(microseconds)
            tasks[task].add(counts, occurred_at, sequence)
            groups[cause].add(failed.failed_per_event, occurred_at, sequence, message)
        self._failed += failed.failed_per_event * failed.size
        if failed.response is not FinalResponse.CONTINUE and not self._is_late(run):
            for index, task in enumerate(failed.tasks):
                tasks[task].set_failure(failed.data(index).failure, stored.sequence + index)
        return True

    def settle_for(self, event: Event) -> None:
        """Settle the states that an event may depend on: of a task's event, the task and its
        group."""
        data, run = event.data, event.run
        if not isinstance(data, _TASK) or run is None:
            self.settle()
            return
        name = self._states.application.name
        self._settle_task(task_digest(name, run.pipeline, run.checkpoint, data.task))
        if isinstance(data, FAILED):
            self._settle_group(data.failure.fingerprint)

    def settle(self) -> None:
        """Settle all."""
        for digest in list(self._tasks):
            self._settle_task(digest)
        for fingerprint in list(self._groups):
            self._settle_group(fingerprint)
        states = self._states
        if self._failed:
            failed = states.application.failed + self._failed
            states.application = replace(states.application, failed=failed)
        self._failed, self._run, self._thread = 0, None, None

    def _uses_no_tolerance(self, run: Run) -> bool:
        """Whether a failure of a run uses no tolerance."""
        self._begin_run(run)
        return self._thread is None or not is_bounded(self._thread.policy)

    def _begin_run(self, run: Run) -> None:
        """Set the run of the next events."""
        if run != self._run:
            threads = self._states.threads
            self._run, self._thread = run, threads.get((run.pipeline, run.checkpoint))

    def _is_late(self, run: Run) -> bool:
        return self._thread is not None and run.epoch < self._thread.epoch

    def _group(self, failure: Failure) -> GroupSums | None:
        """Return the sums of a group; None if a failure has other effects on it."""
        sums = self._groups.get(failure.fingerprint)
        if sums is None:
            state = self._states.group(failure)
            if not error_groups.only_counts(state):
                return None
            sums = self._groups[failure.fingerprint] = GroupSums(state)
        return sums

    def _group_of_cause(self, failed: FailedRecords, cause: int) -> GroupSums | None:
        """Return the sums of the group of a cause, as `_group` does."""
        sums = self._groups.get(failed.fingerprints[cause])
        sums = sums or self._group(failed.first(cause).failure)
        if sums is not None:
            kind = failed.kinds[failed.kind[cause]]
            sums.set_source(failed.run.pipeline, kind.exception_class, kind.condition)
        return sums

    def _task(self, run: Run, key: str | None) -> TaskSums:
        """Return the sums of a task, to which an event of the run is added."""
        name = self._states.application.name
        digest = task_digest(name, run.pipeline, run.checkpoint, key)
        sums = self._tasks.get(digest)
        if sums is None:
            before = self._states.tasks.get(digest) or TaskState(id=task_id(name, run, key))
            sums = self._tasks[digest] = TaskSums(before)
        if not self._is_late(run):
            sums.set_run(run.epoch)
        return sums

    def _settle_task(self, digest: str) -> None:
        sums = self._tasks.pop(digest, None)
        if sums is not None:
            state = sums.to_state()
            self._states.tasks[digest] = state
            self._states.changed_keys.tasks[digest] = state.id

    def _settle_group(self, fingerprint: str) -> None:
        sums = self._groups.pop(fingerprint, None)
        if sums is not None:
            self._states.groups[fingerprint] = sums.to_state()
            self._states.changed_keys.groups.add(fingerprint)
