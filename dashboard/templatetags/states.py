"""The display of states: colour, icon and text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django import template
from django.conf import settings
from django.template import Context
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from arrester.controlplane.access import Person
from arrester.controlplane.queries import (
    Checkpoints,
    DeadLetter,
    DeadLetterTotal,
    Owners,
    RecordOutcome,
    Summary,
    pipeline_key,
)
from arrester.dashboard.components import attention
from arrester.dashboard.text import event_text
from arrester.domain.commands.kinds import KINDS
from arrester.domain.events import CommandKind
from arrester.domain.state.live_runs import RunStatus
from arrester.domain.state.states import (
    GroupState,
    InstanceState,
    TaskState,
    TaskStatus,
    ThreadState,
    ThreadStatus,
)

register = template.Library()

#: Drawn on 16 by 16; filled with the colour of the text around them.
ICONS = {
    "play": "M5 3.2v9.6c0 .4.4.6.7.4l7.4-4.8a.5.5 0 0 0 0-.8L5.7 2.8a.5.5 0 0 0-.7.4z",
    "pause": "M4.5 3h2.3v10H4.5zM9.2 3h2.3v10H9.2z",
    "cross": "M4.2 2.8 8 6.6l3.8-3.8 1.4 1.4L9.4 8l3.8 3.8-1.4 1.4L8 9.4l-3.8 3.8"
    "-1.4-1.4L6.6 8 2.8 4.2z",
    "check": "M6.3 12.6 2.2 8.5l1.5-1.5 2.6 2.6 6-6 1.5 1.5z",
    "clock": "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zm0 1.7a4.8 4.8 0 1 1 0 9.6"
    " 4.8 4.8 0 0 1 0-9.6zm-.8 1.8v3.4l2.7 1.7.8-1.3-2-1.2V5z",
    "lock": "M5 7V5.2a3 3 0 0 1 6 0V7h1v6.5H4V7zm1.6 0h2.8V5.2a1.4 1.4 0 0 0-2.8 0z",
    "question": "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM7.2 10.5h1.6v1.6H7.2z"
    "m-1.9-4C5.4 5 6.5 4 8 4s2.7 1 2.7 2.4c0 1.7-1.8 1.9-1.9 3.1H7.2"
    "c0-2 1.9-2 1.9-3 0-.6-.4-1-1.1-1s-1.1.4-1.2 1z",
    "search": "M7 1.8a5.2 5.2 0 1 0 3.2 9.3l3.4 3.4 1-1-3.4-3.4A5.2 5.2 0 0 0 7 1.8zm0 1.5"
    "a3.7 3.7 0 1 1 0 7.4 3.7 3.7 0 0 1 0-7.4z",
    "stop": "M3.5 3.5h9v9h-9z",
    "arrow": "M8.3 2.7 13.6 8l-5.3 5.3-1.3-1.3 3.1-3.1H2.5V7.1h7.6L7 4z",
    "warning": "M8 1.6 15 14H1zM7.2 6v4h1.6V6zm0 5v1.5h1.6V11z",
    "sun": "M8 4.6a3.4 3.4 0 1 0 0 6.8 3.4 3.4 0 0 0 0-6.8zM7.3 1h1.4v2H7.3zm0 12h1.4v2H7.3z"
    "M1 7.3h2v1.4H1zm12 0h2v1.4h-2zM2.6 3.6l1-1L5 4 4 5zm8.4 8.4 1-1 1.4 1.4-1 1zM12 5l-1-1"
    " 1.4-1.4 1 1zM4 11l1 1-1.4 1.4-1-1z",
    "moon": "M6.2 1.7a6.5 6.5 0 1 0 8.1 8.1A5.4 5.4 0 0 1 6.2 1.7z",
    "again": "M8 2.2a5.8 5.8 0 1 0 5.8 5.8h-1.7A4.1 4.1 0 1 1 8 3.9V6.2l4-3.1L8 0z",
    "person": "M8 1.8a3.1 3.1 0 1 0 0 6.2 3.1 3.1 0 0 0 0-6.2z"
    "M2.2 14.2c0-3 2.4-4.9 5.8-4.9s5.8 1.9 5.8 4.9z",
    "bell": "M8 1.3a4.3 4.3 0 0 0-4.3 4.3v3.1L2.3 11v.9h11.4V11l-1.4-2.3V5.6A4.3 4.3 0 0 0 8 1.3z"
    "m-1.7 11.6a1.7 1.7 0 0 0 3.4 0z",
    "mute": "M2.4 1.2 1.2 2.4l2.7 2.7-.2.5v3.1L2.3 11v.9h8.4l2.9 2.9 1.2-1.2z"
    "M6.3 12.9a1.7 1.7 0 0 0 3.4 0zM12.3 9.2V5.6a4.3 4.3 0 0 0-6.6-3.6z",
    "stack": "M8 1.8 14.5 5 8 8.2 1.5 5zM1.5 8 8 11.2 14.5 8v1.9L8 13.1 1.5 9.9z",
    "down": "M3.4 5.6 8 10.2l4.6-4.6 1.2 1.2L8 12.6 2.2 6.8z",
    "keys": "M1.5 3.5h13v9h-13zM3 5v6h10V5zm1 1h1.4v1.4H4zm2.3 0h1.4v1.4H6.3zm2.3 0H10v1.4H8.6z"
    "m2.4 0h1.4v1.4H11zM5 8.6h6V10H5z",
    "half": "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zm0 1.6v9.8a4.9 4.9 0 0 1 0-9.8z",
}


class Look(NamedTuple):
    """The display of a state: the class of its colour, its icon, and its text if it differs."""

    colour: str
    icon: str
    word: str = ""


LOOKS = {
    "RUNNING": Look("is-running", "play"),
    "PAUSED": Look("is-paused", "pause"),
    "DEAD": Look("is-dead", "cross"),
    "DISMISSED": Look("is-quiet", "stop"),
    "CREATED": Look("is-open", "clock"),
    "PENDING_SHUTDOWN": Look("is-open", "clock", "PENDING SHUTDOWN"),
    "PENDING_ERROR": Look("is-dead", "clock", "PENDING ERROR"),
    "NOT_RUNNING": Look("is-quiet", "stop", "NOT RUNNING"),
    "ERROR": Look("is-dead", "cross"),
    "LOST": Look("is-lost", "question"),
    "OPEN": Look("is-running", "check"),
    "LATCHED": Look("is-quiet", "lock"),
    "ISSUED": Look("is-open", "clock"),
    "DELIVERED": Look("is-open", "arrow"),
    "APPLIED": Look("is-running", "check"),
    "REFUSED": Look("is-dead", "cross"),
    "EXPIRED": Look("is-quiet", "clock"),
    "CANCELLED": Look("is-quiet", "stop"),
    "UNRESOLVED": Look("is-dead", "warning"),
    "RESOLVED": Look("is-running", "check"),
    "MUTED": Look("is-quiet", "mute"),
    "LATE": Look("is-dead", "clock"),
    "CRITICAL": Look("is-dead", "bell"),
    "WARNING": Look("is-lost", "bell"),
    "PENDING": Look("is-open", "clock"),
    "SENT": Look("is-running", "check"),
    "FAILED": Look("is-dead", "cross"),
    "QUARANTINED": Look("is-lost", "warning"),
    "STOPPED": Look("is-quiet", "stop"),
    "NO_RUN": Look("is-quiet", "stop", "NO RUN"),
    "NOBODY": Look("is-lost", "stop", "NO LIVE INSTANCE"),
    "TWO_CHECKPOINTS": Look("is-lost", "warning", "TWO CHECKPOINTS"),
    "CONTINUE": Look("is-open", "arrow"),
    "PAUSE": Look("is-paused", "pause"),
    "FAIL": Look("is-dead", "cross"),
    "RETRY": Look("is-open", "again"),
    "AS_IN_THE_CODE": Look("is-quiet", "check", "AS IN THE CODE"),
    "HANDLER": Look("is-quiet", "question"),
    "STOPS_TASK": Look("is-paused", "pause", "STOPS TASK"),
    "HELD": Look("is-paused", "stack"),
    "DEAD_LETTER": Look("is-lost", "warning", "DEAD LETTER"),
    "REDRIVEN": Look("is-open", "again"),
    "PROCESSED": Look("is-running", "check"),
    "DISCARDED": Look("is-quiet", "stop"),
    "SKIPPED": Look("is-lost", "arrow"),
    "UNKNOWN": Look("is-quiet", "question"),
}
#: What became of a failed record.
_OUTCOMES = {
    RecordOutcome.STOPS_TASK: "Its task is stopped at this record.",
    RecordOutcome.HELD: "Its task holds it.",
    RecordOutcome.DEAD_LETTER: "It waits as a dead letter.",
    RecordOutcome.REDRIVEN: "Its dead letter was redriven and is not processed yet.",
    RecordOutcome.PROCESSED: "It was processed after its failure.",
    RecordOutcome.DISCARDED: "Its dead letter was discarded.",
    RecordOutcome.SKIPPED: "It was left out, without a dead letter: only this log has it.",
    RecordOutcome.UNKNOWN: "The log does not have what followed.",
}


@register.filter
def outcome_text(outcome: RecordOutcome) -> str:
    """Return what became of a failed record as a sentence."""
    return _OUTCOMES[outcome]


@register.filter
def of_application(needing: attention.Attention, name: str) -> attention.Attention:
    """Return what needs attention of an application."""
    return needing.of(name)


@register.simple_tag
def icon(name: str, size: int = 14) -> SafeString:
    """Draw an icon; the text beside it means the same."""
    return format_html(
        '<svg width="{0}" height="{0}" viewBox="0 0 16 16" fill="currentColor" aria-hidden="true">'
        '<path fill-rule="evenodd" d="{1}"/></svg>',
        size,
        ICONS[name],
    )


@register.simple_tag
def state(status: str, stale: str = "", of: str = "") -> SafeString:
    """Show a state as colour, icon and text; without colour if all is well or if it is `stale`
    the last known one.

    `of` names the thing, where a page shows the states of several things together.
    """
    look = LOOKS[str(status)]
    word = f"{of} {look.word or status}".strip()
    badge = "is-quiet" if stale and look.colour == "is-running" else look.colour
    return format_html('<span class="state {}">{}{}</span>', badge, icon(look.icon), word)


@register.simple_tag
def task_state(task: TaskState, no_run_since: datetime | None = None) -> SafeString:
    """Show the state of a task; one that waits for a run is not RUNNING."""
    waits = no_run_since is not None and task.status is TaskStatus.RUNNING
    badge: SafeString = state("NO_RUN" if waits else task.status)
    return badge


@register.filter
def in_run(task: TaskState, run: RunStatus) -> str:
    """Return the state of a task of a run: one that waits for the next run is not RUNNING."""
    waits = not run.is_live and task.status is TaskStatus.RUNNING
    return LOOKS["NO_RUN"].word if waits else task.status.value


@register.simple_tag
def run_state(thread: ThreadState, stale: str = "") -> SafeString:
    """Show the state of a run; one that ended without a failure has no colour."""
    status: str = "STOPPED" if thread.stopped else thread.status
    if thread.status is ThreadStatus.RUNNING and thread.paused is not None:
        status = RunStatus.PAUSED
    badge: SafeString = state(status, stale, of="Run")
    return badge


@register.filter
def stale(counts: Summary | Mapping[str, int]) -> str:
    """Return why an application's states may be out of date: see `event_text.stale`."""
    if isinstance(counts, Mapping):
        return event_text.stale(counts["alive"], counts["lost"])
    return event_text.stale(counts.instances, counts.lost)


