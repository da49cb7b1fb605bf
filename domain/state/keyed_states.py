"""The states of a stream (an application) by key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import msgspec

from arrester.domain.events import Failure
from arrester.domain.identity.names import TaskId
from arrester.domain.state.states import (
    AnyState,
    ApplicationState,
    CommandState,
    GroupState,
    InstanceState,
    TaskState,
    ThreadState,
)

#: A pipeline on a checkpoint.
PipelineKey = tuple[str, str]
#: A minute or an hour, and a pipeline on a checkpoint.
HeldKey = tuple[datetime, str, str]
#: The limit of one task's held records, so that sums fit any column.
MAX_HELD = 2**40


@dataclass(slots=True)
class StateKeys:
    """The states that a list of events may read or change, by key."""

    tasks: dict[str, TaskId] = field(default_factory=dict)
    threads: set[PipelineKey] = field(default_factory=set)
    instances: set[UUID] = field(default_factory=set)
    commands: set[UUID] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    #: For these pipelines all tasks that are not RUNNING, or hold rows: a report covers them.
    reported: set[PipelineKey] = field(default_factory=set)


@dataclass(slots=True)
class KeyedStates:
    """All states of one application, by key, and which of them a fold has changed."""

    application: ApplicationState
    tasks: dict[str, TaskState] = field(default_factory=dict)
    threads: dict[PipelineKey, ThreadState] = field(default_factory=dict)
    instances: dict[UUID, InstanceState] = field(default_factory=dict)
    commands: dict[UUID, CommandState] = field(default_factory=dict)
    groups: dict[str, GroupState] = field(default_factory=dict)
    changed_keys: StateKeys = field(default_factory=StateKeys)
    #: The changes of held records, by minute, and the sequence of the last one.
    held_changes: dict[HeldKey, tuple[int, int]] = field(default_factory=dict, compare=False)

    def put(self, state: AnyState) -> None:
        """Store a state under its key."""
        match state:
            case ApplicationState():
                self.application = state
            case TaskState():
                self.tasks[state.id.digest] = state
            case ThreadState():
                self.threads[(state.pipeline, state.checkpoint)] = state
            case InstanceState():
                self.instances[state.id] = state
            case CommandState():
                self.commands[state.id] = state
            case GroupState():
                self.groups[state.fingerprint] = state

    def states(self) -> Iterator[AnyState]:
        """Return every state; the application's only if it has any event."""
        if self.application.sequence:
            yield self.application
        for states in (self.tasks, self.threads, self.instances, self.commands, self.groups):
            yield from states.values()

    def group(self, failure: Failure) -> GroupState:
        """Return the error group of a failure, which may be new."""
        known = self.groups.get(failure.fingerprint)
        return known or GroupState(
            application=self.application.name,
            fingerprint=failure.fingerprint,
            stage=failure.stage,
            exception_class=failure.exception_class,
            condition=failure.condition,
            other_classes=(),
            message=failure.message,
            frame=failure.frame,
            inner_class=failure.inner_class or msgspec.UNSET,
            inner_condition=failure.inner_condition or msgspec.UNSET,
            field=failure.field or msgspec.UNSET,
        )
