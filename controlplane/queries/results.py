"""What queries answer: frozen objects made of the domain's states and events, fit for a page."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

from arrester.controlplane.domain.error_policy.tolerance import Window
from arrester.controlplane.domain.events import StoredEvent
from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.state.states import (
    ApplicationState,
    CommandState,
    CommandStatus,
    GroupState,
    InstanceState,
    TaskState,
    ThreadState,
)

T = TypeVar("T")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""


class Page(Answer, Generic[T], frozen=True, kw_only=True):
    """Some rows, and the opaque cursor of the next ones; None when these are the last."""

    rows: tuple[T, ...]
    next: str | None = None
    #: Of a page that ends before it is full though more may follow: so far was looked, by when
    #: what was looked at last occurred.
    searched_until: datetime | None = None


class Lag(Answer, frozen=True, kw_only=True):
    """How far the fold of an application is, and what still waits in Redis."""

    application: str
    #: The position in the log, `flights @ 18,233`.
    sequence: int
    #: How often the stream in Redis had to be begun again.
    generation: int
    #: Batches that wait in Redis; None while Redis is away.
    waiting: int | None
    #: Of the oldest of them; 0 when nothing waits.
    waiting_seconds: float | None
    #: What is kept aside because it was not understood.
    quarantined: int
    #: Batches of the last day that are kept aside because they are older than the replay horizon.
    too_old: int
    #: From the newest batch that is folded to the newest that waits, by when Redis took them.
    fold_seconds: float | None = None
    #: The agents were asked to count instead of to describe until the fold has caught up.
    overloaded: bool = False


class Summary(Answer, frozen=True, kw_only=True):
    """An application in one line: its state and the counts of what it is made of."""

    state: ApplicationState
    #: Among the tasks of the newest runs; a task without a failure has no row and is RUNNING.
    running: int
    paused: int
    dead: int
    held: int
    #: Instances that live, and how many of them are LOST; see `queries.instances`.
    instances: int
    lost: int
    groups: int
    open_commands: int
    last_command: CommandState | None
    lag: Lag


class Pipeline(Answer, frozen=True, kw_only=True):
    """A pipeline at a checkpoint with its tasks: what the grid shows."""

    thread: ThreadState
    #: DEAD and PAUSED ones first, then by key; at most `limit` of them.
    tasks: tuple[TaskState, ...]
    #: How many tasks have a row, by status.
    counts: dict[str, int]
    #: Their held records.
    held: int = 0
    #: Another checkpoint of the same pipeline is alive too: probably a mistake.
    twin: bool = False


class ApplicationThen(Answer, frozen=True, kw_only=True):
    """An application as it was, with its pipelines and the instances that lived."""

    summary: Summary
    pipelines: tuple[Pipeline, ...]
    instances: tuple[InstanceState, ...]


class Gauge(Answer, frozen=True, kw_only=True):
    """How much of a limit of tolerance is spent, by the task that has spent most of it."""

    limit: int
    #: Records that the run has left out, in all or in the window of now.
    used: int
    #: None: the whole run.
    window: Window | None = None
    #: When the window is over.
    ends: datetime | None = None
    #: Whose records they are; None while nothing is spent.
    task: TaskId | None = None

    @property
    def share(self) -> float:
        """The part of the limit that is spent, at most 1."""
        return min(1.0, self.used / self.limit) if self.limit else 1.0


class PipelinePolicy(Answer, frozen=True, kw_only=True):
    """What a pipeline at a checkpoint does about failures, where `thread.policy` tells it."""

    thread: ThreadState
    #: For the run, and for the window, as far as there are limits that can be reached.
    gauges: tuple[Gauge, ...] = ()
    #: Another checkpoint of the same pipeline is alive too: probably a mistake.
    twin: bool = False


class TaskDetail(Answer, frozen=True, kw_only=True):
    """A task with what a person needs in order to decide."""

    state: TaskState
    #: Its pipeline's current run; None when no run of it was ever told of.
    thread: ThreadState | None
    #: The record that failed, with its body; None where no record is to blame.
    failure: StoredEvent | None
    #: The command that is under way for it.
    open_command: CommandState | None
    #: The newest command for it, open or not.
    last_command: CommandState | None


class GroupDetail(Answer, frozen=True, kw_only=True):
    """An error group with its newest example, and the tasks that stand because of it."""

    state: GroupState
    example: StoredEvent | None
    stopped: tuple[TaskState, ...]


class Paused(Answer, frozen=True, kw_only=True):
    """Tasks that may be resumed together, those that have stood longest first."""

    tasks: tuple[TaskState, ...]
    #: How many more there are.
    left: int


class Change(Answer, frozen=True, kw_only=True):
    """What was done with an account."""

    id: int
    account: str
    act: str
    detail: str


class Act(Answer, frozen=True, kw_only=True):
    """What a person did: an event of an application's log, or a change of an account."""

    at: datetime
    actor: str
    event: StoredEvent | None = None
    change: Change | None = None
    #: Of a command that was issued: how it stands now.
    status: CommandStatus | None = None


