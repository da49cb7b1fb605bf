"""The list of applications, and one application by tabs; each tab reads only what it shows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone

from arrester.controlplane import queries
from arrester.dashboard.components import (
    action_buttons,
    command_recipients,
    failure_rates,
    task_grid,
)
from arrester.dashboard.page_frame import Notice, Place, ask_as_before, page
from arrester.dashboard.pages import as_of
from arrester.dashboard.permissions import Person, for_people
from arrester.dashboard.text import policy_text

RANKED, SHOWN, ENDED_SHOWN = 8, 50, 20


@for_people
def applications(request: HttpRequest, who: Person) -> HttpResponse:
    """Show all applications, a line each."""
    place = Place(
        template="dashboard/applications.html",
        section="applications",
        title="Applications",
        url=request.get_full_path(),
    )
    lags = queries.lags()
    context = {
        "summaries": queries.application_page(lags, cursor=request.GET.get("after"), limit=SHOWN),
        "sparks": failure_rates.sparks_of_applications(now=timezone.now()),
    }
    return page(request, who, place, context, lags=lags)


@for_people
def application(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Show one application, now or in the past."""
    when = as_of.asked(request)
    return as_of.application(request, who, name, when) if when else show(request, who, name)


class Asked(NamedTuple):
    """The request of a tab."""

    query: QueryDict
    summary: queries.Summary
    now: datetime

    @property
    def name(self) -> str:
        """The application's name."""
        return self.summary.state.name

    def get(self, name: str) -> str:
        """Return a parameter of the URL, or an empty text."""
        return self.query.get(name, "")

    @property
    def parameters(self) -> dict[str, str]:
        """Return all parameters of the URL."""
        return {name: self.get(name) for name in self.query}

    @property
    def cursor(self) -> str | None:
        """The cursor of a list; None for its beginning."""
        return self.query.get("after")


def _tasks(asked: Asked) -> dict[str, object]:
    wanted = task_grid.asked(asked.get("pipeline"), asked.get("key"), asked.get("page"))
    held = failure_rates.backlog(
        asked.summary.held, limit=RANKED, now=asked.now, application=asked.name
    )
    return held | {"parts": task_grid.parts(asked.name, wanted), "wanted": wanted}


def _errors(asked: Asked) -> dict[str, object]:
    span = failure_rates.span(asked.parameters, now=asked.now)
    causes = failure_rates.causes(now=asked.now, limit=RANKED, application=asked.name)
    return causes | {"rate": failure_rates.rate(span, application=asked.name)}


def _timeline(asked: Asked) -> dict[str, object]:
    return {"turns": queries.turns(asked.name, cursor=asked.cursor)}


def _commands(asked: Asked) -> dict[str, object]:
    return {"commands": queries.commands(asked.name, cursor=asked.cursor, limit=SHOWN)}


def _instances(asked: Asked) -> dict[str, object]:
    alive = queries.instances(asked.name)
    return {
        "listeners": command_recipients.seen(alive, queries.heard(alive)),
        "ended": queries.instances(asked.name, ended=True)[:ENDED_SHOWN],
    }


def _policy(asked: Asked) -> dict[str, object]:
    return {"policies": policy_text.shown(asked.name, now=asked.now)}


class Tab(NamedTuple):
    """A tab of the application's page, by its name in the URL."""

    key: str
    word: str
    context: Callable[[Asked], dict[str, object]]

    @property
    def template(self) -> str:
        """The tab's template."""
        return f"dashboard/tabs/{self.key}.html"


TABS = {
    tab.key: tab
    for tab in (
        Tab("tasks", "Tasks", _tasks),
        Tab("errors", "Errors", _errors),
        Tab("timeline", "Timeline", _timeline),
        Tab("commands", "Commands", _commands),
        Tab("instances", "Instances", _instances),
        Tab("policy", "Policy", _policy),
    )
}


def show(
    request: HttpRequest, who: Person, name: str, *, notice: Notice | None = None, status: int = 200
) -> HttpResponse:
    """Render the application's page, after an action with its result."""
    lags = queries.lags()
    summary = queries.application(name, lags)
    open_commands = queries.open_commands(name)
    own = reverse("application", args=[name])
    ask_as_before(request, own)
    query = request.GET
    tab = TABS.get(query.get("tab", ""), TABS["tasks"])
    now = timezone.now()
    place = Place(
        template="dashboard/application.html",
        section="applications",
        title=name,
        url=f"{own}?{query.urlencode()}" if query else own,
        shows=name,
    )
    context = {
        "summary": summary,
        "buttons": action_buttons.for_application(who, summary.state, open_commands),
        "under_way": [command for command in open_commands if command.task is None],
        "spark": failure_rates.sparks_of_applications(now=now, application=name).get(name),
        "tabs": TABS.values(),
        "tab": tab,
        "own": own,
    }
    context |= as_of.shown(None, application=name, url=own)
    given = tab.context(Asked(query, summary, now))
    return page(request, who, place, context | given, notice=notice, status=status, lags=lags)
