"""Texts of events: a title from the event's name, and a sentence if there are details.

A new event needs nothing here: its title is made from its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from arrester.domain.commands.kinds import KINDS, Subject
from arrester.domain.events import (
    ApplicationShutdownRequested,
    CommandApplied,
    CommandCancelled,
    CommandExpired,
    CommandIssued,
    CommandRefused,
    DeadLettersDiscarded,
    DeadLettersFailed,
    EventData,
    Failure,
    FailuresCounted,
    InstanceStarted,
    InstanceStopped,
    InstanceStopping,
    NoteAdded,
    OutageFound,
    PipelinePaused,
    PipelineResumed,
    PolicyChanged,
    RecordFailed,
    RecordsDeadLettered,
    RecordsHeld,
    RecordsRedriven,
    ResumeHow,
    RetriesCounted,
    StageAnswer,
    StateReported,
    StoredEvent,
    TaskDied,
    TaskDismissed,
    TaskPaused,
    TaskRestarted,
    TaskResumed,
    ThreadDied,
    ThreadReplaced,
    ThreadStarted,
)
from arrester.domain.failure_text import cause
from arrester.domain.failure_text import title as failure_title
from arrester.domain.plural import plural
from arrester.domain.state.states import GroupState, TaskStatus

_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_HOW = {
    ResumeHow.RETRY: "at the failed record",
    ResumeHow.MEND: "at the failed record, which was changed",
    ResumeHow.SKIP: "after skipping the failed record",
    ResumeHow.AT: "at a position",
    ResumeHow.RESTART: "by a new instance, at the failed record",
}


def title(data: EventData) -> str:
    """Return the event's name as words: `Task paused`; a thread is a run of a pipeline."""
    match data:
        case ThreadStarted():
            return "Run started"
        case ThreadDied():
            return "Run ended" if data.failure is None else "Run failed"
        case ThreadReplaced():
            return "Run to be replaced"
    return _CAPITAL.sub(" ", type(data).__name__).capitalize()


def sentence(data: EventData) -> str:
    """Return the details of an event; empty if it has none."""
    match data:
        case ThreadDied() | ApplicationShutdownRequested():
            return data.reason
        case InstanceStarted():
            return f"on {data.host}, pid {data.pid}"
        case InstanceStopping() | InstanceStopped():
            return data.reason
        case ThreadReplaced():
            return f"in {data.wait_ms / 1000:g} s: {data.reason}"
        case PipelinePaused():
            until = "" if data.until is None else f"until {data.until:%Y-%m-%d %H:%M:%S} UTC"
            return f"{until}{_by(data.actor, data.reason)}".strip()
        case PipelineResumed():
            return _by(data.actor, data.reason).strip()
        case PolicyChanged():
            return f"{data.stage} → {_answered(data.answer)}{_by(data.actor, data.reason)}"
        case StateReported():
            return f"corrected to the state of the agent: {_reported(data)}"
        case TaskPaused() | TaskDied() | TaskRestarted() | TaskResumed():
            return _of_task(data)
        case TaskDismissed():
            return _by(data.actor, data.reason).strip()
        case NoteAdded():
            return _by(data.actor, data.text).strip()
        case _:
            return _of_records(data) or _of_command(data)


def _of_records(data: EventData) -> str:
    """Return the details of an event about records; empty for any other event."""
    match data:
        case RecordFailed(failure=failure):
            again = ", the same record again" if data.recurrence else ""
            return f"at {at(data.position)}{again} → {data.response}: {cause(failure)}"
        case FailuresCounted(failure=failure):
            about = "about " if data.estimated else ""
            span = f"{at(data.first_position)} to {at(data.last_position)}"
            # The message of a counted failure is that of another record.
            kind = failure_title(failure)
            return f"{about}{data.count:,} more, {span} → {data.response}: {kind}"
        case RetriesCounted():
            return f"{data.retries:,} successful retries"
        case OutageFound():
            about = "about " if data.estimated else ""
            shares = f"{about}{data.failed:,} of {data.records:,} records"
            return f"{shares} → {data.response}: {cause(data.failure)}"
        case RecordsDeadLettered():
            return f"{data.count:,} to {data.place}{_by(data.actor, data.reason)}"
        case RecordsRedriven() | DeadLettersDiscarded():
            span = f"{at(data.first_position)} to {at(data.last_position)}"
            if data.count == 1:
                return f"1 dead letter at {at(data.first_position)}{_by(data.actor, data.reason)}"
            return f"{data.count:,} dead letters, {span}{_by(data.actor, data.reason)}"
        case DeadLettersFailed():
            return f"{data.failures:,} failed writes to {data.place}, {data.waiting:,} waiting"
        case RecordsHeld():
            return f"{data.held:,} held"
        case _:
            return ""