@register.simple_tag
def recurred() -> SafeString:
    """Mark a group that failed again after it was resolved."""
    return format_html('<span class="state is-dead">{}RECURRED</span>', icon("again"))


@register.simple_tag
def state_parts(running: int, paused: int, dead: int, no_run: int) -> SafeString:
    """Draw the numbers of tasks by state as parts of one bar."""
    counts = (
        *(("fill-dead", dead), ("fill-paused", paused)),
        *(("fill-running", running), ("fill-quiet", no_run)),
    )
    total = running + paused + dead + no_run
    rects, x = [], 0.0
    for name, number in counts:
        # One of ten thousand is still visible.
        width = max(3.0, 100 * number / total) if number else 0.0
        rects.append((name, round(x, 2), round(width, 2)))
        x += width
    return format_html(
        '<svg viewBox="0 0 {} 6" preserveAspectRatio="none">{}</svg>',
        round(max(x, 100.0), 2),
        format_html_join("", '<rect class="{}" x="{}" width="{}" height="6"/>', rects)
        if total
        else SafeString('<rect class="fill-quiet" width="100" height="6"/>'),
    )


@register.filter
def older(task: TaskState, checkpoints: Checkpoints) -> bool:
    """Return whether a task is of an older checkpoint."""
    return pipeline_key(task.id) not in checkpoints.live


