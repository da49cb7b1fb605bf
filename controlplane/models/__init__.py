"""All tables. Django describes them here, makes the migrations, and reads the views."""

from __future__ import annotations

from arrester.controlplane.models.accounts import ApplicationRole, RestToken, SignOnAccount
from arrester.controlplane.models.alerts import (
    Alert,
    AlertChannel,
    AlertLimits,
    AlertMessage,
    AlertRule,
    EventSubscription,
)
from arrester.controlplane.models.counts import (
    FailureTotal,
    HeldChange,
    HeldMinute,
    HourCount,
    HourStage,
    HourTotal,
    MinuteCount,
    MinuteTotal,
)
from arrester.controlplane.models.dead_letters import (
    NO_CAUSE,
    OPEN,
    DeadLetter,
    DeadLetterStatus,
    DeadLetterTotal,
    ShadowDeadLetter,
    ShadowDeadLetterTotal,
)
from arrester.controlplane.models.flow import FlowHour, FlowMinute, FlowTotal
from arrester.controlplane.models.log import (
    Base,
    BaseState,
    Batch,
    BatchSeen,
    Event,
    IdsKept,
    Quarantine,
    Snapshot,
    Stream,
)
from arrester.controlplane.models.owners import OwnerRule, SavedFilter
from arrester.controlplane.models.record_blocks import RecordBlock, RecordGroup, RecordIndex
from arrester.controlplane.models.service import (
    ActRequest,
    AgentCredential,
    AuditCheck,
    AuditEntry,
    LimitReached,
    LogGap,
    RedriveSelection,
    RetentionRefusal,
    Sighting,
)
from arrester.controlplane.models.views import (
    Application,
    Command,
    ErrorGroup,
    Instance,
    ShadowRow,
    Task,
    Thread,
    View,
)

__all__ = [
    "NO_CAUSE", "OPEN", "ActRequest", "AgentCredential", "Alert", "AlertChannel", "AlertLimits",
    "AlertMessage", "AlertRule", "Application", "ApplicationRole", "AuditCheck", "AuditEntry",
    "Base", "BaseState", "Batch", "BatchSeen", "Command", "DeadLetter", "DeadLetterStatus",
    "DeadLetterTotal", "ErrorGroup", "Event", "EventSubscription", "FailureTotal", "FlowHour",
    "FlowMinute", "FlowTotal", "HeldChange", "HeldMinute", "HourCount", "HourStage", "HourTotal",
    "IdsKept",
    "Instance", "LimitReached", "LogGap", "MinuteCount", "MinuteTotal", "OwnerRule", "Quarantine",
    "RecordBlock", "RecordGroup", "RecordIndex", "RedriveSelection", "RestToken",
    "RetentionRefusal", "SavedFilter", "ShadowDeadLetter", "ShadowDeadLetterTotal", "ShadowRow",
    "Sighting", "SignOnAccount", "Snapshot", "Stream", "Task", "Thread", "View",
]  # fmt: skip
