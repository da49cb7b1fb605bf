"""Everything that can have happened, one frozen class each, and the envelope they travel in.

What is released stays readable: a class is never renamed, a field never removed, a new field
has a default, and another meaning is another event. `docs/events.md` has a heading for each.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, get_args
from uuid import UUID

import msgspec

#: Fits PostgreSQL's bigint and Spark's long.
Position = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: Always aware; we write UTC.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Response(StrEnum):
    """What was decided about a failed record (KIP-210, KIP-990)."""

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    FAIL = "FAIL"


class ResumeHow(StrEnum):
    """From where a task goes on."""

    #: The failed record is tried again.
    RETRY = "RETRY"
    #: The failed record becomes a dead letter; the one after it is next.
    SKIP = "SKIP"
    #: A new instance starts paused tasks again at the failed record (KIP-990).
    RESTART = "RESTART"


class CommandKind(StrEnum):
    """What an operator may wish for."""

    RESUME_TASK = "RESUME_TASK"
    SKIP_RECORD = "SKIP_RECORD"
    SHUT_DOWN_APPLICATION = "SHUT_DOWN_APPLICATION"
    START_APPLICATION = "START_APPLICATION"


class Data(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    # Nothing that travels holds itself: the collector would look at each of thousands in vain.
    gc=False,
):
    """Base of what travels. A field we do not know is an error: better kept aside than lost."""


class Run(Data, frozen=True, kw_only=True):
    """One run of a pipeline: who says it, for the rule that an older run changes no state."""

    pipeline: str
    checkpoint: str
    epoch: Count


class Failure(Data, frozen=True, kw_only=True):
    """Why an operation failed: what people read first, and what groups are made of."""

    #: `deserialize`, `process:<name>`, `produce` or `source`, with the step's name.
    stage: str
    exception_class: str
    #: Spark's error condition, where there is one.
    condition: str | None = None
    message: str
    fingerprint: str
    #: The top frame in the user's code, `file.py:12 in function`.
    frame: str | None = None
    attempts: Count = 1


class Body(Data, frozen=True, kw_only=True):
    """The bulky part of an event: kept apart, erasable, never read by the fold."""

    #: The source row, JSON-able, without the redacted fields.
    record: dict[str, Any] | None = None
    #: Names and paths that were dropped on the agent.
    redacted: tuple[str, ...] = ()
    #: Size in bytes of the record before it was cut; None when it is whole.
    cut_from: int | None = None
    #: The Python (and JVM) trace as text.
    stack: str | None = None


# ── instances ────────────────────────────────────────────────────────────────────────────────


class InstanceStarted(Data, frozen=True, kw_only=True, tag=True):
    """A driver process has made an agent."""

    host: str
    pid: int
    #: Names and versions, for people: agent, python, spark.
    versions: dict[str, str] = {}


class InstanceStopping(Data, frozen=True, kw_only=True, tag=True):
    """The instance begins to end: on purpose, or because of an error."""

    reason: str
    error: bool = False


class InstanceStopped(Data, frozen=True, kw_only=True, tag=True):
    """The instance has ended; nothing of it runs any more."""

    reason: str
    error: bool = False
    failure: Failure | None = None


class InstanceLost(Data, frozen=True, kw_only=True, tag=True):
    """The server has not heard the instance for the agreed time; its last state is kept.

    `last_heard` is a bound: it has not been heard since then at least.
    """

    last_heard: Moment


class InstanceFound(Data, frozen=True, kw_only=True, tag=True):
    """A lost instance is heard again."""


# ── threads ──────────────────────────────────────────────────────────────────────────────────


class ThreadStarted(Data, frozen=True, kw_only=True, tag=True):
    """A run of a pipeline has claimed its epoch and begins."""


class ThreadDied(Data, frozen=True, kw_only=True, tag=True):
    """A run of a pipeline has ended, for whatever reason."""

    reason: str
    failure: Failure | None = None
    #: A newer run owns the checkpoint.
    superseded: bool = False


class ThreadReplaced(Data, frozen=True, kw_only=True, tag=True):
    """A run has died of an exception, and a new one will take its place (KIP-671)."""

    reason: str
    #: How long the new one waits, and which replacement of the current window it is.
    wait_ms: Count
    replacement: Count


# ── records ──────────────────────────────────────────────────────────────────────────────────


class RecordFailed(Data, frozen=True, kw_only=True, tag=True):
    """A record's fate was decided by a failure; told in full, with a body."""

    task: str | None
    position: Position | None
    failure: Failure
    response: Response
    #: The record's key, where the pipeline names one.
    key: str | None = None
    #: The same record failed again after a resume or restart: an attempt, not another record.
    recurrence: bool = False
    #: Whether it stands in the agent's log (errors.log.enable).
    logged: bool = False

    @property
    def count(self) -> int:
        """How many failed records this event adds."""
        return 0 if self.recurrence else 1


class FailuresCounted(Data, frozen=True, kw_only=True, tag=True):
    """More records of a task failed the same way; counted, not described."""

    task: str | None
    failure: Failure
    response: Response
    count: Count
    first_position: Position | None
    last_position: Position | None
    #: The split among the groups of one task and stage is an estimate; its sum is exact.
    estimated: bool = False
    #: Whether the agent's log has a line about them (errors.log.enable).
    logged: bool = False