@register.filter
def no_run_since(task: TaskState, checkpoints: Checkpoints) -> datetime | None:
    """Return since when no run uses the checkpoint of a task; None while one does."""
    return checkpoints.no_run_since.get(pipeline_key(task.id))


@register.filter
def colour(status: str) -> str:
    """Return the class of a state's colour, for elements larger than its badge."""
    return LOOKS[str(status)].colour


@register.filter
def kind(value: str) -> str:
    """Return the display name of a kind of command."""
    return KINDS[CommandKind(value)].label


@register.filter
def may_act_on(who: Person, application: str) -> bool:
    """Return whether the person may act on an application; on all, if it is empty."""
    return who.may_act_on(application) if application else who.may_act_on_all


@register.filter
def owner(row: DeadLetter | DeadLetterTotal, owners: Owners) -> str:
    """Return the owner of a dead letter, or of those of an error group; empty: it has none."""
    if row.task is None:
        return owners.of_group(row.group) or "" if row.group else ""
    return owners.of(row.application, row.task.pipeline, row.group) or ""


@register.filter
def may_reveal(who: Person, application: str) -> bool:
    """Whether the person may reveal masked fields of an application."""
    role = who.role_on(application)
    return role is not None and role.includes(settings.ENVIRONMENT.reveal)


