"""The results of queries: frozen objects made of the domain's states and events."""

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
    """Base of all results."""


class Page(Answer, Generic[T], frozen=True, kw_only=True):
    """Some rows, and the opaque cursor of the next ones; None for the last page."""

    rows: tuple[T, ...]
    next: str | None = None
    #: For a page that ends before it is full although more may follow: the time of the last row
    #: searched.
    searched_until: datetime | None = None


class Lag(Answer, frozen=True, kw_only=True):
    """The position of an application's fold, and what waits in Redis."""

    application: str
    #: The position in the log, `flights @ 18,233`.
    sequence: int
    #: How often the Redis stream had to be restarted.
    generation: int
    #: Batches that wait in Redis; None while Redis is unreachable.
    waiting: int | None
    #: The age of the oldest of them; 0 if nothing waits.
    waiting_seconds: float | None
    #: Invalid entries in quarantine.
    quarantined: int
    #: Batches of the last day in quarantine because they are older than the replay horizon.
    too_old: int
    #: From the newest folded batch to the newest waiting one, by Redis's times.
    fold_seconds: float | None = None
    #: Agents were requested to report counts only until the fold has caught up.
    overloaded: bool = False


class Summary(Answer, frozen=True, kw_only=True):
    """An application in one line: its state and counts."""

    state: ApplicationState
    #: Of the tasks of the newest runs; a task without a failure has no row and is RUNNING.
    running: int
    paused: int
    dead: int
    held: int
    #: Live instances, and how many of them are LOST; see `queries.instances`.
    instances: int
    lost: int
    groups: int
    open_commands: int
    last_command: CommandState | None
    lag: Lag


class Pipeline(Answer, frozen=True, kw_only=True):
    """A pipeline on a checkpoint with its tasks, as shown in the grid."""

    thread: ThreadState
    #: DEAD and PAUSED ones first, then by key; at most `limit`.
    tasks: tuple[TaskState, ...]
    #: The number of tasks with a row, by status.
    counts: dict[str, int]
    #: Their held records.
    held: int = 0
    #: Another checkpoint of the same pipeline is live too: probably a mistake.
    twin: bool = False


class ApplicationThen(Answer, frozen=True, kw_only=True):
    """An application at a past position, with its pipelines and live instances."""

    summary: Summary
    pipelines: tuple[Pipeline, ...]
    instances: tuple[InstanceState, ...]


class Gauge(Answer, frozen=True, kw_only=True):
    """The used share of a tolerance limit, for the task that has used most."""

    limit: int
    #: Records that the run has left out, in total or in the current window.
    used: int
    #: None: the whole run.
    window: Window | None = None
    #: The end of the window.
    ends: datetime | None = None
    #: The task of these records; None while nothing is used.
    task: TaskId | None = None

    @property
    def share(self) -> float:
        """The used share of the limit, at most 1."""
        return min(1.0, self.used / self.limit) if self.limit else 1.0


class PipelinePolicy(Answer, frozen=True, kw_only=True):
    """The error policy of a pipeline on a checkpoint, if `thread.policy` is reported."""

    thread: ThreadState
    #: For the run and the window, for each limit that can be reached.
    gauges: tuple[Gauge, ...] = ()
    #: Another checkpoint of the same pipeline is live too: probably a mistake.
    twin: bool = False


class TaskDetail(Answer, frozen=True, kw_only=True):
    """A task with what an operator needs to decide."""

    state: TaskState
    #: Its pipeline's current run; None if none was reported.
    thread: ThreadState | None
    #: The failed record with its body; None if no record is the cause.
    failure: StoredEvent | None
    #: The open command for it.
    open_command: CommandState | None
    #: The newest command for it, open or not.
    last_command: CommandState | None


class GroupDetail(Answer, frozen=True, kw_only=True):
    """An error group with its newest example, and the number of stopped tasks."""

    state: GroupState
    example: StoredEvent | None
    stopped: tuple[TaskState, ...]


class Paused(Answer, frozen=True, kw_only=True):
    """Tasks that may be resumed together, the longest stopped first."""

    tasks: tuple[TaskState, ...]
    #: The number of further ones.
    left: int


class Change(Answer, frozen=True, kw_only=True):
    """An act on an account."""

    id: int
    account: str
    act: str
    detail: str


class Act(Answer, frozen=True, kw_only=True):
    """An act of a person: an event of an application's log, or a change of an account."""

    at: datetime
    actor: str
    event: StoredEvent | None = None
    change: Change | None = None
    #: For an issued command: its current status.
    status: CommandStatus | None = None


