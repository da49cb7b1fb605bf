"""The states of all things. Only the functions of this package change them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

from arrester.domain.error_policy.tolerance import Tally
from arrester.domain.events import (
    CommandKind,
    Failure,
    PipelineDescribed,
    RecordTest,
    Redrive,
    RedriveSlice,
    Rollout,
    StageAnswer,
)
from arrester.domain.identity.fingerprint import fingerprint
from arrester.domain.identity.names import TaskId
from arrester.domain.python_versions import StrEnum

T = TypeVar("T")


def if_set(value: T | msgspec.UnsetType) -> T | None:
    """Return the value of a field that may be unset; None if it is."""
    return None if value is msgspec.UNSET else value


class TaskStatus(StrEnum):
    """The states of a task."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DEAD = "DEAD"
    #: By a person, because no run uses its checkpoint; until an agent reports the task again.
    DISMISSED = "DISMISSED"

    @property
    def stopped(self) -> bool:
        """Whether the task waits for a person or for its next run."""
        return self in (TaskStatus.PAUSED, TaskStatus.DEAD)


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
    """The states of a command; the last four are final."""

    ISSUED = "ISSUED"
    DELIVERED = "DELIVERED"
    APPLIED = "APPLIED"
    REFUSED = "REFUSED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"

    @property
    def final(self) -> bool:
        """Whether no further state can follow."""
        return self not in (CommandStatus.ISSUED, CommandStatus.DELIVERED)


class GroupStatus(StrEnum):
    """The states of an error group."""

    UNRESOLVED = "UNRESOLVED"
    RESOLVED = "RESOLVED"
    MUTED = "MUTED"


ENDED = (InstanceStatus.NOT_RUNNING, InstanceStatus.ERROR)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all states: `sequence` is the log position that it reflects.

    An unknown field of a state is ignored. An unknown field of a contained event part (`Failure`,
    `Run`) is not: older servers raise BrokenState for that row, and their folds of the application
    wait for a newer server.
    """

    sequence: Annotated[int, Meta(description="The log position of this state.")] = 0


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of KIP-298, per task, since creation."""

    record_failures: Annotated[
        int, Meta(description="Failed attempts: a retry, or a record that fails again, counts too.")
    ] = 0
    records_skipped: int = 0
    total_retries: int = 0
    failures_logged: int = 0
    dlq_records_produced: int = 0
    dlq_produce_failures: int = 0
    last_failure_timestamp: datetime | None = None


class ToleranceUsed(msgspec.Struct, frozen=True, kw_only=True):
    """The tolerance that a task has used in a run, as counted from the agent's events."""

    epoch: int
    tally: Tally


class MostToleranceUsed(msgspec.Struct, frozen=True, kw_only=True):
    """The tolerance used by the tasks of a run that have left out most records."""

    total: Annotated[int, Meta(description="Since the start of the run.")] = 0
    task: Annotated[str | None, Meta(description="The task's key.")] = None
    window_start_ms: int = 0
    in_window: Annotated[int, Meta(description="In the newest window with a skipped record.")] = 0
    window_task: str | None = None


class FirstStop(msgspec.Struct, frozen=True, kw_only=True):
    """When a task first stopped at a record that it has retried since."""

    at: datetime
    position: int
    #: How often it has stopped there.
    stops: int = 1


class TimedPause(msgspec.Struct, frozen=True, kw_only=True):
    """A pause by hand that the server ends."""

    until: datetime
    actor: str


class TaskState(State, frozen=True, kw_only=True):
    """One partition, or one key, of a pipeline: its status, its held records and the failure."""

    id: TaskId
    status: TaskStatus = TaskStatus.RUNNING
    since: Annotated[
        datetime | None,
        Meta(description="The last change of the status: of a stopped task, its last attempt."),
    ] = None
    #: The run of the last event.
    epoch: int = 0
    position: Annotated[
        int | None, Meta(description="The position of the record at which the task stopped.")
    ] = None
    failure: Failure | None = None
    #: The log positions of the event that set this status, and of its RecordFailed.
    status_sequence: int = 0
    failure_sequence: int = 0
    held: int = 0
    #: The position of the first of them.
    held_from: int | None = None
    failed: Annotated[int, Meta(description="Failed records, each counted once.")] = 0
    counters: Counters = Counters()
    #: The use of the tolerance; None if its run has no limit, or nothing was left out yet.
    spent: ToleranceUsed | None = None
    #: Set by a retry, until the task has processed its held records or stops at another record.
    #: Unset, it is not stored.
    first_stop: FirstStop | msgspec.UnsetType = msgspec.UNSET
    #: Set while the task is in a pause of limited duration. Unset, it is not stored.
    timed_pause: TimedPause | msgspec.UnsetType = msgspec.UNSET

    @property
    def paused_until(self) -> datetime | None:
        """When the server resumes a task paused for a duration."""
        return None if self.timed_pause is msgspec.UNSET else self.timed_pause.until

    @property
    def first_held(self) -> int | None:
        """The position of the first held record; None: none is held, or it is not known."""
        if not self.held:
            return None
        # A stopped task holds the record at which it stopped, and all that follow.
        return self.position if self.held_from is None and self.status.stopped else self.held_from

    @property
    def first_stopped(self) -> datetime | None:
        """When a PAUSED or DEAD task first stopped at its record."""
        if not self.status.stopped:
            return None
        return self.since if self.first_stop is msgspec.UNSET else self.first_stop.at

    @property
    def stops(self) -> int:
        """How often a PAUSED or DEAD task has stopped at its record: once, and at each retry."""
        if not self.status.stopped:
            return 0
        return 1 if self.first_stop is msgspec.UNSET else self.first_stop.stops

    @property
    def retried(self) -> bool:
        """Whether a PAUSED or DEAD task has stopped at its record more than once."""
        return self.stops > 1


