"""The list of applications, and one application with its pipelines, tasks and instances."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from controlplane import queries
from dashboard import buttons, listening, rates
from dashboard.people import Person, for_people
from dashboard.shell import Notice, Place, page

SHOWN = 6
#: Of a task grid; the others are a link away.
CELLS = 240


@for_people
def applications(request: HttpRequest, who: Person) -> HttpResponse:
    """Show all applications, a line each."""
    place = Place(
        template="dashboard/applications.html",
        section="applications",
        title="Applications",
        url=reverse("applications"),
    )
    return page(request, who, place, {"summaries": queries.applications()})


@for_people
def application(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Show one application."""
    return show(request, who, name)


def show(
    request: HttpRequest, who: Person, name: str, *, notice: Notice | None = None, status: int = 200
) -> HttpResponse:
    """Answer with the application's page, after an action with what it came to."""
    summary = queries.application(name)
    open_commands = queries.open_commands(name)
    alive = queries.instances(name)
    place = Place(
        template="dashboard/application.html",
        section="applications",
        title=name,
        url=reverse("application", args=[name]),
        shows=name,
    )
    context = {
        "summary": summary,
        "buttons": buttons.for_application(who, summary.state, open_commands),
        "under_way": [command for command in open_commands if command.task is None],
        "pipelines": [
            (each, sum(each.counts.values()) - len(each.tasks))
            for each in queries.pipelines(name, limit=CELLS)
        ],
        "listeners": listening.seen(alive, queries.heard(alive)),
        "groups": queries.groups(
            queries.GroupFilter(application=name, state="UNRESOLVED"), limit=SHOWN
        ).rows,
        "commands": queries.commands(name, limit=SHOWN).rows,
        "chart": rates.of_application(name, now=timezone.now()),
    }
    return page(request, who, place, context, notice=notice, status=status)
