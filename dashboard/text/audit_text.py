"""Texts of acts, for an error group's history and for the audit."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from arrester.controlplane import queries
from arrester.dashboard.text import event_text
from arrester.domain.commands.kinds import KINDS, Subject
from arrester.domain.events import (
    CommandIssued,
    ErrorGroupAssigned,
    ErrorGroupMuted,
    ErrorGroupReopened,
    ErrorGroupResolved,
    ErrorGroupUnmuted,
    EventData,
    NoteAdded,
    PolicyChanged,
    QuarantineDismissed,
    QuarantineRequeued,
    StoredEvent,
)
from arrester.domain.identity.names import task_digest, task_id
from arrester.domain.state.error_groups import PERIODS


def row(act: queries.Act) -> dict[str, Any]:
    """Return an act for REST and exports; one on an account has no application and position."""
    common = {"at": act.at, "actor": act.actor, "status": act.status and act.status.value}
    if act.entry is not None:
        return common | {
            "kind": act.entry.act,
            "application": None,
            "about": act.entry.about,
            "what": act.entry.detail,
            "position": None,
            "instance": None,
        }
    assert act.event is not None
    event = act.event.event
    return common | {
        "kind": event.type,
        "application": act.event.application,
        "about": about(act.event),
        "what": details(event.data),
        "position": act.event.sequence,
        "instance": event.instance,
    }


def details(data: EventData) -> str:
    """Return the details of an act, besides its name and its actor."""
    match data:
        case ErrorGroupMuted():
            return "; ".join(filter(None, [_end(data), data.reason]))
        case ErrorGroupResolved() | ErrorGroupReopened() | ErrorGroupUnmuted():
            return data.reason or ""
        case ErrorGroupAssigned():
            to = f"to {data.assignee}" if data.assignee else "left to the owner rules"
            return f"{to}: {data.reason}" if data.reason else to
        case NoteAdded():
            return data.text
        case CommandIssued(stage=str()):
            what = f"set policy of {data.stage} to {data.answer or 'as in the code'}"
            return f"{what}: {data.reason}"
        case QuarantineDismissed() | QuarantineRequeued():
            return _quarantine_act(data)
        case CommandIssued():
            what = event_text.requested(data)
            return f"{what}: {data.reason}" if data.reason else what
        case _:
            return event_text.sentence(data)


def _quarantine_act(data: QuarantineDismissed | QuarantineRequeued) -> str:
    what = "1 item" if data.count == 1 else f"{data.count:,} items"
    entry = f" of entry {data.entry}" if data.entry else ""
    reason = data.reason if isinstance(data, QuarantineDismissed) else None
    return f"{what}{entry}: {reason}" if reason else f"{what}{entry}"


def _end(data: ErrorGroupMuted) -> str:
    ends = []
    if data.until is not None:
        ends.append(f"until {data.until:%Y-%m-%d %H:%M} UTC")
    if data.failures is not None and data.period_seconds is not None:
        period = PERIODS.get(data.period_seconds) or f"{data.period_seconds} s"
        ends.append(f"until {data.failures:,} failed records within one {period}")
    return ", or ".join(ends)


def about(stored: StoredEvent) -> str:
    """Return the subject of an act: a task, an error, a command, or the application."""
    data, run = stored.event.data, stored.event.run
    if isinstance(data, CommandIssued) and data.checkpoint is None:
        if KINDS[data.kind].subject is Subject.INSTANCE:
            return f"instance {data.instances[0]}"
        return data.pipeline or stored.application
    pipeline: str | None = getattr(data, "pipeline", None) or (
        None if run is None else run.pipeline
    )
    if pipeline and not getattr(data, "stage", None):
        key: str | None = getattr(data, "task", None)
        return f"{pipeline}_{key or ''}"
    if pipeline:
        return pipeline
    fingerprint: str | None = getattr(data, "fingerprint", None)
    if fingerprint:
        return f"error {fingerprint}"
    command = getattr(data, "command", None)
    if command is not None and not isinstance(data, CommandIssued):
        return f"command {command}"
    return stored.application


def url(stored: StoredEvent) -> str:
    """Return the page of an act's subject; empty if it has none."""
    data, run = stored.event.data, stored.event.run
    command = getattr(data, "command", None)
    if command is not None:
        return reverse("command", args=[command])
    fingerprint: str | None = getattr(data, "fingerprint", None)
    if fingerprint:
        return f"{reverse('error', args=[stored.application, fingerprint])}?tab=notes"
    if isinstance(data, PolicyChanged):
        return f"{reverse('application', args=[stored.application])}?tab=policy"
    if isinstance(data, QuarantineDismissed | QuarantineRequeued):
        return f"{reverse('quarantine')}?{urlencode({'application': stored.application})}"
    key: str | None = getattr(data, "task", None)
    if run is not None:
        return reverse("task", args=[task_id(stored.application, run, key).digest])
    pipeline, checkpoint = getattr(data, "pipeline", None), getattr(data, "checkpoint", None)
    if pipeline and checkpoint:
        digest = task_digest(stored.application, pipeline, checkpoint, key)
        return reverse("task", args=[digest])
    return reverse("application", args=[stored.application])