@register.filter
def may_act_on_each(who: Person, applications: Sequence[str]) -> bool:
    """Return whether the person may act on each of some applications; on all, if there is none."""
    return all(may_act_on(who, each) for each in applications or [""])


@register.filter
def may_act_on_some(who: Person, rows: Iterable[Any]) -> bool:
    """Return whether the person may act on any row of a list of tasks, dead letters or groups."""
    return any(who.may_act_on(_application(each)) for each in rows)


def _application(row: Any) -> str:
    if isinstance(row, tuple) and isinstance(row[0], GroupState):
        row = row[0]
    return str(row.id.application if isinstance(row, TaskState) else row.application)


@register.simple_tag
def spark_ui(instance: InstanceState) -> SafeString:
    """Link the Spark UI of a live driver, if its agent reported a web address."""
    address = instance.spark_ui_address
    if address is None or instance.ended or not _is_web_address(address):
        return SafeString("")
    return format_html(' <a class="small" href="{}" rel="noreferrer">Spark UI</a>', address)


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


@register.simple_tag(takes_context=True)
def problems_of_title(context: Context) -> str:
    """Return the number of items that need attention, `(3) `; empty if there are none."""
    number = context.get("problems")
    if number is None:
        number = attention.current_total(
            context["who"], lags=context["lags"], health=context["health"]
        )
    return f"({number:,}) " if number else ""
