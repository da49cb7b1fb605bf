"""All events, one frozen class each, and their envelope.

Released events stay readable: a class is never renamed, a field never removed, a new field has a
default, and another meaning is another event. `docs/reference/events.md` has a heading for each.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

import msgspec

# The common parts of events

#: Fits PostgreSQL's bigint and Spark's long.
Position = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: Always with a time zone; written in UTC.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Response(StrEnum):
    """The response to a failed record (KIP-210, KIP-990)."""

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    FAIL = "FAIL"


class Data(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    # Event objects never contain themselves: the garbage collector need not visit thousands of
    # them.
    gc=False,
):
    """Base of transmitted objects. An unknown field is an error: the event is quarantined
    rather than lost."""


class Run(Data, frozen=True, kw_only=True):
    """One run of a pipeline; an older run changes no state."""

    pipeline: str
    checkpoint: str
    epoch: Count


class Failure(Data, frozen=True, kw_only=True):
    """Why an operation failed: the text for people, and the key of error groups."""

    #: `deserialize`, `process:<name>`, `produce` or `source`, with the step's name; `unknown` if
    #: executors were lost repeatedly and the stage cannot be determined.
    stage: str
    exception_class: str
    #: Spark's error condition, if there is one.
    condition: str | None = None
    message: str
    fingerprint: str
    #: The top frame in the user's code, `file.py:12 in function`.
    frame: str | None = None
    attempts: Count = 1


class Body(Data, frozen=True, kw_only=True):
    """The large part of an event: stored separately, erasable, not used by the fold."""

    #: The source row as JSON, without the redacted fields.
    record: dict[str, Any] | None = None
    #: Names and paths of the fields that the agent redacted.
    redacted: tuple[str, ...] = ()
    #: Size of the record in bytes before it was cut; None if it is whole.
    cut_from: int | None = None
    #: The Python (and JVM) trace as text.
    stack: str | None = None
    #: The body was erased (BodyErased); nothing else is set.
    erased: bool = False


# Failed records


class RecordFailed(Data, frozen=True, kw_only=True, tag=True):
    """The fate of a failed record was decided; reported in full, with a body."""

    task: str | None
    position: Position | None
    failure: Failure
    response: Response
    #: The record's key, if the pipeline names one.
    key: str | None = None
    #: The same record failed again after a resume or restart: an attempt, not another record.
    recurrence: bool = False
    #: Whether the agent has logged it (errors.log.enable).
    logged: bool = False

    @property
    def count(self) -> int:
        """The number of failed records that this event adds."""
        return 0 if self.recurrence else 1


class FailuresCounted(Data, frozen=True, kw_only=True, tag=True):
    """More records of a task failed the same way; counted only."""

    task: str | None
    failure: Failure
    response: Response
    count: Count
    first_position: Position | None
    last_position: Position | None
    #: The split among the groups of one task and stage is an estimate; its sum is exact.
    estimated: bool = False
    #: Whether the agent has logged a line about them (errors.log.enable).
    logged: bool = False


class RetriesCounted(Data, frozen=True, kw_only=True, tag=True):
    """Attempts at records of a task failed and a repetition succeeded: no record failed."""

    task: str | None
    #: Failed attempts, each followed by another one.
    retries: Count


class RecordsDeadLettered(Data, frozen=True, kw_only=True, tag=True):
    """Skipped records of a task were written as dead letters to a destination."""

    task: str | None
    count: Count
    place: str
    format: str
    first_position: Position | None
    last_position: Position | None
    #: The person who skipped the record; None if a handler did.
    actor: str | None = None
    reason: str | None = None
    #: The ids of the first of them at the destination, ordered by position.
    ids: tuple[str, ...] = ()


class DeadLettersFailed(Data, frozen=True, kw_only=True, tag=True):
    """Attempts to write dead letters of a task failed; none of them is lost."""

    task: str | None
    #: Failed attempts, summed over the dead letters.
    failures: Count
    #: Dead letters that wait in the checkpoint to be written later; 0: a further attempt succeeded.
    waiting: int
    place: str
    format: str
    failure: Failure


RecordEvent = (
    RecordFailed | FailuresCounted | RetriesCounted | RecordsDeadLettered | DeadLettersFailed
)
#: The events that count failed records.
FAILED = (RecordFailed, FailuresCounted)


# Tasks


class ResumeHow(StrEnum):
    """Where a task continues."""

    #: The failed record is tried again.
    RETRY = "RETRY"
    #: The failed record becomes a dead letter; the task continues after it.
    SKIP = "SKIP"
    #: A new instance restarts paused tasks at the failed record (KIP-990).
    RESTART = "RESTART"
    #: The task continues at a position; the held records before it become dead letters.
    AT = "AT"


class TaskPaused(Data, frozen=True, kw_only=True, tag=True):
    """The task stopped at a record; everything before it is processed and written (KIP-990)."""

    task: str | None
    position: Position | None
    failure: Failure | None = None
    #: The person who paused it by hand.
    actor: str | None = None
    reason: str | None = None


class RecordsHeld(Data, frozen=True, kw_only=True, tag=True):
    """The number of rows that the task holds, after a micro-batch or after a chunk of them has
    run."""

    task: str | None
    held: Count
    first_position: Position | None = None


class TaskResumed(Data, frozen=True, kw_only=True, tag=True):
    """The task runs again; held records go first, in order."""

    task: str | None
    how: ResumeHow
    position: Position | None = None
    actor: str | None = None
    reason: str | None = None
    #: With AT: the number of held records left out. SKIP leaves out one.
    skipped: Count = 0


class TaskDied(Data, frozen=True, kw_only=True, tag=True):
    """A failure of this task was answered by FAIL."""

    task: str | None
    position: Position | None
    failure: Failure
    #: Its thread continues, and its records are held (errors.failure.scope=task).
    alone: bool = False


class TaskRestarted(Data, frozen=True, kw_only=True, tag=True):
    """A dead task runs again: in a new run, or restarted by an operator."""

    task: str | None
    #: For a task that died alone: where its held records begin.
    position: Position | None = None
    actor: str | None = None
    reason: str | None = None


class TaskReported(Data, frozen=True, kw_only=True):
    """The state of a task that is not RUNNING, or has held rows."""

    task: str | None
    status: Literal["RUNNING", "PAUSED", "DEAD"]
    position: Position | None = None
    failure: Failure | None = None
    held: Count = 0


class StateReported(Data, frozen=True, kw_only=True, tag=True):
    """The state of all tasks of a run, reported because the server's view differed.

    It covers the tasks whose digest is greater than `above` and not greater than `through` (None:
    no bound): those not in `tasks` are RUNNING and hold nothing.
    """

    tasks: tuple[TaskReported, ...] = ()
    above: str | None = None
    through: str | None = None


TaskMove = TaskPaused | RecordsHeld | TaskResumed | TaskDied | TaskRestarted


# Threads, the runs of pipelines

#: The answers that a person may set for all failures of a stage.
StageAnswer = Literal["CONTINUE", "RETRY", "PAUSE", "FAIL"]


class ThreadStarted(Data, frozen=True, kw_only=True, tag=True):
    """A run of a pipeline has claimed its epoch and begins."""


class ThreadDied(Data, frozen=True, kw_only=True, tag=True):
    """A run of a pipeline has ended, for any reason."""

    reason: str
    failure: Failure | None = None
    #: A newer run owns the checkpoint.
    superseded: bool = False


class ThreadReplaced(Data, frozen=True, kw_only=True, tag=True):
    """A run died of an exception and will be replaced (KIP-671)."""

    reason: str
    #: The wait before the replacement, and its number in the current window.
    wait_ms: Count
    replacement: Count


class OutageFound(Data, frozen=True, kw_only=True, tag=True):
    """Too many records of a micro-batch failed alike to be bad records (errors.outage.*)."""

    #: The first of them.
    failure: Failure
    failed: Count
    #: All records of the micro-batch.
    records: Count
    #: PAUSE: each task stops at its first such record. FAIL: the run ends.
    response: Response
    #: `failed` is an estimate from a sample.
    estimated: bool = False


class StageDescribed(Data, frozen=True, kw_only=True):
    """The error policy of one stage of a pipeline."""

    #: `source`, `deserialize`, `process:<name>` or `produce`; `step` is the author's name of it.
    name: str
    step: str | None = None
    #: The class of the step, or of the sink.
    kind: str
    #: CONTINUE, PAUSE or FAIL if it is the same for every failure; None: `handler` is called.
    answer: str | None = None
    #: Where the class of the handler is defined; None: there is none.
    handler: str | None = None
    #: The origin of the policy. `limit`: none, but a tolerance limit is set, so failures are left
    #: out.
    origin: Literal["on_error", "configuration", "limit", "default"]
    #: Answers by the name of a class or condition, which precede the handler's.
    on: dict[str, str] = msgspec.field(default_factory=dict)


class StageCommanded(Data, frozen=True, kw_only=True):
    """A stage whose policy a person has overridden."""

    #: As `StageDescribed.name`; all steps of that name.
    name: str
    answer: StageAnswer
    actor: str | None = None
    reason: str | None = None
    since: Moment


class PipelineDescribed(Data, frozen=True, kw_only=True, tag=True):
    """The error policy of a run, from its author and its configuration."""

    stages: tuple[StageDescribed, ...]
    #: Overrides set by people, which precede it.
    commanded: tuple[StageCommanded, ...] = ()
    #: The sink: `Files`, or where the author's function is defined.
    sink: str
    atomic: bool = False
    #: errors.tolerance.limit and errors.tolerance.rate.*, for each task: None if not set, negative
    #: if unlimited.
    tolerance_limit: Position | None = None
    rate_limit: Position | None = None
    rate_duration: Literal["minute", "hour", "day"] = "minute"
    #: errors.retries.limit, errors.retry.timeout, errors.retries.delay.max.ms; negative: unlimited.
    retries_limit: Position = 0
    retry_timeout_ms: Position = -1
    retry_delay_max_ms: Position = 60_000
    #: errors.failure.scope
    scope: Literal["thread", "task"] = "thread"
    #: errors.outage.*; None: each record is decided individually.
    outage_share: float | None = None
    outage_minimum: Count = 0
    outage_response: Response | None = None
    #: errors.dlq.*; None if skipped records are not kept.
    dead_letter_format: str | None = None
    dead_letter_place: str | None = None
    #: What follows when the run dies: an answer, or where the handler is defined.
    uncaught: str


class PolicyChanged(Data, frozen=True, kw_only=True, tag=True):
    """A person set or removed an override of a stage's policy."""

    stage: str
    #: None: the policy of the author and the configuration.
    answer: StageAnswer | None = None
    actor: str | None = None
    reason: str | None = None


