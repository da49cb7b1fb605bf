"""The causes of alerts, and their limits."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from arrester.controlplane import models


class AlertCause(StrEnum):
    """The causes of alerts."""

    TASKS_PAUSED = "TASKS_PAUSED"
    TASKS_DEAD = "TASKS_DEAD"
    PIPELINE_DEAD = "PIPELINE_DEAD"
    INSTANCE_LOST = "INSTANCE_LOST"
    APPLICATION_SILENT = "APPLICATION_SILENT"
    THREAD_REPLACED = "THREAD_REPLACED"
    ERROR_NEW = "ERROR_NEW"
    ERROR_RECURRED = "ERROR_RECURRED"
    FAILURE_RATE = "FAILURE_RATE"
    TOLERANCE_USED = "TOLERANCE_USED"
    RECORDS_HELD = "RECORDS_HELD"
    COMMAND_EXPIRED = "COMMAND_EXPIRED"
    FAILED_AGAIN = "FAILED_AGAIN"
    SERVER_BEHIND = "SERVER_BEHIND"
    SERVER_STORAGE = "SERVER_STORAGE"
    SERVER_PROCESS = "SERVER_PROCESS"
    QUARANTINE = "QUARANTINE"
    AUDIT_BROKEN = "AUDIT_BROKEN"

    @property
    def critical(self) -> bool:
        """Whether records wait, it is unknown whether they do, or the audit is not whole."""
        return self in _CRITICAL

    @property
    def lasts(self) -> bool:
        """Whether the condition ends by itself, so that its end is news."""
        return self not in _MOMENTS

    @property
    def label(self) -> str:
        """The cause in words, for people."""
        return _LABELS[self]


_CRITICAL = frozenset(
    {
        AlertCause.TASKS_PAUSED,
        AlertCause.TASKS_DEAD,
        AlertCause.PIPELINE_DEAD,
        AlertCause.INSTANCE_LOST,
        AlertCause.APPLICATION_SILENT,
        AlertCause.SERVER_BEHIND,
        AlertCause.SERVER_STORAGE,
        AlertCause.SERVER_PROCESS,
        AlertCause.AUDIT_BROKEN,
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
_LABELS = {
    AlertCause.TASKS_PAUSED: "Tasks PAUSED",
    AlertCause.TASKS_DEAD: "Tasks DEAD",
    AlertCause.PIPELINE_DEAD: "Pipeline DEAD",
    AlertCause.INSTANCE_LOST: "Instance LOST",
    AlertCause.APPLICATION_SILENT: "Application without an instance",
    AlertCause.THREAD_REPLACED: "Threads replaced often",
    AlertCause.ERROR_NEW: "New error",
    AlertCause.ERROR_RECURRED: "Resolved error failed again",
    AlertCause.FAILURE_RATE: "High failure rate",
    AlertCause.TOLERANCE_USED: "Tolerance nearly used",
    AlertCause.RECORDS_HELD: "Records held for long",
    AlertCause.COMMAND_EXPIRED: "Command EXPIRED",
    AlertCause.FAILED_AGAIN: "Task failed again after a command",
    AlertCause.SERVER_BEHIND: "Events not processed",
    AlertCause.SERVER_STORAGE: "Server storage nearly full",
    AlertCause.SERVER_PROCESS: "Server process not running",
    AlertCause.QUARANTINE: "Invalid entries in quarantine",
    AlertCause.AUDIT_BROKEN: "Audit is not whole",
}


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


class AllLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of all applications."""

    default: Limits = Limits()
    by_application: dict[str, Limits] = {}

    def of(self, application: str) -> Limits:
        """Return the limits of an application."""
        return self.by_application.get(application, self.default)


def read_limits() -> AllLimits:
    """Return the stored limits."""
    stored = {
        row.application: Limits(
            failures_per_minute=row.failures_per_minute,
            tolerance_percent=row.tolerance_percent,
            held_minutes=row.held_minutes,
            replaced_per_hour=row.replaced_per_hour,
            silent_hours=row.silent_hours,
        )
        for row in models.AlertLimits.objects.all()
    }
    default = stored.pop("", Limits())
    return AllLimits(default=default, by_application=stored)
