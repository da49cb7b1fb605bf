"""All tables. Django describes them here, makes the migrations, and reads the views."""

from __future__ import annotations

from controlplane.models.counts import HeldChange, HourCount, HourTotal, MinuteCount, MinuteTotal
from controlplane.models.log import (
    Base,
    BaseState,
    Batch,
    BatchSeen,
    Event,
    IdsKept,
    LogDay,
    Quarantine,
    Snapshot,
    Stream,
)
from controlplane.models.service import AccountChange, RetentionRefusal, Sighting
from controlplane.models.views import (
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
    "AccountChange",
    "Application",
    "Base",
    "BaseState",
    "Batch",
    "BatchSeen",
    "Command",
    "ErrorGroup",
    "Event",
    "HeldChange",
    "HourCount",
    "HourTotal",
    "IdsKept",
    "Instance",
    "LogDay",
    "MinuteCount",
    "MinuteTotal",
    "Quarantine",
    "RetentionRefusal",
    "ShadowRow",
    "Sighting",
    "Snapshot",
    "Stream",
    "Task",
    "Thread",
    "View",
]