ThreadEvent = (
    ThreadStarted | PipelineDescribed | PolicyChanged | ThreadDied | ThreadReplaced | OutageFound
)


# Instances


class InstanceStarted(Data, frozen=True, kw_only=True, tag=True):
    """A driver process has created an agent."""

    host: str
    pid: int
    #: Names and versions, for people: agent, python, spark.
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    #: The address of the driver's Spark UI; None: it is off.
    spark_ui: str | None = None


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
    """The server has received no heartbeat for the agreed time; the last state is kept.

    `last_heard` is a lower bound of that time.
    """

    last_heard: Moment


class InstanceFound(Data, frozen=True, kw_only=True, tag=True):
    """A lost instance sends heartbeats again."""


InstanceEvent = InstanceStarted | InstanceStopping | InstanceStopped | InstanceLost | InstanceFound


# Applications


class ApplicationLatched(Data, frozen=True, kw_only=True, tag=True):
    """The application was shut down and stays so until it is started again."""

    reason: str
    actor: str | None = None


class ApplicationOpened(Data, frozen=True, kw_only=True, tag=True):
    """Instances of the application may run."""

    reason: str | None = None
    actor: str | None = None


class ApplicationShutdownRequested(Data, frozen=True, kw_only=True, tag=True):
    """A failure of an instance was answered by SHUTDOWN_APPLICATION (KIP-671): all instances
    end."""

    reason: str
    failure: Failure | None = None


