"""The causes of conditions that need a person, and their limits."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from arrester.controlplane import models


class AlertCause(StrEnum):
    """The causes of conditions that need a person, the most urgent first."""

    PIPELINE_DEAD = "PIPELINE_DEAD"
    DRIVER_FAILED = "DRIVER_FAILED"
    TASKS_DEAD = "TASKS_DEAD"
    INSTANCE_LOST = "INSTANCE_LOST"
    APPLICATION_SILENT = "APPLICATION_SILENT"
    TASKS_PAUSED = "TASKS_PAUSED"
    PIPELINE_LATE = "PIPELINE_LATE"
    AUDIT_BROKEN = "AUDIT_BROKEN"
    SERVER_BEHIND = "SERVER_BEHIND"
    SERVER_STORAGE = "SERVER_STORAGE"
    SERVER_PROCESS = "SERVER_PROCESS"
    CONDITIONS_UNKNOWN = "CONDITIONS_UNKNOWN"
    BATCH_LONG = "BATCH_LONG"
    BACKLOG_GROWS = "BACKLOG_GROWS"
    RECORDS_HELD = "RECORDS_HELD"
    HELD_WITHOUT_INSTANCE = "HELD_WITHOUT_INSTANCE"
    FAILED_SHARE = "FAILED_SHARE"
    FAILURE_RATE = "FAILURE_RATE"
    TOLERANCE_USED = "TOLERANCE_USED"
    THREAD_REPLACED = "THREAD_REPLACED"
    TWO_CHECKPOINTS = "TWO_CHECKPOINTS"
    MORE_THAN_LISTED = "MORE_THAN_LISTED"
    COMMANDS_UNANSWERED = "COMMANDS_UNANSWERED"
    PIPELINE_PAUSED = "PIPELINE_PAUSED"
    TASKS_PAUSED_BY_HAND = "TASKS_PAUSED_BY_HAND"
    QUARANTINE = "QUARANTINE"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    LIMIT_REACHED = "LIMIT_REACHED"
    ERROR_NEW = "ERROR_NEW"
    ERROR_RECURRED = "ERROR_RECURRED"
    COMMAND_EXPIRED = "COMMAND_EXPIRED"
    FAILED_AGAIN = "FAILED_AGAIN"

    @property
    def critical(self) -> bool:
        """Whether records wait, it is unknown whether they do, or the audit is not whole."""
        return self in _CRITICAL

    @property
    def urgency(self) -> int:
        """The place among critical causes, the most urgent first; those that are not share one."""
        return [*AlertCause].index(self) if self.critical else len(AlertCause)

    @property
    def lasts(self) -> bool:
        """Whether the condition ends by itself, so that its end is news."""
        return self not in _MOMENTS

    @property
    def alerts(self) -> bool:
        """Whether it is an alert; the others are acts of people, or only shown."""
        return self not in _ONLY_SHOWN

    @property
    def needs_attention(self) -> bool:
        """Whether it is listed as long as it lasts; held records are of a stop that is listed."""
        return self.lasts and self is not AlertCause.RECORDS_HELD

    @property
    def label(self) -> str:
        """The cause in words, for people."""
        return _LABELS[self]

    def counted(self, number: int) -> str:
        """Return a number of alerts with this cause in words; of stopped tasks, that of tasks."""
        one, many = _COUNTED[self]
        return f"{number:,} {one if number == 1 else many}"


_CRITICAL = frozenset(
    {
        AlertCause.PIPELINE_DEAD,
        AlertCause.DRIVER_FAILED,
        AlertCause.TASKS_DEAD,
        AlertCause.INSTANCE_LOST,
        AlertCause.APPLICATION_SILENT,
        AlertCause.TASKS_PAUSED,
        AlertCause.PIPELINE_LATE,
        AlertCause.AUDIT_BROKEN,
        AlertCause.SERVER_BEHIND,
        AlertCause.SERVER_STORAGE,
        AlertCause.SERVER_PROCESS,
        AlertCause.CONDITIONS_UNKNOWN,
    }
)
_MOMENTS = frozenset(
    {
        AlertCause.ERROR_NEW,
        AlertCause.ERROR_RECURRED,
        AlertCause.COMMAND_EXPIRED,
        AlertCause.FAILED_AGAIN,
    }
)
_ONLY_SHOWN = frozenset(
    {
        AlertCause.HELD_WITHOUT_INSTANCE,
        AlertCause.TWO_CHECKPOINTS,
        AlertCause.COMMANDS_UNANSWERED,
        AlertCause.PIPELINE_PAUSED,
        AlertCause.TASKS_PAUSED_BY_HAND,
    }
)
_LABELS = {
    AlertCause.PIPELINE_DEAD: "Pipeline DEAD",
    AlertCause.DRIVER_FAILED: "Driver failed",
    AlertCause.TASKS_DEAD: "Tasks DEAD",
    AlertCause.INSTANCE_LOST: "Instance LOST",
    AlertCause.APPLICATION_SILENT: "Application without an instance",
    AlertCause.TASKS_PAUSED: "Tasks PAUSED",
    AlertCause.PIPELINE_LATE: "Pipeline late",
    AlertCause.BATCH_LONG: "Long micro-batch",
    AlertCause.BACKLOG_GROWS: "Backlog grows",
    AlertCause.AUDIT_BROKEN: "Audit is not whole",
    AlertCause.SERVER_BEHIND: "Events not processed",
    AlertCause.SERVER_STORAGE: "Server storage nearly full",
    AlertCause.SERVER_PROCESS: "Server process not running",
    AlertCause.CONDITIONS_UNKNOWN: "Conditions not checked",
    AlertCause.RECORDS_HELD: "Records held for long",
    AlertCause.HELD_WITHOUT_INSTANCE: "Held records without an instance",
    AlertCause.FAILED_SHARE: "High share of failed records",
    AlertCause.FAILURE_RATE: "High failure rate",
    AlertCause.TOLERANCE_USED: "Tolerance nearly used",
    AlertCause.THREAD_REPLACED: "Threads replaced often",
    AlertCause.TWO_CHECKPOINTS: "Pipeline on two checkpoints",
    AlertCause.MORE_THAN_LISTED: "More than are listed",
    AlertCause.COMMANDS_UNANSWERED: "Commands without an answer",
    AlertCause.PIPELINE_PAUSED: "Pipeline paused by an operator",
    AlertCause.TASKS_PAUSED_BY_HAND: "Tasks paused by an operator",
    AlertCause.QUARANTINE: "Invalid entries in quarantine",
    AlertCause.QUOTA_EXCEEDED: "Quota exceeded",
    AlertCause.LIMIT_REACHED: "Limit reached",
    AlertCause.ERROR_NEW: "New error",
    AlertCause.ERROR_RECURRED: "Resolved error failed again",
    AlertCause.COMMAND_EXPIRED: "Command EXPIRED",
    AlertCause.FAILED_AGAIN: "Task failed again after a command",
}
#: What an alert is about, in the singular and in the plural.
_COUNTED = {
    AlertCause.PIPELINE_DEAD: ("pipeline DEAD", "pipelines DEAD"),
    AlertCause.DRIVER_FAILED: ("failed driver", "failed drivers"),
    AlertCause.TASKS_DEAD: ("task DEAD", "tasks DEAD"),
    AlertCause.INSTANCE_LOST: ("instance LOST", "instances LOST"),
    AlertCause.APPLICATION_SILENT: ("application silent", "applications silent"),
    AlertCause.TASKS_PAUSED: ("task PAUSED", "tasks PAUSED"),
    AlertCause.PIPELINE_LATE: ("late pipeline", "late pipelines"),
    AlertCause.BATCH_LONG: ("long micro-batch", "long micro-batches"),
    AlertCause.BACKLOG_GROWS: ("growing backlog", "growing backlogs"),
    AlertCause.AUDIT_BROKEN: ("audit not whole", "audits not whole"),
    AlertCause.SERVER_BEHIND: ("queue of events", "queues of events"),
    AlertCause.SERVER_STORAGE: ("storage nearly full", "storages nearly full"),
    AlertCause.SERVER_PROCESS: ("server process missing", "server processes missing"),
    AlertCause.CONDITIONS_UNKNOWN: ("unchecked list", "unchecked lists"),
    AlertCause.RECORDS_HELD: ("pipeline holds records for long", "pipelines hold records for long"),
    AlertCause.FAILED_SHARE: ("high share of failed records", "high shares of failed records"),
    AlertCause.FAILURE_RATE: ("high failure rate", "high failure rates"),
    AlertCause.TOLERANCE_USED: ("tolerance nearly used", "tolerances nearly used"),
    AlertCause.THREAD_REPLACED: ("pipeline replaced often", "pipelines replaced often"),
    AlertCause.MORE_THAN_LISTED: ("list that is not complete", "lists that are not complete"),
    AlertCause.QUARANTINE: ("quarantine", "quarantines"),
    AlertCause.QUOTA_EXCEEDED: ("quota exceeded", "quotas exceeded"),
    AlertCause.LIMIT_REACHED: ("limit reached", "limits reached"),
    AlertCause.ERROR_NEW: ("new error", "new errors"),
    AlertCause.ERROR_RECURRED: ("error again", "errors again"),
    AlertCause.COMMAND_EXPIRED: ("command EXPIRED", "commands EXPIRED"),
    AlertCause.FAILED_AGAIN: ("task failed again", "tasks failed again"),
}
#: The causes that rules select.
ALERTS = tuple(each for each in AlertCause if each.alerts)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits above which a condition is an alert; None: it never is."""

    #: Failed records a minute, as the average of five minutes.
    failures_per_minute: int | None = None
    #: The used share of a tolerance limit.
    tolerance_percent: int | None = 80
    #: The time since the first stop of a task with held records.
    held_minutes: int | None = 60
    replaced_per_hour: int | None = 3
    #: The time since the last event of an application without a live instance.
    silent_hours: int | None = None
    #: The time since the last micro-batch of a running pipeline, and that of one in progress.
    no_batch_minutes: int | None = None
    batch_minutes: int | None = None
    #: The time for which the backlog of a source grows.
    backlog_minutes: int | None = 30
    #: The share of failed records in some minutes.
    failed_percent: int | None = None


class AllLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of all applications."""

    default: Limits = Limits()
    by_application: dict[str, Limits] = {}

    def any(self, name: str) -> bool:
        """Whether any application has the limit of this name."""
        every = (self.default, *self.by_application.values())
        return any(getattr(each, name) is not None for each in every)

    def of(self, application: str) -> Limits:
        """Return the limits of an application."""
        return self.by_application.get(application, self.default)


def read_limits() -> AllLimits:
    """Return the stored limits."""
    stored = {
        row.application: Limits(**{name: getattr(row, name) for name in Limits.__struct_fields__})
        for row in models.AlertLimits.objects.all()
    }
    default = stored.pop("", Limits())
    return AllLimits(default=default, by_application=stored)
