"""The list of commands, and one command with its life."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from controlplane import queries
from dashboard import steps
from dashboard.people import Person, for_people
from dashboard.shell import Place, page


@for_people
def commands(request: HttpRequest, who: Person) -> HttpResponse:
    """Show commands, newest first, filtered by the URL."""
    application = request.GET.get("application", "")
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
        "commands": queries.commands(application or None, cursor=request.GET.get("after")),
    }
    return page(request, who, place, context)


@for_people
def command(request: HttpRequest, who: Person, id: UUID) -> HttpResponse:
    """Show one command: its steps, and what each instance answered."""
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
    context = {
        "command": state,
        "steps": steps.steps(state),
        "answers": [(each, instances.get(each.instance)) for each in state.deliveries],
    }
    return page(request, who, place, context)