ApplicationEvent = ApplicationLatched | ApplicationOpened | ApplicationShutdownRequested


# Commands


class CommandKind(StrEnum):
    """The kinds of commands."""

    RESUME_TASK = "RESUME_TASK"
    SKIP_RECORD = "SKIP_RECORD"
    RESUME_AT = "RESUME_AT"
    PAUSE_TASK = "PAUSE_TASK"
    RESTART_TASK = "RESTART_TASK"
    SET_POLICY = "SET_POLICY"
    SHUT_DOWN_APPLICATION = "SHUT_DOWN_APPLICATION"
    START_APPLICATION = "START_APPLICATION"


class CommandIssued(Data, frozen=True, kw_only=True, tag=True):
    """A command was requested by a person, or in their name over the API."""

    command: UUID
    kind: CommandKind
    actor: str
    reason: str | None = None
    #: For a task command, and for SET_POLICY, which applies on every checkpoint of the pipeline.
    pipeline: str | None = None
    checkpoint: str | None = None
    task: str | None = None
    #: The position at which the task was stopped when the command was made: it applies to this
    #: record only.
    position: Position | None = None
    #: For RESUME_AT: the position at which the task continues.
    target: Position | None = None
    #: For SET_POLICY: the answer to failures of the stage; None: the author's.
    stage: str | None = None
    answer: StageAnswer | None = None
    #: For a shutdown: requested by a failure, and every instance ends in ERROR.
    error: bool = False
    #: The instances that have to answer; empty for a task command whose instance is not known.
    instances: tuple[UUID, ...] = ()
    expires_at: Moment