class Account(Answer, frozen=True, kw_only=True):
    """An account, active or not."""

    name: str
    groups: tuple[str, ...]
    superuser: bool
    active: bool
    last_login: datetime | None


class Running(Answer, frozen=True, kw_only=True):
    """An instance of any application with its heartbeat; None without one."""

    state: InstanceState
    heard_at: datetime | None = None
    #: How far its clock is ahead of the server's, in seconds.
    skew_seconds: float | None = None
    #: Its unconfirmed events: number, bytes, time of the oldest.
    spooled: int | None = None
    spool_bytes: int | None = None
    spool_since: datetime | None = None
    #: Failed records that it has only counted.
    counted_only: int | None = None


class Affected(Answer, frozen=True, kw_only=True):
    """The tasks with failures of one cause, and their numbers of failures."""

    tasks: tuple[tuple[TaskState, int], ...]
    #: Whether all failures were read, not only the newest.
    complete: bool


class Quarantined(Answer, frozen=True, kw_only=True):
    """An invalid entry of a stream, or an invalid event of a batch."""

    id: int
    application: str
    #: The id of the entry in Redis.
    entry: str
    batch: UUID | None
    #: Of the event in its batch; None for the whole entry.
    index: int | None
    reason: str
    raw: bytes
    received_at: datetime
    #: When it was requeued; None while it waits.
    requeued_at: datetime | None
    #: It is valid, but the log may already contain it: no action is needed.
    too_old: bool
    #: When it was dismissed.
    dismissed_at: datetime | None


class MinuteCount(Answer, frozen=True, kw_only=True):
    """The number of records that failed in one minute."""

    minute: datetime
    count: int


class Neighbours(Answer, frozen=True, kw_only=True):
    """The previous and the next occurrence of the same error, by sequence."""

    older: int | None = None
    newer: int | None = None


class Reach(Answer, frozen=True, kw_only=True):
    """Whether a part of the system answers; if not, since when."""

    up: bool
    #: When it last answered, as far as recorded.
    last_seen: datetime | None = None
    detail: str = ""


class Health(Answer, frozen=True, kw_only=True):
    """The reachable parts, as seen by a web process; never raises."""

    postgres: Reach
    redis: Reach
    wake: Reach
    worker: Reach
    housekeeper: Reach

    @property
    def well(self) -> bool:
        """Whether everything is reachable."""
        parts = (self.postgres, self.redis, self.wake, self.worker, self.housekeeper)
        return all(each.up for each in parts)


class Refusal(Answer, frozen=True, kw_only=True):
    """Why no day of the log is dropped: the log and the views of an application differ."""

    application: str
    since: datetime
    reason: str


class Storage(Answer, frozen=True, kw_only=True):
    """The stored amounts; sizes include indexes."""

    #: Since creation, including dropped ones.
    events: int
    #: Of events with their bodies, and of the event index.
    event_bytes: int
    finding_bytes: int
    view_bytes: int
    #: The first day of the log.
    oldest: datetime | None
    #: How long events are kept.
    retention_days: int
    command_expiry_seconds: int
    #: No day is dropped while there are any.
    refusals: tuple[Refusal, ...] = ()


class Tally(Answer, frozen=True, kw_only=True):
    """Failed records of a time range: of an application, or of one of its error groups."""

    moment: datetime
    application: str
    fingerprint: str | None = None
    count: int


class Cause(Answer, frozen=True, kw_only=True):
    """An error group, and its failed records in the requested time range."""

    group: GroupState
    count: int


class Stop(Answer, frozen=True, kw_only=True):
    """Tasks of a pipeline stopped by one cause, combined if there are more than a few."""

    #: The one stopped for the longest time.
    task: TaskState
    tasks: int
    #: Held records of all of them.
    held: int


class Brief(Answer, frozen=True, kw_only=True):
    """An application in a few numbers, for the checkpoints that pages show."""

    name: str
    paused: int
    dead: int
    held: int
    #: Live instances, and how many of them are LOST; see `queries.instances`.
    instances: int
    lost: int


class Overview(Answer, frozen=True, kw_only=True):
    """The overview: all applications, and what needs attention."""

    applications: tuple[Brief, ...]
    #: Of all applications, including those without any valid entry.
    lags: tuple[Lag, ...]
    #: DEAD, then PAUSED tasks of live checkpoints, the longest stopped first.
    stops: tuple[Stop, ...]
    #: The number of further ones.
    more_stops: int
    #: Pipelines with two live checkpoints.
    twins: tuple[ThreadState, ...]
    #: The number of tasks stopped by muted errors, which are omitted above.
    muted_stops: int
    open_commands: tuple[CommandState, ...]
    failed_last_hour: int
    health: Health
