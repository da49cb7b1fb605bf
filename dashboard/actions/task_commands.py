"""Commands for one task, their dialogs, and notes on a task."""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import access, actions, queries
from arrester.dashboard.components import command_delivery, forms
from arrester.dashboard.pages import tasks
from arrester.dashboard.permissions import Person, for_operators
from arrester.dashboard.text import record_text
from arrester.domain.commands.kinds import TASK_KINDS, skips_records
from arrester.domain.errors import InvalidValue
from arrester.domain.events import CommandKind
from arrester.domain.state.states import TaskState


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person, digest: str, kind: CommandKind) -> HttpResponse:
    """Show the dialog of a command: record, recipient, and fields for position and reason."""
    return _dialog(request, digest, kind)


def _dialog(
    request: HttpRequest, digest: str, kind: CommandKind, *, invalid: str = ""
) -> HttpResponse:
    detail = queries.task(digest)
    access.require(detail.state.id.application)
    live = command_delivery.live_instances(detail.state.id.application)
    row = TASK_KINDS[kind]
    context = record_text.context(detail.failure) | {
        "row": row,
        "task": detail.state,
        "no_run_since": detail.no_run_since,
        "typed_position": request.POST.get("position", ""),
        "posted": request.POST,
        "pauses": forms.pause_lengths(),
        "recipient": command_delivery.recipient(detail.thread, live),
        "skipped": _skipped(detail.state),
        "afterwards": queries.after_command(detail.state.id.application, kind, [detail.state.id]),
        "invalid": invalid,
    }
    return forms.dialog(request, row.slug.replace("-", "_"), context, default="task_command")


def _skipped(task: TaskState) -> queries.SkippedRecords:
    """Return what becomes of skipped records of a task."""
    return queries.skipped_of_tasks(task.id.application, [task.id])


@require_POST
@for_operators
def issue(request: HttpRequest, who: Person, digest: str, kind: CommandKind) -> HttpResponse:
    """Issue a command for a task with the id of the form."""
    row, reason, target = TASK_KINDS[kind], forms.reason(request), None
    if "target" in row.fields:
        target = _whole_number(request.POST.get("position", ""))
        if target is None:
            return _dialog(request, digest, kind, invalid="A position is a whole number.")
    if row.needs_reason and reason is None:
        return _dialog(request, digest, kind, invalid=forms.REASON_REQUIRED)
    if skips_records(kind) and forms.must_confirm_loss(
        request, _skipped(queries.task(digest).state)
    ):
        return _dialog(request, digest, kind, invalid=forms.LOSS_UNCONFIRMED)
    if "until" not in row.fields:
        return _issue(request, who, digest, kind, target=target)
    try:
        return _issue(request, who, digest, kind)
    except InvalidValue as error:
        return _dialog(request, digest, kind, invalid=f"{error}.")


def _issue(
    request: HttpRequest, who: Person, digest: str, kind: CommandKind, *, target: int | None = None
) -> HttpResponse:
    ends = "until" in TASK_KINDS[kind].fields
    until, duration = forms.pause_end(request) if ends else (None, None)
    id = forms.act_id(request)
    url = reverse("command", args=[id])
    return forms.act_and_show(
        request,
        partial(
            actions.command_task,
            kind,
            digest,
            actor=who.name,
            reason=forms.reason(request),
            target=target,
            until=until,
            duration=duration,
            command=id,
        ),
        partial(tasks.show, request, who, digest),
        redirect_to=url,
        link=url,
    )


def _whole_number(text: str) -> int | None:
    try:
        return int(text.replace(",", ""))
    except ValueError:
        return None


@require_POST
@for_operators
def note(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Add a note to a task, shown in its history."""
    text, id = request.POST.get("text", "").strip(), forms.act_id(request)
    actions.note_on_task(queries.task(digest).state.id, actor=who.name, text=text, id=id)
    show = partial(tasks.show, request, who, digest)
    return forms.page_after(request, show, redirect_to=reverse("task", args=[digest]))