class CommandDelivered(Data, frozen=True, kw_only=True, tag=True):
    """An instance has fetched the command."""

    command: UUID


class CommandApplied(Data, frozen=True, kw_only=True, tag=True):
    """An instance, or the server if there is none, has applied the command."""

    command: UUID
    detail: str | None = None


class CommandRefused(Data, frozen=True, kw_only=True, tag=True):
    """The state forbids the command; nothing was changed."""

    command: UUID
    reason: str


class CommandExpired(Data, frozen=True, kw_only=True, tag=True):
    """The command was not applied in time, or the instance is gone."""

    command: UUID
    reason: str
    #: The instance whose part expired; None for the whole command.
    of_instance: UUID | None = None


class CommandCancelled(Data, frozen=True, kw_only=True, tag=True):
    """A person, or a stronger command, cancelled the command before it was applied."""

    command: UUID
    reason: str
    actor: str | None = None


CommandEvent = (
    CommandIssued
    | CommandDelivered
    | CommandApplied
    | CommandRefused
    | CommandExpired
    | CommandCancelled
)


# Error groups and notes


class ErrorGroupResolved(Data, frozen=True, kw_only=True, tag=True):
    """A person resolved the group; a later failure reopens it."""

    fingerprint: str
    actor: str
    reason: str | None = None


class ErrorGroupReopened(Data, frozen=True, kw_only=True, tag=True):
    """A person reopened the group."""

    fingerprint: str
    actor: str
    reason: str | None = None


class ErrorGroupMuted(Data, frozen=True, kw_only=True, tag=True):
    """A person muted the group until a time, or until it fails more often."""

    fingerprint: str
    actor: str
    reason: str | None = None
    #: In the server's time.
    until: Moment | None = None
    #: This many failed records within one period end the mute; periods are aligned to the epoch.
    failures: Count | None = None
    period_seconds: Count | None = None


class ErrorGroupUnmuted(Data, frozen=True, kw_only=True, tag=True):
    """The mute ended: by a person, or (without an actor) because it expired."""

    fingerprint: str
    actor: str | None = None
    reason: str | None = None


class NoteAdded(Data, frozen=True, kw_only=True, tag=True):
    """A person added a note to an error group, a task or a command."""

    actor: str
    text: str
    fingerprint: str | None = None
    #: For a task.
    pipeline: str | None = None
    checkpoint: str | None = None
    task: str | None = None
    command: UUID | None = None


GroupEvent = ErrorGroupResolved | ErrorGroupReopened | ErrorGroupMuted | ErrorGroupUnmuted


# The log itself


class BodyErased(Data, frozen=True, kw_only=True, tag=True):
    """The body (record, stack trace) of one event was erased for good."""

    #: The event, in the same log.
    sequence: Count
    actor: str
    reason: str


class QuarantineDismissed(Data, frozen=True, kw_only=True, tag=True):
    """A person dismissed quarantined entries: they will not be requeued."""

    #: The number of entries, or of events of an entry.
    count: Count
    actor: str
    reason: str | None = None
    #: The one entry dismissed; None: all waiting entries, or whole batches.
    entry: str | None = None


class QuarantineRequeued(Data, frozen=True, kw_only=True, tag=True):
    """A person requeued quarantined entries, and they were added to the log."""

    count: Count
    actor: str
    entry: str | None = None


LogEvent = BodyErased | QuarantineDismissed | QuarantineRequeued


# All events

TaskEvent = RecordEvent | TaskMove
EventData = (
    TaskEvent
    | StateReported
    | ThreadEvent
    | InstanceEvent
    | ApplicationEvent
    | CommandEvent
    | GroupEvent
    | NoteAdded
    | LogEvent
)
EVENT_TYPES: dict[str, type[EventData]] = {cls.__name__: cls for cls in get_args(EventData)}


class Event(Data, frozen=True, kw_only=True):
    """A fact in its envelope, emitted by an agent or the server.

    The application is not included: the stream of the event names it. `instance` is the sender, or
    the subject of a server's event; `run` is set on events of a thread and of its tasks;
    `caused_by` is the command that led to it.
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
        """The name of the event type."""
        return type(self.data).__name__


class StoredEvent(Data, frozen=True, kw_only=True):
    """An event with its position in the log and the time of its receipt."""

    application: str
    sequence: int
    received_at: Moment
    batch: UUID
    event: Event
