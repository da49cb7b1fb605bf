"""The list of commands, and one command with its steps."""

from __future__ import annotations

from functools import partial
from uuid import UUID, uuid5

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from arrester.controlplane import actions, queries
from arrester.controlplane.domain.commands.decide import why_not_cancelled
from arrester.controlplane.domain.errors import CommandRefused
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.controlplane.domain.state.states import CommandStatus
from arrester.dashboard.components import command_recipients, command_steps, filters
from arrester.dashboard.components.action_forms import act_id, after_act
from arrester.dashboard.page_frame import Notice, Place, page
from arrester.dashboard.permissions import NOT_AN_OPERATOR, Person, for_operators, for_people


@for_people
def commands(request: HttpRequest, who: Person) -> HttpResponse:
    """Show commands, newest first, filtered by the URL."""
    application, state = request.GET.get("application", ""), request.GET.get("state", "")
    place = Place(
        template="dashboard/commands.html",
        section="commands",
        title="Commands",
        url=request.get_full_path(),
        shows=application,
    )
    context = {
        "application": application,
        "names": sorted(queries.positions()),
        "state": state,
        "statuses": [filters.OPEN, *(status.value for status in CommandStatus)],
        "commands": queries.commands(
            **filters.of_commands(request.GET), cursor=request.GET.get("after")
        ),
    }
    return page(request, who, place, context)


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
    place = Place(
        template="dashboard/command.html",
        section="commands",
        title="Command",
        url=reverse("command", args=[id]),
        shows=state.application,
    )
    late = why_not_cancelled(state)
    context = {
        "why_not_cancelled": late if who.may_act else NOT_AN_OPERATOR,
        "cancel_id": uuid5(id, who.name),
        "expiry_minutes": command_recipients.expiry_minutes(),
        "notes": queries.notes_on_command(id),
        "note_id": uuid7(timezone.now()),
        "command": state,
        "steps": command_steps.steps(state),
        "answers": [(each, instances.get(each.instance)) for each in state.deliveries],
    }
    return page(request, who, place, context, notice=notice, status=status)


@require_POST
@for_operators
def cancel(request: HttpRequest, who: Person, id: UUID) -> HttpResponse:
    """Cancel a command that no instance has fetched."""
    notice, status = None, 200
    try:
        reason = request.POST.get("reason", "").strip() or None
        actions.cancel_command(id, actor=who.name, reason=reason, id=act_id(request))
    except CommandRefused as refused:
        notice, status = Notice(text=f"Refused: {refused}.", bad=True), 409
    page = partial(show, request, who, id, notice=notice, status=status)
    return after_act(request, page, plainly=reverse("command", args=[id]))


@require_POST
@for_operators
def note(request: HttpRequest, who: Person, id: UUID) -> HttpResponse:
    """Add a note to a command."""
    text = request.POST.get("text", "").strip()
    actions.note_on_command(id, actor=who.name, text=text, id=act_id(request))
    page = partial(show, request, who, id)
    return after_act(request, page, plainly=reverse("command", args=[id]))
