"""The list of tasks, tasks with held records, one task, and its history."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from arrester.controlplane import queries
from arrester.controlplane.alerts import reads
from arrester.dashboard.components import (
    attempt_folds,
    buttons,
    command_delivery,
    filters,
    saved_filters,
    time_range,
)
from arrester.dashboard.components.charts import failure_rates
from arrester.dashboard.components.charts.state_timeline import strip
from arrester.dashboard.page_frame import (
    Notice,
    as_of_context,
    now_or_then,
    page,
    restore_query,
)
from arrester.dashboard.permissions import Person, for_people
from arrester.dashboard.text import event_text, policy_text, record_text
from arrester.domain.identity.uuids import uuid7
from arrester.domain.state.states import (
    InstanceState,
    ThreadState,
    ThreadStatus,
)

#: Entries of the history on the task's page, and entries read for its timeline.
RECENT, STRIP = 12, 200
#: The forms of a history, by the parameter `view`: state changes, all events, all as stored.
HISTORY_FORMS = {"compact": "Compact", "full": "Full", "json": "JSON"}

NOT_RUNNING = "Not running"


@for_people
def tasks(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the tasks with failures, filtered by the URL.

    Those of live checkpoints; with `checkpoints=all` of all checkpoints.
    """
    return show_all(request, who)


def show_all(request: HttpRequest, who: Person, *, notice: Notice | None = None) -> HttpResponse:
    """Render the list with its filter, after an action with its result."""
    own = reverse("tasks")
    restore_query(request, own)
    query = request.GET
    wanted = filters.of_tasks(query)
    sort = query.get("sort") or queries.URGENCY
    task_page = queries.tasks(wanted, sort=sort, cursor=query.get("after"))
    applications = {task.id.application for task in task_page.rows}
    owners = queries.owners()
    context = filters.form(query, filters.TASK_FIELDS) | {
        "statuses": queries.TASK_STATES,
        "owner_of": queries.owners_of_tasks(task_page.rows, owners),
        "owners": sorted({who.name, *(each.owner for each in owners.rules)}),
        "tasks": task_page,
        "sort": sort,
        "saved": saved_filters.menu(request, who, "tasks"),
        "instances": queries.instance_counts([*applications]),
        "checkpoints": queries.checkpoints(applications),
    }
    url = f"{own}?{query.urlencode()}" if query else own
    return page(
        request, who, "tasks", context, url=url, shows=wanted.application or "", notice=notice
    )


@for_people
def held(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the tasks that hold records, most records first, filtered by the URL."""
    now = timezone.now()
    application = request.GET.get("application") or None
    records, tasks = queries.held_in_all(application)
    task_page = queries.held(application, cursor=request.GET.get("after"))
    applications = {task.id.application for task in task_page.rows}
    context = filters.form(request.GET, ("application",)) | {
        "tasks": task_page,
        "instances": queries.instance_counts([*applications]),
        "checkpoints": queries.checkpoints(applications),
        "records": records,
        "levels": failure_rates.levels(
            time_range.span(request.GET, now=now, default=failure_rates.LAST_DAY),
            application=application,
        ),
        "in_all": tasks,
    }
    return page(request, who, "held", context, shows=application or "")


@for_people
def task(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Show one task: its failure, and the possible actions."""
    return now_or_then(
        request,
        partial(show, request, who, digest),
        lambda when: show(request, who, digest, when=when),
    )


def show(
    request: HttpRequest,
    who: Person,
    digest: str,
    *,
    when: queries.AsOf | None = None,
    notice: Notice | None = None,
    status: int = 200,
) -> HttpResponse:
    """Render the task's page, after an action with its result."""
    detail = queries.as_of_state.task(digest, when) if when else queries.task(digest)
    name = detail.state.id.application
    url = reverse("task", args=[digest])
    context = record_text.context(detail.failure) | {
        "detail": detail,
        "task": detail.state,
    }
    context |= as_of_context(when, application=name, url=url)
    context |= (
        _past_context(detail, digest, when) if when else _current_context(who, detail, digest)
    )
    return page(
        request,
        who,
        "tasks",
        context,
        template="task",
        title=detail.state.id.printed,
        url=url,
        shows=name,
        live=when is None,
        notice=notice,
        status=status,
    )


def _current_context(who: Person, detail: queries.TaskDetail, digest: str) -> dict[str, object]:
    """Return the context of the current state: the actions, and the newest history."""
    name = detail.state.id.application
    live = command_delivery.live_instances(name)
    now = timezone.now()
    changes = queries.task_state_changes(digest, limit=STRIP).rows
    run = detail.thread
    of_task = buttons.for_task(who, detail, queries.application(name).state)
    return {
        "expiry_minutes": command_delivery.expiry_minutes(),
        "buttons": of_task,
        "resuming": buttons.after_failed_record(of_task),
        "command_id": buttons.command_id(who, detail),
        "drain": queries.drain(detail.state),
        "owner": queries.owners_of_tasks([detail.state]).get(digest),
        "sent_alerts": reads.messages_about_stop(detail.state),
        "note_id": uuid7(now),
        "meters": policy_text.meters(detail.state, detail.thread, now=now),
        "recipient": command_delivery.recipient(detail.thread, live),
        "recent": attempt_folds.rows(changes)[:RECENT],
        "pause_is_over": (detail.state.paused_until or now) < now,
        "strip": strip(changes, now=now, ended=run.since if run and not _runs(run) else None),
        "stale": _out_of_date(detail.thread, [each.instance for each in live]),
    }


def _out_of_date(thread: ThreadState | None, alive: Sequence[InstanceState]) -> str:
    """Return why the shown state may be out of date; empty while its run has a live instance."""
    if not alive:
        return event_text.stale(0, 0)
    if not _runs(thread):
        return NOT_RUNNING
    reachable = [each.id for each in alive if not each.lost]
    return "" if thread is not None and thread.instance in reachable else "No heartbeat"


def _runs(thread: ThreadState | None) -> bool:
    return thread is not None and thread.status is ThreadStatus.RUNNING


def _past_context(detail: queries.TaskDetail, digest: str, when: queries.AsOf) -> dict[str, object]:
    """Return the context of a past state: the history until then."""
    return {
        "recent": queries.as_of_state.task_history(digest, when, limit=RECENT).rows,
        "stale": "" if _runs(detail.thread) else NOT_RUNNING,
    }


@for_people
def history(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Show the history of a task, page by page."""
    detail = queries.task(digest)
    view = request.GET.get("view", "")
    view = view if view in HISTORY_FORMS else "compact"
    read = queries.task_state_changes if view == "compact" else queries.task_history
    cursor = request.GET.get("after")
    events = read(digest, cursor=cursor)
    context = {
        "task": detail.state,
        "views": HISTORY_FORMS.items(),
        "view": view,
        "history": events,
        "rows": attempt_folds.rows(events.rows) if view == "compact" else events.rows,
        "json": event_text.as_json(events.rows) if view == "json" else "",
        "alerts_by_stop": {}
        if view == "json"
        else reads.messages_by_stop(detail.state.id, events.rows, cursor=cursor),
    }
    return page(
        request,
        who,
        "tasks",
        context,
        template="history",
        title=f"History of {detail.state.id.printed}",
        shows=detail.state.id.application,
    )
