"""The list of tasks, one task, and its history."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from arrester.controlplane import queries
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.controlplane.domain.state.states import (
    InstanceState,
    TaskStatus,
    ThreadState,
    ThreadStatus,
)
from arrester.dashboard.components import action_buttons, command_recipients
from arrester.dashboard.components.state_timeline import strip
from arrester.dashboard.page_frame import Notice, Place, ask_as_before, page
from arrester.dashboard.pages import as_of
from arrester.dashboard.permissions import Person, for_people
from arrester.dashboard.text import event_text, policy_text, record_text
from arrester.dashboard.text.history_json import as_json

#: Entries of the history on the task's page, and entries read for its timeline.
RECENT, STRIP = 12, 200
#: The forms of a history: state changes, all events, all events as stored.
VIEWS = {"compact": "Compact", "full": "Full", "json": "JSON"}

NOT_RUNNING = "Not running"


@for_people
def tasks(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the tasks with failures, filtered by the URL.

    Those of the checkpoints that the task grid shows; with `history=1` of all checkpoints.
    """
    return show_all(request, who)


def show_all(request: HttpRequest, who: Person, *, notice: Notice | None = None) -> HttpResponse:
    """Render the list with its filter, after an action with its result."""
    own = reverse("tasks")
    ask_as_before(request, own)
    query = request.GET
    names = ("state", "application", "pipeline", "key", "cause", "history")
    asked = {name: query.get(name, "") for name in names}
    if asked["state"] and asked["state"] not in list(TaskStatus):
        raise InvalidValue("state", asked["state"], ", ".join(TaskStatus))
    wanted = queries.TaskFilter(
        application=asked["application"] or None,
        pipeline=asked["pipeline"] or None,
        state=asked["state"] or None,
        key=asked["key"] or None,
        cause=asked["cause"] or None,
        live=asked["history"] != "1",
    )
    place = Place(
        template="dashboard/tasks.html",
        section="tasks",
        title="Tasks",
        url=f"{own}?{query.urlencode()}" if query else own,
        shows=asked["application"],
    )
    found = queries.tasks(wanted, cursor=query.get("after"))
    context = {
        "asked": asked,
        "names": sorted(queries.positions()),
        "statuses": [status.value for status in TaskStatus],
        "tasks": found,
        "instances": queries.instance_counts([*{task.id.application for task in found.rows}]),
    }
    return page(request, who, place, context, notice=notice)


@for_people
def task(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Show one task: its failure, and the possible actions."""
    return show(request, who, digest)


def show(
    request: HttpRequest,
    who: Person,
    digest: str,
    *,
    notice: Notice | None = None,
    status: int = 200,
) -> HttpResponse:
    """Render the task's page, after an action with its result."""
    when = as_of.asked(request)
    detail = queries.as_of_state.task(digest, when) if when else queries.task(digest)
    name = detail.state.id.application
    place = Place(
        template="dashboard/task.html",
        section="tasks",
        title=detail.state.id.printed,
        url=reverse("task", args=[digest]),
        shows=name,
        live=when is None,
    )
    context = record_text.shown(detail.failure) | {
        "detail": detail,
        "task": detail.state,
    }
    context |= as_of.shown(when, application=name, url=reverse("task", args=[digest]))
    given = _then(detail, digest, when) if when else _now(who, detail, digest)
    return page(request, who, place, context | given, notice=notice, status=status)


def _now(who: Person, detail: queries.TaskDetail, digest: str) -> dict[str, object]:
    """Return the context of the current state: the actions, and the newest history."""
    name = detail.state.id.application
    alive = queries.instances(name)
    now = timezone.now()
    turns = queries.task_turns(digest, limit=STRIP).rows
    run = detail.thread
    return {
        "expiry_minutes": command_recipients.expiry_minutes(),
        "buttons": action_buttons.for_task(who, detail, queries.application(name).state),
        "command_id": action_buttons.command_id(who, detail),
        "note_id": uuid7(now),
        "meters": policy_text.meters(detail.state, detail.thread, now=now),
        "listener": command_recipients.listener(detail.thread, alive, queries.heard(alive)),
        "recent": turns[:RECENT],
        "strip": strip(turns, now=now, ended=run.since if run and not _runs(run) else None),
        "still": _still(detail.thread, alive),
    }


def _still(thread: ThreadState | None, alive: Sequence[InstanceState]) -> str:
    """Return why the shown state may be out of date; empty while its run has a live instance."""
    if not alive:
        return event_text.still(0, 0)
    if not _runs(thread):
        return NOT_RUNNING
    heard = [each.id for each in alive if not each.lost]
    return "" if thread is not None and thread.instance in heard else "No heartbeat"


def _runs(thread: ThreadState | None) -> bool:
    return thread is not None and thread.status is ThreadStatus.RUNNING


def _then(detail: queries.TaskDetail, digest: str, when: queries.AsOf) -> dict[str, object]:
    """Return the context of a past state: the history until then."""
    return {
        "recent": queries.as_of_state.task_history(digest, when, limit=RECENT).rows,
        "still": "" if _runs(detail.thread) else NOT_RUNNING,
    }


@for_people
def history(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Show the history of a task, page by page."""
    detail = queries.task(digest)
    view = request.GET.get("view", "")
    view = view if view in VIEWS else "compact"
    read = queries.task_turns if view == "compact" else queries.task_history
    place = Place(
        template="dashboard/history.html",
        section="tasks",
        title=f"History of {detail.state.id.printed}",
        url=request.get_full_path(),
        shows=detail.state.id.application,
    )
    found = read(digest, cursor=request.GET.get("after"))
    context = {
        "task": detail.state,
        "views": VIEWS.items(),
        "view": view,
        "history": found,
        "json": as_json(found.rows) if view == "json" else "",
    }
    return page(request, who, place, context)