class Account(Answer, frozen=True, kw_only=True):
    """Somebody who may log in, or might once."""

    name: str
    groups: tuple[str, ...]
    superuser: bool
    active: bool
    last_login: datetime | None


class Running(Answer, frozen=True, kw_only=True):
    """An instance of any application, and what its heartbeat says; None where it has none."""

    state: InstanceState
    heard_at: datetime | None = None
    #: How far its clock is ahead of the server's, in seconds.
    skew_seconds: float | None = None
    #: Events that it has told and the server has not confirmed: number, bytes, the oldest's time.
    spooled: int | None = None
    spool_bytes: int | None = None
    spool_since: datetime | None = None
    #: Failed records that it counted instead of describing them.
    counted_only: int | None = None


class Affected(Answer, frozen=True, kw_only=True):
    """The tasks whose records failed for one cause, and how many of each."""

    tasks: tuple[tuple[TaskState, int], ...]
    #: Whether all failures were looked at, and not only the newest.
    complete: bool


class Quarantined(Answer, frozen=True, kw_only=True):
    """An entry of a stream, or one event of a batch, that was not understood."""

    id: int
    application: str
    #: The id of the entry in Redis.
    entry: str
    batch: UUID | None
    #: Of the event in its batch; None when the whole entry is meant.
    index: int | None
    reason: str
    raw: bytes
    received_at: datetime
    #: When it was put back; None while it waits.
    requeued_at: datetime | None
    #: It was understood, but the log may have it already: it is no trouble.
    too_old: bool
    #: When somebody let go of it.
    dismissed_at: datetime | None


class MinuteCount(Answer, frozen=True, kw_only=True):
    """How many records failed in one minute, by when they did."""

    minute: datetime
    count: int


class Neighbours(Answer, frozen=True, kw_only=True):
    """The occurrences of the same error before and after one, by sequence."""

    older: int | None = None
    newer: int | None = None


class Reach(Answer, frozen=True, kw_only=True):
    """Whether a part of the system answers; when it does not, since when."""

    up: bool
    #: When it last answered, as far as anybody noted it.
    last_seen: datetime | None = None
    detail: str = ""


class Health(Answer, frozen=True, kw_only=True):
    """What answers now. Asked of a web process; never raises."""

    postgres: Reach
    redis: Reach
    wake: Reach
    worker: Reach
    housekeeper: Reach

    @property
    def well(self) -> bool:
        """Whether everything is there."""
        parts = (self.postgres, self.redis, self.wake, self.worker, self.housekeeper)
        return all(each.up for each in parts)


class Refusal(Answer, frozen=True, kw_only=True):
    """Why no day of the log is dropped: an application's log gives other states than were shown."""

    application: str
    since: datetime
    reason: str


class Storage(Answer, frozen=True, kw_only=True):
    """How much is kept; sizes are with indexes."""

    #: Since the beginning, also those that are no longer kept.
    events: int
    #: Of events with their records and traces, and of the rows that they are found by.
    event_bytes: int
    finding_bytes: int
    view_bytes: int
    #: The first day of the log.
    oldest: datetime | None
    #: How long events are kept.
    retention_days: int
    command_expiry_seconds: int
    #: Nothing is dropped while there are any.
    refusals: tuple[Refusal, ...] = ()


class Tally(Answer, frozen=True, kw_only=True):
    """Failed records of a stretch of time: of an application, or of one of its error groups."""

    moment: datetime
    application: str
    fingerprint: str | None = None
    count: int


class Cause(Answer, frozen=True, kw_only=True):
    """An error group, and how many records failed by it in the time that was asked about."""

    group: GroupState
    count: int


class Stop(Answer, frozen=True, kw_only=True):
    """Tasks of a pipeline that stand by one cause, together where there are more than a few."""

    #: The one that has stood longest.
    task: TaskState
    tasks: int
    #: Held records of all of them.
    held: int


class Brief(Answer, frozen=True, kw_only=True):
    """An application in a few numbers, of the checkpoints that pages show."""

    name: str
    paused: int
    dead: int
    held: int
    #: Instances that live, and how many of them are LOST; see `queries.instances`.
    instances: int
    lost: int


class Overview(Answer, frozen=True, kw_only=True):
    """The first page: all applications, and what needs somebody."""

    applications: tuple[Brief, ...]
    #: Of all applications, also of one of which nothing was understood yet.
    lags: tuple[Lag, ...]
    #: DEAD and then PAUSED tasks of live checkpoints, those that have stood longest first.
    stops: tuple[Stop, ...]
    #: How many more there are.
    more_stops: int
    #: Pipelines of which two live checkpoints run.
    twins: tuple[ThreadState, ...]
    #: How many tasks stand by errors that somebody has muted: they are left out above.
    muted_stops: int
    open_commands: tuple[CommandState, ...]
    failed_last_hour: int
    health: Health