class RetriesCounted(Data, frozen=True, kw_only=True, tag=True):
    """Attempts at records of a task failed and were repeated, and it helped: no record failed."""

    task: str | None
    #: Failed attempts, each followed by another one.
    retries: Count


class RecordsDeadLettered(Data, frozen=True, kw_only=True, tag=True):
    """Skipped records of a task were kept with their errors, at a place."""

    task: str | None
    count: Count
    place: str
    format: str
    first_position: Position | None
    last_position: Position | None
    #: Of the person who skipped the record; None when a handler did.
    actor: str | None = None
    reason: str | None = None


# ── tasks ────────────────────────────────────────────────────────────────────────────────────


class TaskPaused(Data, frozen=True, kw_only=True, tag=True):
    """The task holds at a record; everything before it is processed and written (KIP-990)."""

    task: str | None
    position: Position | None
    failure: Failure | None = None


class RecordsHeld(Data, frozen=True, kw_only=True, tag=True):
    """How many rows the task holds now, after a micro-batch or after a chunk of them has run."""

    task: str | None
    held: Count
    first_position: Position | None = None


class TaskResumed(Data, frozen=True, kw_only=True, tag=True):
    """The task runs again; what it held goes first, in order."""

    task: str | None
    how: ResumeHow
    position: Position | None = None
    actor: str | None = None
    reason: str | None = None


class TaskDied(Data, frozen=True, kw_only=True, tag=True):
    """A failure of this task was answered by FAIL."""

    task: str | None
    position: Position | None
    failure: Failure


class TaskRestarted(Data, frozen=True, kw_only=True, tag=True):
    """A new run took a dead task up again."""

    task: str | None


# ── applications ─────────────────────────────────────────────────────────────────────────────


class ApplicationLatched(Data, frozen=True, kw_only=True, tag=True):
    """The application was shut down and stays so until somebody starts it again."""

    reason: str
    actor: str | None = None


class ApplicationOpened(Data, frozen=True, kw_only=True, tag=True):
    """Instances of the application may run."""

    reason: str | None = None
    actor: str | None = None


# ── commands ─────────────────────────────────────────────────────────────────────────────────


class CommandIssued(Data, frozen=True, kw_only=True, tag=True):
    """A person, or the API in their name, wishes something."""

    command: UUID
    kind: CommandKind
    actor: str
    reason: str | None = None
    #: Of a task command.
    pipeline: str | None = None
    checkpoint: str | None = None
    task: str | None = None
    #: Where a task was held when the command was made: resume means this record, no later one.
    position: Position | None = None
    #: Who has to answer; empty for a task command whose instance is not known.
    instances: tuple[UUID, ...] = ()
    expires_at: Moment


class CommandDelivered(Data, frozen=True, kw_only=True, tag=True):
    """An instance has fetched the command."""

    command: UUID


class CommandApplied(Data, frozen=True, kw_only=True, tag=True):
    """An instance, or the server where there is none, has done what was wished."""

    command: UUID
    detail: str | None = None


class CommandRefused(Data, frozen=True, kw_only=True, tag=True):
    """What was wished is forbidden by the state; nothing was changed."""

    command: UUID
    reason: str


class CommandExpired(Data, frozen=True, kw_only=True, tag=True):
    """Nobody applied the command in time, or who should have is gone."""

    command: UUID
    reason: str
    #: The instance whose part expired; None for the whole command.
    of_instance: UUID | None = None


class CommandCancelled(Data, frozen=True, kw_only=True, tag=True):
    """Somebody, or a stronger command, took the wish back before it was applied."""

    command: UUID
    reason: str
    actor: str | None = None


TaskEvent = (
    RecordFailed
    | FailuresCounted
    | RetriesCounted
    | RecordsDeadLettered
    | TaskPaused
    | RecordsHeld
    | TaskResumed
    | TaskDied
    | TaskRestarted
)
ThreadEvent = ThreadStarted | ThreadDied | ThreadReplaced
InstanceEvent = InstanceStarted | InstanceStopping | InstanceStopped | InstanceLost | InstanceFound
ApplicationEvent = ApplicationLatched | ApplicationOpened
CommandEvent = (
    CommandIssued
    | CommandDelivered
    | CommandApplied
    | CommandRefused
    | CommandExpired
    | CommandCancelled
)
#: What counts failed records.
FAILED = (RecordFailed, FailuresCounted)
EventData = TaskEvent | ThreadEvent | InstanceEvent | ApplicationEvent | CommandEvent
EVENT_TYPES: dict[str, type[EventData]] = {cls.__name__: cls for cls in get_args(EventData)}


class Event(Data, frozen=True, kw_only=True):
    """A fact in its envelope, as an agent or the server says it.

    The application is not in it: the stream that carries the event names it. `instance` is who
    says it, or whom it is about when the server says it; `run` is set on events of a thread and
    of its tasks; `caused_by` is the command that led to it.
    """

    occurred_at: Moment
    data: EventData
    instance: UUID | None = None
    run: Run | None = None
    caused_by: UUID | None = None
    schema_version: int = 1
    body: Body | None = None

    @property
    def type(self) -> str:
        """The name in the catalogue."""
        return type(self.data).__name__


class StoredEvent(Data, frozen=True, kw_only=True):
    """An event with what the store adds: its place in the log, and when it came."""

    application: str
    sequence: int
    received_at: Moment
    batch: UUID
    event: Event
