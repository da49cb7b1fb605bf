"""All events, one frozen class each, and their envelope.

Released events stay readable: a class is never renamed, a field never removed, a new field has a
default, and another meaning is another event. `docs/reference/events.md` has a heading for each.
"""

from __future__ import annotations

from typing import get_args
from uuid import UUID

from arrester.domain.events.applications import (
    ApplicationEvent,
    ApplicationLatched,
    ApplicationOpened,
    ApplicationShutdownRequested,
)
from arrester.domain.events.commands import (
    ChosenDeadLetters,
    CommandApplied,
    CommandCancelled,
    CommandDelivered,
    CommandEvent,
    CommandExpired,
    CommandIssued,
    CommandKind,
    CommandRefused,
    RecordTest,
    Redrive,
    RedriveSlice,
    Rollout,
)
from arrester.domain.events.flow import FLOW_COUNTS, BacklogUnit, FlowMeasured
from arrester.domain.events.groups import (
    ErrorGroupAssigned,
    ErrorGroupMuted,
    ErrorGroupReopened,
    ErrorGroupResolved,
    ErrorGroupUnmuted,
    GroupEvent,
    NoteAdded,
)
from arrester.domain.events.instances import (
    InstanceEvent,
    InstanceFound,
    InstanceLost,
    InstanceStarted,
    InstanceStopped,
    InstanceStopping,
)
from arrester.domain.events.log import (
    BodyErased,
    LogEvent,
    QuarantineDismissed,
    QuarantineRequeued,
)
from arrester.domain.events.parts import (
    DRIVER,
    Body,
    Count,
    Data,
    Failure,
    FinalResponse,
    Moment,
    Position,
    Run,
    SourceLines,
)
from arrester.domain.events.records import (
    FAILED,
    DeadLetterColumns,
    DeadLetterIds,
    DeadLettersDiscarded,
    DeadLettersFailed,
    FailuresCounted,
    RecordEvent,
    RecordFailed,
    RecordsDeadLettered,
    RecordsRedriven,
    RetriesCounted,
)
from arrester.domain.events.tasks import (
    RecordsHeld,
    ResumeHow,
    StateReported,
    TaskDied,
    TaskDismissed,
    TaskMove,
    TaskPaused,
    TaskReported,
    TaskRestarted,
    TaskResumed,
)
from arrester.domain.events.threads import (
    OutageFound,
    PipelineDescribed,
    PipelinePaused,
    PipelineResumed,
    PolicyChanged,
    StageAnswer,
    StageCommanded,
    StageDescribed,
    ThreadDied,
    ThreadEvent,
    ThreadReplaced,
    ThreadStarted,
)

__all__ = [
    "DRIVER",
    "EVENT_TYPES",
    "FAILED",
    "FLOW_COUNTS",
    "ApplicationEvent",
    "ApplicationLatched",
    "ApplicationOpened",
    "ApplicationShutdownRequested",
    "BacklogUnit",
    "Body",
    "BodyErased",
    "ChosenDeadLetters",
    "CommandApplied",
    "CommandCancelled",
    "CommandDelivered",
    "CommandEvent",
    "CommandExpired",
    "CommandIssued",
    "CommandKind",
    "CommandRefused",
    "Count",
    "Data",
    "DeadLetterColumns",
    "DeadLetterIds",
    "DeadLettersDiscarded",
    "DeadLettersFailed",
    "ErrorGroupAssigned",
    "ErrorGroupMuted",
    "ErrorGroupReopened",
    "ErrorGroupResolved",
    "ErrorGroupUnmuted",
    "Event",
    "EventData",
    "Failure",
    "FailuresCounted",
    "FinalResponse",
    "FlowMeasured",
    "GroupEvent",
    "InstanceEvent",
    "InstanceFound",
    "InstanceLost",
    "InstanceStarted",
    "InstanceStopped",
    "InstanceStopping",
    "LogEvent",
    "Moment",
    "NoteAdded",
    "OutageFound",
    "PipelineDescribed",
    "PipelinePaused",
    "PipelineResumed",
    "PolicyChanged",
    "Position",
    "QuarantineDismissed",
    "QuarantineRequeued",
    "RecordEvent",
    "RecordFailed",
    "RecordTest",
    "RecordsDeadLettered",
    "RecordsHeld",
    "RecordsRedriven",
    "Redrive",
    "RedriveSlice",
    "ResumeHow",
    "RetriesCounted",
    "Rollout",
    "Run",
    "SourceLines",
    "StageAnswer",
    "StageCommanded",
    "StageDescribed",
    "StateReported",
    "StoredEvent",
    "TaskDied",
    "TaskDismissed",
    "TaskEvent",
    "TaskMove",
    "TaskPaused",
    "TaskReported",
    "TaskRestarted",
    "TaskResumed",
    "ThreadDied",
    "ThreadEvent",
    "ThreadReplaced",
    "ThreadStarted",
]  # fmt: skip


TaskEvent = RecordEvent | TaskMove
EventData = (
    TaskEvent
    | StateReported
    | ThreadEvent
    | FlowMeasured
    | InstanceEvent
    | ApplicationEvent
    | CommandEvent
    | GroupEvent
    | NoteAdded
    | DeadLettersDiscarded
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
    """An event with its log position, `sequence`, and the time of its receipt."""

    application: str
    sequence: int
    received_at: Moment
    batch: UUID
    event: Event