class PipelinePause(msgspec.Struct, frozen=True, kw_only=True):
    """A pause of a pipeline by a person: its runs begin no micro-batch and no held record."""

    since: datetime
    until: Annotated[
        datetime | None, Meta(description="When the agent ends it; null: a person does.")
    ] = None
    actor: Annotated[str | None, Meta(description="Who paused it.")] = None
    reason: str | None = None


class ThreadState(State, frozen=True, kw_only=True):
    """A pipeline on a checkpoint: its current run."""

    application: str
    pipeline: str
    checkpoint: str
    epoch: int = 0
    status: ThreadStatus = ThreadStatus.RUNNING
    instance: UUID | None = None
    since: datetime | None = None
    reason: str | None = None
    failure: Failure | None = None
    #: The error policy of the run, and when it was reported; None if it was not.
    policy: PipelineDescribed | None = None
    described_at: datetime | None = None
    spent: MostToleranceUsed = MostToleranceUsed()
    #: Set while the pipeline is PAUSED, also after the end of the run: the next one starts PAUSED.
    #: Unset, it is not stored.
    pause: PipelinePause | msgspec.UnsetType = msgspec.UNSET
    #: Set for an unguarded query, to which no command comes. Unset, it is not stored.
    observed: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def unguarded(self) -> bool:
        """Whether it is a query that is only observed."""
        return bool(if_set(self.observed))

    @property
    def paused(self) -> PipelinePause | None:
        """The pause of the pipeline; None: it is not PAUSED."""
        return if_set(self.pause)

    @property
    def stopped(self) -> bool:
        """Whether it ended without a failure: stopped, shut down, or finished."""
        return self.status is ThreadStatus.DEAD and self.failure is None


class InstanceState(State, frozen=True, kw_only=True):
    """A driver process. `lost` overlays the status: no heartbeat, so the status is unknown."""

    application: str
    id: UUID
    status: InstanceStatus = InstanceStatus.CREATED
    lost: Annotated[bool, Meta(description="No heartbeat: the status is the last known.")] = False
    since: datetime | None = None
    started_at: datetime | None = None
    host: str = ""
    pid: int = 0
    versions: dict[str, str] = {}
    #: Possibly no web address. Unset, it is not stored: rows from before this field are equal to
    #: what the log gives.
    spark_ui: Annotated[
        str | msgspec.UnsetType,
        Meta(description="The address of the driver's Spark UI, as reported."),
    ] = msgspec.UNSET
    reason: str | None = None
    failure: Failure | None = None
    #: While it is lost: the last known heartbeat. Unset, it is not stored.
    last_heartbeat: datetime | msgspec.UnsetType = msgspec.UNSET

    @property
    def ended(self) -> bool:
        """Whether the process has reported its end."""
        return self.status in ENDED

    @property
    def spark_ui_address(self) -> str | None:
        """The reported address of its Spark UI."""
        return self.spark_ui if isinstance(self.spark_ui, str) else None


