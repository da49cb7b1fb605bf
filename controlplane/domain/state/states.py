"""What is true of each thing after its events. Only `evolve` makes these."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from arrester.controlplane.domain.error_policy.tolerance import Tally
from arrester.controlplane.domain.events import (
    CommandKind,
    Failure,
    PipelineDescribed,
    Run,
    StageAnswer,
)
from arrester.controlplane.domain.identity.names import TaskId


class TaskStatus(StrEnum):
    """The states of a task."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DEAD = "DEAD"


class ThreadStatus(StrEnum):
    """The states of a run of a pipeline."""

    RUNNING = "RUNNING"
    DEAD = "DEAD"


class InstanceStatus(StrEnum):
    """The states of a driver process (KIP-671)."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


class ApplicationStatus(StrEnum):
    """Whether instances of the application may run."""

    OPEN = "OPEN"
    LATCHED = "LATCHED"


class CommandStatus(StrEnum):
    """The life of a command; the last four are final."""

    ISSUED = "ISSUED"
    DELIVERED = "DELIVERED"
    APPLIED = "APPLIED"
    REFUSED = "REFUSED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"

    @property
    def final(self) -> bool:
        """Whether nothing can follow."""
        return self not in (CommandStatus.ISSUED, CommandStatus.DELIVERED)


class GroupStatus(StrEnum):
    """What people have made of an error group."""

    UNRESOLVED = "UNRESOLVED"
    RESOLVED = "RESOLVED"
    MUTED = "MUTED"


ENDED = (InstanceStatus.NOT_RUNNING, InstanceStatus.ERROR)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all states: `sequence` is the position in the stream that it is true for.

    A field of a state that a server does not know is passed over. One of what it holds of events
    (`Failure`, `Run`) is not: that row is a BrokenState to servers of before, whose folds of the
    application wait for one that knows it.
    """

    sequence: int = 0


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of KIP-298, per task and for ever."""

    record_failures: int = 0
    records_skipped: int = 0
    total_retries: int = 0
    failures_logged: int = 0
    dlq_records_produced: int = 0
    dlq_produce_failures: int = 0
    last_failure_timestamp: datetime | None = None


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What a task has spent of its tolerance in a run: the server's view of the agent's tally."""

    epoch: int
    tally: Tally


class MostSpent(msgspec.Struct, frozen=True, kw_only=True):
    """What the tasks of a run that have left out most records have spent of their tolerance."""

    #: In the whole run, and by which task.
    total: int = 0
    task: str | None = None
    #: In the newest window that any was left out in, and by which task.
    window_start_ms: int = 0
    in_window: int = 0
    window_task: str | None = None


class TaskState(State, frozen=True, kw_only=True):
    """One partition, or one key, of a pipeline: what is held back, where and why."""

    id: TaskId
    status: TaskStatus = TaskStatus.RUNNING
    since: datetime | None = None
    #: The run that spoke last.
    epoch: int = 0
    #: Where a task that does not run stands: the record that failed.
    position: int | None = None
    failure: Failure | None = None
    #: The sequence of the event that made this status, and of the RecordFailed behind it.
    status_sequence: int = 0
    failure_sequence: int = 0
    held: int = 0
    #: The position of the first of them.
    held_from: int | None = None
    #: Failed records, recurrences not counted.
    failed: int = 0
    counters: Counters = Counters()
    #: None where its run has told of no limit, or nothing was left out yet.
    spent: Spent | None = None


class ThreadState(State, frozen=True, kw_only=True):
    """A pipeline at a checkpoint: its current run."""

    application: str
    pipeline: str
    checkpoint: str
    epoch: int = 0
    status: ThreadStatus = ThreadStatus.RUNNING
    instance: UUID | None = None
    since: datetime | None = None
    reason: str | None = None
    failure: Failure | None = None
    #: What the run does about failures, and when it said so; None: its agent is older than that.
    policy: PipelineDescribed | None = None
    described_at: datetime | None = None
    spent: MostSpent = MostSpent()

    @property
    def stopped(self) -> bool:
        """Whether it has ended and nothing failed: stopped, shut down, or come to its end."""
        return self.status is ThreadStatus.DEAD and self.failure is None


