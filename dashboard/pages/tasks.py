"""The list of tasks that were ever told of, one task, and its history."""

from __future__ import annotations

from itertools import islice

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from controlplane import queries
from controlplane.domain.states import TaskStatus, ThreadStatus
from dashboard import buttons, listening, record
from dashboard.history import brief
from dashboard.people import Person, for_people
from dashboard.shell import Notice, Place, page

#: How much of the history its page shows, and how much is read for that.
RECENT, READ = 15, 200


@for_people
def tasks(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the tasks that have failed or stood, filtered by the URL.

    Those of the checkpoints that the task grid shows; with `history=1` of all.
    """
    names = ("state", "application", "pipeline", "history")
    asked = {name: request.GET.get(name, "") for name in names}
    wanted = queries.TaskFilter(
        application=asked["application"] or None,
        pipeline=asked["pipeline"] or None,
        state=asked["state"] or None,
        live=asked["history"] != "1",
    )
    place = Place(
        template="dashboard/tasks.html",
        section="tasks",
        title="Tasks",
        url=request.get_full_path(),
        shows=asked["application"],
    )
    context = {
        "asked": asked,
        "names": sorted(queries.positions()),
        "statuses": [status.value for status in TaskStatus],
        "tasks": queries.tasks(wanted, cursor=request.GET.get("after")),
    }
    return page(request, who, place, context)


@for_people
def task(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Show one task: why it stands, and what can be done."""
    return show(request, who, digest)


def show(
    request: HttpRequest,
    who: Person,
    digest: str,
    *,
    notice: Notice | None = None,
    status: int = 200,
) -> HttpResponse:
    """Answer with the task's page, after an action with what it came to."""
    detail = queries.task(digest)
    name = detail.state.id.application
    alive = queries.instances(name)
    place = Place(
        template="dashboard/task.html",
        section="tasks",
        title=detail.state.id.printed,
        url=reverse("task", args=[digest]),
        shows=name,
    )
    context = record.shown(detail.failure) | {
        "detail": detail,
        "task": detail.state,
        "runs": detail.thread is not None and detail.thread.status is ThreadStatus.RUNNING,
        "expiry_minutes": listening.expiry_minutes(),
        "buttons": buttons.for_task(who, detail, queries.application(name).state),
        "command_id": buttons.command_id(who, detail),
        "listener": listening.listener(detail.thread, alive, queries.heard(alive)),
        "recent": list(islice(brief(queries.task_history(digest, limit=READ).rows), RECENT)),
    }
    return page(request, who, place, context, notice=notice, status=status)


@for_people
def history(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Show everything that happened to a task, page by page."""
    detail = queries.task(digest)
    place = Place(
        template="dashboard/history.html",
        section="tasks",
        title=f"History of {detail.state.id.printed}",
        url=request.get_full_path(),
        shows=detail.state.id.application,
    )
    context = {
        "task": detail.state,
        "history": queries.task_history(digest, cursor=request.GET.get("after")),
    }
    return page(request, who, place, context)
