"""Bulk fold: add events up before they become states, as most events of most logs allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from msgspec.structs import replace

from arrester.controlplane.domain.events import (
    FAILED,
    Event,
    Failure,
    FailuresCounted,
    RecordFailed,
    Run,
    StoredEvent,
    TaskEvent,
)
from arrester.controlplane.domain.identity.names import task_digest
from arrester.controlplane.domain.state import error_groups
from arrester.controlplane.domain.state.counters import CountedEvent, OfGroup, OfTask
from arrester.controlplane.domain.state.keyed_states import KeyedStates
from arrester.controlplane.domain.state.states import GroupState, TaskState, ThreadState, task_id
from arrester.controlplane.domain.state.tolerance_usage import is_bounded
from arrester.controlplane.domain.wire.failure_columns import FailedRecords, StoredFailures, moment
from arrester.controlplane.domain.wire.joined_columns import Joined, joined, lasts

_TASK = get_args(TaskEvent)


class Sums:
    """The sums that events add to the states of a stream.

    Before an event that depends on other states is folded, these are settled.
    """

    def __init__(self, stream: KeyedStates) -> None:
        self._stream = stream
        self._tasks: dict[str, OfTask] = {}
        self._groups: dict[str, OfGroup] = {}
        self._failed = 0
        self._run: Run | None = None
        self._thread: ThreadState | None = None
        #: Columns that differ in nothing that is added, in their order.
        self._alike: list[StoredFailures] = []

    def add(self, data: RecordFailed | FailuresCounted, run: Run, stored: StoredEvent) -> bool:
        """Add an event; return False if it has effects other than a sum."""
        self._add_alike()
        if not self._is_sum(run) or (group := self._group(data.failure)) is None:
            return False
        at, sequence = stored.event.occurred_at, stored.sequence
        self._task(run, data.task).add(
            data, sequence=sequence, occurred_at=at, epoch=run.epoch, late=self._is_late(run)
        )
        group.add(data, sequence=sequence, occurred_at=at, pipeline=run.pipeline)
        self._failed += data.count
        return True

    def count(self, data: CountedEvent, run: Run, stored: StoredEvent) -> None:
        """Add an event of a task that is not a failure."""
        self._of(run)
        self._task(run, data.task).count(
            data,
            sequence=stored.sequence,
            occurred_at=stored.event.occurred_at,
            epoch=run.epoch,
            late=self._is_late(run),
        )

    def add_columns(self, stored: StoredFailures) -> bool:
        """Add failed records; return False if one of them has effects other than a sum."""
        failed = stored.failed
        if self._alike and _added(failed) != _added(self._alike[0].failed):
            self._add_alike()
        if not self._is_sum(failed.run):
            return False
        if not all(map(self._groups.__contains__, failed.fingerprints)) and not all(
            self._has(failed, cause) for cause in range(len(failed.kind))
        ):
            return False
        self._alike.append(stored)
        return True

    def settle_for(self, event: Event) -> None:
        """Settle the states that an event may depend on: of a task's event, the task and its
        group."""
        data, run = event.data, event.run
        if not isinstance(data, _TASK) or run is None:
            self.settle()
            return
        self._add_alike()
        name = self._stream.application.name
        self._settle_task(task_digest(name, run.pipeline, run.checkpoint, data.task))
        if isinstance(data, FAILED):
            self._settle_group(data.failure.fingerprint)

    def settle(self) -> None:
        """Settle all."""
        self._add_alike()
        for digest in list(self._tasks):
            self._settle_task(digest)
        for mark in list(self._groups):
            self._settle_group(mark)
        stream = self._stream
        if self._failed:
            failed = stream.application.failed + self._failed
            stream.application = replace(stream.application, failed=failed)
        self._failed, self._run, self._thread = 0, None, None

    def _is_sum(self, run: Run) -> bool:
        self._of(run)
        return self._thread is None or not is_bounded(self._thread.policy)

    def _of(self, run: Run) -> None:
        """Set the run of the next events; sums of the previous run are settled."""
        if run != self._run:
            self._add_alike()
            threads = self._stream.threads
            self._run, self._thread = run, threads.get((run.pipeline, run.checkpoint))

    def _is_late(self, run: Run) -> bool:
        return self._thread is not None and run.epoch < self._thread.epoch

    def _group(self, failure: Failure) -> OfGroup | None:
        """Return the sums of a group; None if a failure has other effects on it."""
        found = self._groups.get(failure.fingerprint)
        return found or self._begin(self._stream.group(failure))

    def _has(self, failed: FailedRecords, cause: int) -> bool:
        """Whether there are sums of the group of a cause, or can be."""
        mark = failed.fingerprints[cause]
        if mark in self._groups:
            return True
        # Only a new group needs the unpacked values of its first failure.
        known = self._stream.groups.get(mark)
        return self._begin(known or self._stream.group(failed.first(cause).failure)) is not None

    def _begin(self, state: GroupState) -> OfGroup | None:
        if not error_groups.is_plain(state):
            return None
        found = self._groups[state.fingerprint] = OfGroup.of(state)
        return found

    def _task(self, run: Run, key: str | None) -> OfTask:
        stream = self._stream
        name = stream.application.name
        digest = task_digest(name, run.pipeline, run.checkpoint, key)
        found = self._tasks.get(digest)
        if found is None:
            before = stream.tasks.get(digest) or TaskState(id=task_id(name, run, key))
            found = self._tasks[digest] = OfTask.of(before)
        return found

    def _add_alike(self) -> None:
        """Add the collected columns: the counts of each task and of each group."""
        if not self._alike:
            return
        some = Alike(self._alike)
        self._alike = []
        run = some.run
        late = self._is_late(run)
        for key, times in some.times_of_task.items():
            at = some.last_of_task[key]
            self._task(run, key).add(
                some.data(at),
                sequence=some.sequence(at),
                occurred_at=moment(some.latest_of_task[key]),
                epoch=run.epoch,
                late=late,
                times=times,
            )
        for mark, times in some.times_of_mark.items():
            at = some.last_of_mark[mark]
            self._groups[mark].add(
                some.data(at),
                sequence=some.sequence(at),
                occurred_at=moment(some.latest_of_mark[mark]),
                earliest=moment(some.earliest_of_mark[mark]),
                pipeline=run.pipeline,
                times=times,
            )
        for mark, exception_class in some.classes_of_conditions():
            self._groups[mark].came_in(exception_class)
        self._failed += some.adds * len(some.tasks)

    def _settle_task(self, digest: str) -> None:
        found = self._tasks.pop(digest, None)
        if found is not None:
            self._stream.tasks[digest] = found.state_after()
            self._stream.touched.tasks[digest] = found.state.id

    def _settle_group(self, mark: str) -> None:
        found = self._groups.pop(mark, None)
        if found is not None:
            self._stream.groups[mark] = found.state_after()
            self._stream.touched.groups.add(mark)


class Alike(Joined):
    """Joined columns of one kind: the places of their values, and the last event of each task
    or group."""

    def __init__(self, some: Sequence[StoredFailures]) -> None:
        super().__init__(some)
        self.run, self.adds = some[0].failed.run, some[0].failed.adds
        self.tasks = joined(each.failed.tasks for each in some)
        self.marks = joined(each.failed.marks() for each in some)
        moments = joined(each.failed.moments for each in some)
        self.times_of_task, self.times_of_mark = Counter(self.tasks), Counter(self.marks)
        self.last_of_task, self.last_of_mark = self._lasts(self.tasks, self.marks)
        latest_of_task, latest_of_mark, marks = self.last_of_task, self.last_of_mark, self.marks
        ordered = sorted(moments)
        if moments != ordered:
            order = sorted(range(len(moments)), key=moments.__getitem__)
            marks = [self.marks[each] for each in order]
            latest_of_task, latest_of_mark = self._lasts(
                [self.tasks[each] for each in order], marks
            )
        firsts = lasts(marks[::-1], different=len(self.times_of_mark))
        self.latest_of_task = {key: ordered[at] for key, at in latest_of_task.items()}
        self.latest_of_mark = {mark: ordered[at] for mark, at in latest_of_mark.items()}
        self.earliest_of_mark = {mark: ordered[~at] for mark, at in firsts.items()}

    def classes_of_conditions(self) -> set[tuple[str, str]]:
        """Return fingerprints and classes of failures with a condition, which may have several
        classes."""
        found: set[tuple[str, str]] = set()
        for failed in (each.failed for each in self._some):
            classes = {
                number: kind.exception_class
                for number, kind in enumerate(failed.kinds)
                if kind.condition is not None
            }
            if classes:
                causes = zip(failed.fingerprints, failed.kind, strict=True)
                found.update((mark, classes[kind]) for mark, kind in causes if kind in classes)
        return found

    def _lasts(
        self, tasks: list[str | None], marks: list[str]
    ) -> tuple[dict[str | None, int], dict[str, int]]:
        return (
            lasts(tasks, different=len(self.times_of_task)),
            lasts(marks, different=len(self.times_of_mark)),
        )


def _added(failed: FailedRecords) -> tuple[object, ...]:
    """Return the values that are added and that the columns share."""
    return (failed.response, failed.attempts, failed.recurrence, failed.logged)