def _of_task(data: TaskPaused | TaskDied | TaskRestarted | TaskResumed) -> str:
    """Return the details of a change of a task's status."""
    match data:
        case TaskPaused(failure=None):
            where = "" if data.position is None else f" at {at(data.position)}"
            return f"by an operator{where}{_by(data.actor, data.reason)}"
        case TaskPaused(failure=Failure() as failure) | TaskDied(failure=failure):
            return f"at {at(data.position)}: {cause(failure)}"
        case TaskRestarted(actor=str()):
            return f"at {at(data.position)}{_by(data.actor, data.reason)}"
        case TaskResumed(how=ResumeHow.AT):
            skipped = f", {data.skipped:,} skipped" if data.skipped else ""
            return f"at {at(data.position)}{skipped}{_by(data.actor, data.reason)}"
        case TaskResumed():
            return f"{_HOW[data.how]}{_by(data.actor, data.reason)}"
        case _:
            return ""


def _reported(data: StateReported) -> str:
    """Return the number of tasks in a report, by state: `2 PAUSED, 1 DEAD`."""
    counts = Counter(each.status for each in data.tasks if each.status != TaskStatus.RUNNING)
    parts = [f"{count:,} {status}" for status, count in sorted(counts.items())]
    return ", ".join(parts) or "all tasks RUNNING"


def _of_command(data: EventData) -> str:
    """Return the details of an event about a command; empty for any other event."""
    match data:
        case CommandIssued(stage=str()):
            what = f"{data.pipeline}, {data.stage} → {_answered(data.answer)}"
            return f"set policy of {what}{_by(data.actor, data.reason)}"
        case CommandIssued():
            return f"{requested(data)}{_by(data.actor, data.reason)}"
        case CommandApplied():
            return data.detail or ""
        case CommandRefused() | CommandExpired() | CommandCancelled():
            return data.reason
        case _:
            return ""


def requested(command: CommandIssued) -> str:
    """Return what a command requests: `pause task until 2026-11-20 13:00:00 UTC`."""
    kind = command.kind.replace("_", " ").lower()
    if KINDS[command.kind].subject is Subject.PIPELINE:
        return f"{kind} {command.pipeline}"
    if command.redrive is not None:
        changed = " with a patch" if command.redrive.patch else ""
        return f"{kind} {command.redrive.records:,} dead letters of {command.pipeline}{changed}"
    if command.slice is not None:
        return f"{kind}: {command.slice.count:,} of {command.pipeline}"
    if command.until is not None:
        return f"{kind} until {command.until:%Y-%m-%d %H:%M:%S} UTC"
    return f"{kind} by force" if command.force else kind


def _answered(answer: StageAnswer | None) -> str:
    return answer or "as in the code"


def extent(group: GroupState) -> str:
    """Return what failed by one cause: `12 failed records, ended 2 runs`."""
    ended = f"ended {plural(group.ended_runs, 'run')}" if group.ended_runs else ""
    if ended and not group.count:
        return ended
    estimated = f" ({group.estimated:,} estimated)" if group.estimated else ""
    records = f"{plural(group.count, 'failed record')}{estimated}"
    return f"{records}, {ended}" if ended else records


def stale(instances: int, lost: int) -> str:
    """Return why the state may be out of date; empty if any instance has a heartbeat."""
    if not instances:
        return "No live instance"
    return "No heartbeat" if lost == instances else ""


def at(position: int | None) -> str:
    """Return a position for display; NULL if the record has none."""
    return "position NULL" if position is None else f"{position:,}"


def _by(actor: str | None, reason: str | None) -> str:
    by = f" by {actor}" if actor else ""
    return f"{by}: {reason}" if reason else by


def as_json(events: Iterable[StoredEvent]) -> str:
    """Return events as a JSON list in their stored form, without bodies, one field per line."""
    stored_forms = [
        {
            "application": stored.application,
            "sequence": stored.sequence,
            "type": stored.event.type,
            "schema_version": stored.event.schema_version,
            "occurred_at": stored.event.occurred_at,
            "received_at": stored.received_at,
            "instance": stored.event.instance,
            "run": stored.event.run,
            "caused_by": stored.event.caused_by,
            "data": stored.event.data,
        }
        for stored in events
    ]
    return msgspec.json.format(msgspec.json.encode(stored_forms), indent=2).decode()