class InstanceState(State, frozen=True, kw_only=True):
    """A driver process. `lost` overlays the status: not heard, and so not known."""

    application: str
    id: UUID
    status: InstanceStatus = InstanceStatus.CREATED
    lost: bool = False
    since: datetime | None = None
    started_at: datetime | None = None
    host: str = ""
    pid: int = 0
    versions: dict[str, str] = {}
    reason: str | None = None
    failure: Failure | None = None

    @property
    def ended(self) -> bool:
        """Whether the process has said its last word."""
        return self.status in ENDED


class ApplicationState(State, frozen=True, kw_only=True):
    """A Spark application by its logical name."""

    name: str
    status: ApplicationStatus = ApplicationStatus.OPEN
    since: datetime | None = None
    reason: str | None = None
    actor: str | None = None
    failed: int = 0
    last_event_at: datetime | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A command's life at one instance."""

    instance: UUID
    status: CommandStatus = CommandStatus.ISSUED
    delivered_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None


class CommandState(State, frozen=True, kw_only=True):
    """A wish and what became of it, in all and at each instance that has to answer."""

    id: UUID
    application: str
    kind: CommandKind
    actor: str
    reason: str | None = None
    #: The task that it is about; None for an application.
    task: TaskId | None = None
    position: int | None = None
    #: Of RESUME_AT: where the task shall go on.
    target: int | None = None
    #: Of SET_POLICY: which stage of which pipeline, and what its failures are to be answered.
    pipeline: str | None = None
    stage: str | None = None
    answer: StageAnswer | None = None
    #: Of a shutdown that a failure asked for.
    error: bool = False
    status: CommandStatus = CommandStatus.ISSUED
    issued_at: datetime
    delivered_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime
    #: Why it was refused, has expired or was cancelled; what an applied one did.
    outcome: str | None = None
    deliveries: tuple[Delivery, ...] = ()


class Mute(msgspec.Struct, frozen=True, kw_only=True):
    """What ends the silence about a group: a time, or so many failed records in one period."""

    until: datetime | None = None
    failures: int | None = None
    period_seconds: int | None = None
    #: The period that failed records are counted in now, and how many there are.
    window_start: datetime | None = None
    window_count: int = 0


class GroupState(State, frozen=True, kw_only=True):
    """Failed records of an application with one cause."""

    application: str
    fingerprint: str
    stage: str
    #: Of the first failure.
    exception_class: str
    condition: str | None = None
    #: The classes beside it that failures with this condition came in, by name; none where there is
    #: no condition. None: they are more than are kept, or it failed before they were.
    other_classes: tuple[str, ...] | None = None
    #: Of the newest example.
    message: str
    frame: str | None = None
    pipeline: str | None = None
    count: int = 0
    #: The part of `count` that was split among groups by estimate.
    estimated: int = 0
    first_seen: datetime | None = None
    last_seen: datetime | None = None
    #: The newest RecordFailed, with a body to look at.
    example_sequence: int = 0
    status: GroupStatus = GroupStatus.UNRESOLVED
    #: When, by which event, by whom (None: by itself) and why it came to this status.
    since: datetime | None = None
    status_sequence: int = 0
    actor: str | None = None
    reason: str | None = None
    mute: Mute | None = None
    #: It failed again after it was resolved, and nobody has said anything about that since.
    recurred: bool = False
    notes: int = 0


AnyState = TaskState | ThreadState | InstanceState | ApplicationState | CommandState | GroupState


def task_id(application: str, run: Run, key: str | None) -> TaskId:
    """Return the identity of a task that a run speaks of."""
    return TaskId(
        application=application, pipeline=run.pipeline, checkpoint=run.checkpoint, key=key
    )