class ApplicationState(State, frozen=True, kw_only=True):
    """A Spark application by its logical name."""

    name: str
    status: ApplicationStatus = ApplicationStatus.OPEN
    since: datetime | None = None
    reason: str | None = None
    actor: str | None = None
    failed: Annotated[int, Meta(description="Failed records, exact.")] = 0
    last_event_at: datetime | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a command at one instance."""

    instance: UUID
    status: CommandStatus = CommandStatus.ISSUED
    delivered_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None


class CommandState(State, frozen=True, kw_only=True):
    """A command and its result, in total and at each instance that has to answer."""

    id: UUID
    application: str
    kind: CommandKind
    actor: str
    reason: str | None = None
    #: The task; None for an application.
    task: TaskId | None = None
    position: Annotated[
        int | None, Meta(description="The position at which the task was held.")
    ] = None
    #: The position at which the task continues, if the request names one.
    target: int | None = None
    #: The JSON Patch of the record that stopped a task. Unset, it is not stored.
    patch: str | msgspec.UnsetType = msgspec.UNSET
    #: For a pipeline or its dead letters; a stage of it, and the answer to its failures.
    pipeline: str | None = None
    stage: str | None = None
    answer: StageAnswer | None = None
    #: The end of a pause. Unset, it is not stored.
    until: datetime | msgspec.UnsetType = msgspec.UNSET
    #: For a shutdown requested by a failure.
    error: bool = False
    #: For a shutdown that cancels Spark jobs in progress. Unset, it is not stored.
    force: bool | msgspec.UnsetType = msgspec.UNSET
    status: CommandStatus = CommandStatus.ISSUED
    issued_at: datetime
    delivered_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime
    #: Why it was refused, expired or cancelled; for an applied one, what was done.
    outcome: str | None = None
    #: The result of a test of a record. Unset, it is not stored.
    test: RecordTest | msgspec.UnsetType = msgspec.UNSET
    deliveries: tuple[Delivery, ...] = ()
    #: Of a redrive, and of a command that it issues: the checkpoint. Unset, they are not stored.
    redrive: Redrive | msgspec.UnsetType = msgspec.UNSET
    slice: RedriveSlice | msgspec.UnsetType = msgspec.UNSET
    checkpoint: str | msgspec.UnsetType = msgspec.UNSET
    #: Of a rollout, and the rollout or redrive that issued a command. Unset, they are not stored.
    rollout: Rollout | msgspec.UnsetType = msgspec.UNSET
    part_of: UUID | msgspec.UnsetType = msgspec.UNSET

    @property
    def paused_until(self) -> datetime | None:
        """The end of a pause of a task or pipeline; None: a person ends it."""
        return if_set(self.until)


class Mute(msgspec.Struct, frozen=True, kw_only=True):
    """What ends the mute of a group: a time, or a number of failed records in one period."""

    until: datetime | None = None
    failures: int | None = None
    period_seconds: int | None = None
    #: The current period of the count, and the count.
    window_start: datetime | None = None
    window_count: Annotated[int, Meta(description="Failed records of the current period.")] = 0


class GroupState(State, frozen=True, kw_only=True):
    """Failed records of an application with one cause."""

    application: str
    fingerprint: str
    stage: str
    exception_class: Annotated[str, Meta(description="Of the first failure.")]
    condition: str | None = None
    other_classes: Annotated[
        tuple[str, ...] | None,
        Meta(description="Other exception classes with this condition; null: unknown."),
    ] = None
    message: Annotated[str, Meta(description="Of the newest example.")]
    frame: str | None = None
    #: Unset, they are not stored: rows from before these fields are equal to what the log gives.
    inner_class: str | msgspec.UnsetType = msgspec.UNSET
    inner_condition: str | msgspec.UnsetType = msgspec.UNSET
    field: str | msgspec.UnsetType = msgspec.UNSET
    pipeline: str | None = None
    count: int = 0
    estimated: Annotated[int, Meta(description="The estimated part of `count`.")] = 0
    #: Runs, and drivers without one, that it ended although no record failed. Unset, it is not
    #: stored: rows from before this field are equal to what the log gives.
    ends: int | msgspec.UnsetType = msgspec.UNSET
    first_seen: datetime | None = None
    last_seen: datetime | None = None
    #: The newest RecordFailed with a body.
    example_sequence: int = 0
    #: The newest RecordFailed with lines of source. Unset, it is not stored.
    source_sequence: int | msgspec.UnsetType = msgspec.UNSET
    status: GroupStatus = GroupStatus.UNRESOLVED
    #: When, by which event, by whom and why the status changed.
    since: Annotated[datetime | None, Meta(description="The time of the status.")] = None
    status_sequence: int = 0
    actor: Annotated[str | None, Meta(description="Who set the status; null: the server.")] = None
    reason: str | None = None
    mute: Mute | None = None
    recurred: Annotated[bool, Meta(description="It failed again after it was resolved.")] = False
    notes: int = 0
    #: Unset, it is not stored.
    assignee: Annotated[
        str | msgspec.UnsetType,
        Meta(
            description="The person or team that it is assigned to; null: the owner rules decide."
        ),
    ] = msgspec.UNSET

    @property
    def ended_runs(
        self,
    ) -> Annotated[
        int, Meta(description="Runs and drivers that it ended although no record failed.")
    ]:
        """How many runs, and drivers without one, it ended although no record failed."""
        return if_set(self.ends) or 0

    @property
    def earlier_fingerprint(
        self,
    ) -> Annotated[
        str | None,
        Meta(description="The error group that had these failures before version 2 divided it."),
    ]:
        """The fingerprint of version 1; None: it is the same."""
        if not (self.inner_class or self.field):
            return None
        return fingerprint(
            stage=self.stage,
            exception_class=self.exception_class,
            condition=self.condition,
            frame=self.frame,
            message=self.message,
        )


AnyState = TaskState | ThreadState | InstanceState | ApplicationState | CommandState | GroupState
