"""The list of commands, and one command with its steps."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID, uuid5

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST
from msgspec import UNSET

from arrester.controlplane import actions, queries
from arrester.dashboard.components import command_delivery, filters, forms, saved_filters
from arrester.dashboard.page_frame import Notice, page
from arrester.dashboard.permissions import NOT_AN_OPERATOR, Person, for_operators, for_people
from arrester.domain.commands.kinds import KINDS, Subject
from arrester.domain.commands.refusals.in_progress import cancel_refusal
from arrester.domain.commands.rollout import wave_ends
from arrester.domain.identity.uuids import uuid7
from arrester.domain.state.states import CommandState, CommandStatus

#: The most commands of a redrive, by its size, and some more.
_MOST_SLICES = 50


@for_people
def commands(request: HttpRequest, who: Person) -> HttpResponse:
    """Show commands, newest first, filtered by the URL."""
    application, state = request.GET.get("application", ""), request.GET.get("state", "")
    found = queries.commands(**filters.of_commands(request.GET), cursor=request.GET.get("after"))
    context = {
        "application": application,
        "names": sorted(queries.log_positions()),
        "state": state,
        "rollout": request.GET.get("rollout", ""),
        "statuses": [filters.OPEN, *(status.value for status in CommandStatus)],
        "rows": list(zip(found.rows, queries.verdicts(found.rows), strict=True)),
        "next": found.next,
        "saved": saved_filters.menu(request, who, "commands"),
    }
    return page(request, who, "commands", context, shows=application)


@for_people
def command(request: HttpRequest, who: Person, id: UUID) -> HttpResponse:
    """Show one command: its steps, and the answers of instances."""
    return show(request, who, id)


def show(
    request: HttpRequest, who: Person, id: UUID, *, notice: Notice | None = None, status: int = 200
) -> HttpResponse:
    """Render the command's page, after an action with its result."""
    state = queries.command(id)
    every = (
        *queries.instances(state.application),
        *queries.instances(state.application, ended=True),
    )
    instances = {instance.id: instance for instance in every}
    context = {
        "why_not_cancelled": cancel_refusal(state)
        if who.may_act_on(state.application)
        else NOT_AN_OPERATOR,
        "cancel_id": uuid5(id, who.name),
        "force_dialog": _force_dialog(who, state),
        "expiry_minutes": command_delivery.expiry_minutes(),
        "notes": queries.notes_on_command(id),
        "note_id": uuid7(timezone.now()),
        "command": state,
        "task_url": _task_url(state),
        "progress": queries.progress(state),
        "wave_ends": _wave_ends(state),
        **_redrive(state),
        "verdict": queries.verdict(state),
        "steps": command_delivery.steps(state),
        "answers": [(each, instances.get(each.instance)) for each in state.deliveries],
    }
    return page(
        request,
        who,
        "commands",
        context,
        template="command",
        title="Command",
        url=reverse("command", args=[id]),
        shows=state.application,
        notice=notice,
        status=status,
    )


def _task_url(command: CommandState) -> str:
    """Return the URL of the page of a command's task; empty while it has none."""
    task = command.task
    if task is None or not queries.is_known(task.digest):
        return ""
    return reverse("task", args=[task.digest])


def _wave_ends(command: CommandState) -> list[int]:
    rollout = command.rollout
    return [] if rollout is UNSET else wave_ends(rollout.tasks, waves=rollout.waves)


def _redrive(command: CommandState) -> dict[str, Any]:
    """Return the context of a redrive: what it has achieved, and its commands with their waves."""
    progress = queries.redrive_progress(command)
    if progress is None or command.redrive is UNSET:
        return {}
    records = command.redrive.records
    ends = wave_ends(records, waves=command.redrive.waves)
    parts = queries.commands(part_of=command.id, limit=_MOST_SLICES).rows
    slices = sorted((each.slice.first, each) for each in parts if each.slice is not UNSET)
    return {
        "redrive": progress,
        "redriven_so_far": progress.processed + progress.failed_again + progress.discarded,
        "not_issued": records - progress.issued,
        "slices": [(1 + sum(end <= first for end in ends), each) for first, each in slices],
    }


def _force_dialog(who: Person, command: CommandState) -> str:
    """Return the URL of the dialog that forces a shutdown in progress; empty for any other."""
    row = KINDS[command.kind]
    if command.status.final or command.force or not who.may_act_on(command.application):
        return ""
    if not row.is_shutdown:
        return ""
    if row.subject is Subject.APPLICATION:
        return f"{reverse('shut-down-dialog', args=[command.application])}?force=1"
    about = [command.application, command.deliveries[0].instance]
    return f"{reverse('shut-down-instance-dialog', args=about)}?force=1"


@require_POST
@for_operators
def cancel(request: HttpRequest, who: Person, id: UUID) -> HttpResponse:
    """Cancel a command that no instance has fetched."""
    reason, cancel_id = forms.reason(request), forms.act_id(request)
    return forms.act_and_show(
        request,
        partial(actions.cancel_command, id, actor=who.name, reason=reason, id=cancel_id),
        partial(show, request, who, id),
        redirect_to=reverse("command", args=[id]),
    )


@require_POST
@for_operators
def note(request: HttpRequest, who: Person, id: UUID) -> HttpResponse:
    """Add a note to a command."""
    text, note_id = request.POST.get("text", "").strip(), forms.act_id(request)
    actions.note_on_command(id, actor=who.name, text=text, id=note_id)
    return forms.page_after(
        request, partial(show, request, who, id), redirect_to=reverse("command", args=[id])
    )
