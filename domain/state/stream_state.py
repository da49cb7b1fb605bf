"""The state of a whole stream (an application), and the fold that all readers of the log share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args
from uuid import UUID

import msgspec
from msgspec.structs import replace

from arrester.domain.events import (
    FAILED,
    ApplicationEvent,
    CommandEvent,
    CommandIssued,
    Event,
    GroupEvent,
    InstanceEvent,
    NoteAdded,
    Run,
    StateReported,
    StoredEvent,
    TaskEvent,
    TaskPaused,
    ThreadEvent,
)
from arrester.domain.identity.names import TaskId, task_digest, task_id
from arrester.domain.state import error_groups
from arrester.domain.state.bulk_fold import BulkFold
from arrester.domain.state.counters import COUNTED
from arrester.domain.state.evolve import (
    At,
    evolve_application,
    evolve_instance,
    evolve_reported,
    evolve_task,
    evolve_thread,
)
from arrester.domain.state.evolve_command import evolve_command, issued
from arrester.domain.state.keyed_states import (
    MAX_HELD,
    KeyedStates,
    PipelineKey,
    StateKeys,
)
from arrester.domain.state.states import (
    ApplicationState,
    InstanceState,
    TaskState,
    TaskStatus,
    ThreadState,
    TimedPause,
)
from arrester.domain.state.tolerance_usage import add_usage
from arrester.domain.wire.failure_columns import (
    Element,
    FailedRecords,
    Stored,
    StoredFailures,
    expand_stored,
    last,
)

_TASK = get_args(TaskEvent)
_THREAD = get_args(ThreadEvent)
_INSTANCE = get_args(InstanceEvent)
_APPLICATION = get_args(ApplicationEvent)
_COMMAND = get_args(CommandEvent)
_GROUP = get_args(GroupEvent | NoteAdded)


def state_keys(application: str, elements: Iterable[Element]) -> StateKeys:
    """Return which states `fold` will use, so that they can be read in one statement."""
    keys = StateKeys()
    #: Tasks of failed records, by their run.
    failed: dict[PipelineKey, set[str | None]] = {}
    for event in elements:
        if isinstance(event, FailedRecords):
            line = (event.run.pipeline, event.run.checkpoint)
            failed.setdefault(line, set()).update(event.tasks)
            keys.groups.update(event.fingerprints)
        else:
            _add_keys(keys, application, event)
    for line, task_keys in failed.items():
        keys.threads.add(line)
        pipeline, checkpoint = line
        for key in task_keys:
            digest = task_digest(application, pipeline, checkpoint, key)
            keys.tasks[digest] = TaskId(
                application=application, pipeline=pipeline, checkpoint=checkpoint, key=key
            )
    return keys


def _add_keys(keys: StateKeys, application: str, event: Event) -> None:
    """Add the states that one event uses."""
    data, run = event.data, event.run
    if run is not None and isinstance(data, _TASK):
        digest = task_digest(application, run.pipeline, run.checkpoint, data.task)
        if digest not in keys.tasks:
            keys.tasks[digest] = task_id(application, run, data.task)
            keys.threads.add((run.pipeline, run.checkpoint))
        if isinstance(data, FAILED):
            keys.groups.add(data.failure.fingerprint)
        if isinstance(data, TaskPaused) and event.caused_by is not None:
            keys.commands.add(event.caused_by)
        return
    if isinstance(data, _INSTANCE) and event.instance is not None:
        keys.instances.add(event.instance)
    if (failure := error_groups.recordless(data)) is not None:
        keys.groups.add(failure.fingerprint)
    if run is not None:
        keys.threads.add((run.pipeline, run.checkpoint))
        if isinstance(data, StateReported):
            keys.reported.add((run.pipeline, run.checkpoint))
            ids = (task_id(application, run, each.task) for each in data.tasks)
            keys.tasks.update((id.digest, id) for id in ids)
    if isinstance(data, _GROUP) and data.fingerprint is not None:
        keys.groups.add(data.fingerprint)
    if isinstance(data, _COMMAND):
        keys.commands.add(data.command)


@dataclass(slots=True)
class StreamState(KeyedStates):
    """All states of one application; `fold` advances them and records what it changed."""

    def fold(self, events: Iterable[Stored]) -> StreamState:
        """Apply `events` in order; states that an event does not concern are unchanged."""
        stored = None
        sums = BulkFold(self)
        for stored in events:
            if isinstance(stored, StoredFailures):
                if not sums.add_columns(stored):
                    for each in expand_stored([stored]):
                        self._fold_next(each, sums)
            else:
                self._fold_next(stored, sums)
        sums.settle()
        if stored is not None:
            self.application = replace(
                self.application, sequence=last(stored), last_event_at=stored.received_at
            )
        return self

    def _fold_next(self, stored: StoredEvent, sums: BulkFold) -> None:
        data, run = stored.event.data, stored.event.run
        if run is not None:
            if isinstance(data, FAILED) and sums.add(data, run, stored):
                return
            if isinstance(data, COUNTED):
                sums.count(data, run, stored)
                return
        sums.settle_for(stored.event)
        self._fold_one(stored)

    def _fold_one(self, stored: StoredEvent) -> None:
        event = stored.event
        data, run = event.data, event.run
        at = At(
            sequence=stored.sequence,
            occurred_at=event.occurred_at,
            instance=event.instance,
            epoch=0 if run is None else run.epoch,
            received_at=stored.received_at,
        )
        if isinstance(data, _TASK) and run is not None:
            self._fold_task(data, run, at, caused_by=event.caused_by)
        elif isinstance(data, StateReported) and run is not None:
            self._fold_report(data, run, at)
        elif isinstance(data, _THREAD) and run is not None:
            line = (run.pipeline, run.checkpoint)
            self.threads[line] = evolve_thread(self._thread(line), data, at)
            self.changed_keys.threads.add(line)
        elif isinstance(data, _INSTANCE) and event.instance is not None:
            self.instances[event.instance] = evolve_instance(
                self._instance(event.instance), data, at
            )
            self.changed_keys.instances.add(event.instance)
        elif isinstance(data, _APPLICATION):
            self.application = evolve_application(self.application, data, at)
        elif isinstance(data, _COMMAND):
            self._fold_command(data, at)
        elif isinstance(data, _GROUP):
            self._fold_group(data, at)
        if (failure := error_groups.recordless(data)) is not None:
            group = self.group(failure)
            self.groups[group.fingerprint] = error_groups.after_end(
                group, failure, at, pipeline=None if run is None else run.pipeline
            )
            self.changed_keys.groups.add(group.fingerprint)

    def _fold_task(
        self, data: TaskEvent, run: Run, at: At, *, caused_by: UUID | None = None
    ) -> None:
        name = self.application.name
        digest = task_digest(name, run.pipeline, run.checkpoint, data.task)
        before = self.tasks.get(digest) or TaskState(id=task_id(name, run, data.task))
        thread = self.threads.get((run.pipeline, run.checkpoint))
        late = thread is not None and at.epoch < thread.epoch
        task = evolve_task(before, data, at, late=late, pause=self._timed_pause(caused_by))
        if isinstance(data, FAILED) and thread is not None:
            task, thread_after = add_usage(task, thread, data, at)
            if thread_after is not thread:
                self.threads[(run.pipeline, run.checkpoint)] = thread_after
                self.changed_keys.threads.add((run.pipeline, run.checkpoint))
        self._put(digest, before, task, at)
        if isinstance(data, FAILED):
            group = self.group(data.failure)
            self.groups[group.fingerprint] = error_groups.after_failure(
                group, data, at, pipeline=run.pipeline
            )
            self.changed_keys.groups.add(group.fingerprint)
            failed = self.application.failed + data.count
            self.application = replace(self.application, failed=failed)

    def _timed_pause(self, command: UUID | None) -> TimedPause | msgspec.UnsetType:
        """Return the pause that a command for a limited duration begins; unset for any other."""
        known = None if command is None else self.commands.get(command)
        if known is None or known.until is msgspec.UNSET:
            return msgspec.UNSET
        return TimedPause(until=known.until, actor=known.actor)

    def _fold_report(self, data: StateReported, run: Run, at: At) -> None:
        """Set the run's tasks as reported; an older run's report is only history."""
        name, line = self.application.name, (run.pipeline, run.checkpoint)
        thread = self.threads.get(line)
        if thread is not None and at.epoch < thread.epoch:
            return
        tasks = {task_id(name, run, each.task): each for each in data.tasks}
        for id, reported in tasks.items():
            before = self.tasks.get(id.digest) or TaskState(id=id)
            self._put(id.digest, before, evolve_reported(before, reported, at), at)
        for digest, state in list(self.tasks.items()):
            stopped = state.status is not TaskStatus.RUNNING or state.held
            covered = (state.id.pipeline, state.id.checkpoint) == line and _in_part(data, digest)
            if covered and stopped and state.id not in tasks:
                self._put(digest, state, evolve_reported(state, None, at), at)

    def _put(self, digest: str, before: TaskState, task: TaskState, at: At) -> None:
        """Set a task's state after an event, and record the change of its held records."""
        self.tasks[digest] = task
        self.changed_keys.tasks[digest] = task.id
        if task.held != before.held:
            minute = at.occurred_at.replace(second=0, microsecond=0)
            key = (minute, task.id.pipeline, task.id.checkpoint)
            change = min(task.held, MAX_HELD) - min(before.held, MAX_HELD)
            so_far, _ = self.held_changes.get(key, (0, 0))
            self.held_changes[key] = (so_far + change, at.sequence)

    def _fold_command(self, data: CommandEvent, at: At) -> None:
        state = self.commands.get(data.command)
        if state is not None:
            self.commands[data.command] = evolve_command(state, data, at)
        elif isinstance(data, CommandIssued):
            self.commands[data.command] = issued(self.application.name, data, at)
        else:
            return  # An answer to a command that this log never had: history, and no more.
        self.changed_keys.commands.add(data.command)

    def _fold_group(self, data: GroupEvent | NoteAdded, at: At) -> None:
        group = None if data.fingerprint is None else self.groups.get(data.fingerprint)
        if group is None:
            return  # Of a task, of a command, or of a group that this log never had.
        if isinstance(data, NoteAdded):
            self.groups[group.fingerprint] = error_groups.after_note(group, at)
        else:
            self.groups[group.fingerprint] = error_groups.after_action(group, data, at)
        self.changed_keys.groups.add(group.fingerprint)

    def _thread(self, line: PipelineKey) -> ThreadState:
        known = self.threads.get(line)
        pipeline, checkpoint = line
        return known or ThreadState(
            application=self.application.name, pipeline=pipeline, checkpoint=checkpoint
        )

    def _instance(self, id: UUID) -> InstanceState:
        known = self.instances.get(id)
        return known or InstanceState(application=self.application.name, id=id)


def _in_part(data: StateReported, digest: str) -> bool:
    above = data.above is None or digest > data.above
    return above and (data.through is None or digest <= data.through)


def empty(application: str) -> StreamState:
    """Return the state of an unknown application."""
    return StreamState(application=ApplicationState(name=application))
