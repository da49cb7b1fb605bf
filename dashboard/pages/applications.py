"""The list of applications, and one application by tabs; each tab reads only what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from msgspec import UNSET

from arrester.controlplane import queries
from arrester.dashboard.components import (
    attention,
    buttons,
    command_delivery,
    page_numbers,
    time_range,
)
from arrester.dashboard.components.charts import failure_rates, task_grid
from arrester.dashboard.page_frame import (
    Notice,
    as_of_context,
    now_or_then,
    page,
    restore_query,
)
from arrester.dashboard.permissions import NOT_AN_OPERATOR, Person, for_people
from arrester.dashboard.text import policy_text
from arrester.domain.commands.kinds import IN_PARTS
from arrester.domain.state.states import ApplicationStatus, CommandState
from arrester.domain.state.stream_state import StreamState

RANKED, SHOWN, ENDED_SHOWN = 8, 50, 20
#: Commands in progress.
PROGRESS_SHOWN = 5
TABS = {
    "tasks": "Tasks",
    "errors": "Errors",
    "timeline": "Timeline",
    "commands": "Commands",
    "instances": "Instances",
    "policy": "Policy",
}


@for_people
def applications(request: HttpRequest, who: Person) -> HttpResponse:
    """Show all applications, a line each."""
    lags, now = queries.lags(), timezone.now()
    needing = attention.read(who, now=now, lags=lags)
    context = {
        "attention": needing,
        "problems": len(needing.items),
        "summaries": queries.application_page(lags, cursor=request.GET.get("after"), limit=SHOWN),
        "sparks": failure_rates.sparks_of_applications(now=now),
    }
    return page(request, who, "applications", context, lags=lags)


@for_people
def application(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Show one application, now or in the past."""
    return now_or_then(
        request, partial(show, request, who, name), partial(_show_past, request, who, name)
    )


def show(
    request: HttpRequest, who: Person, name: str, *, notice: Notice | None = None, status: int = 200
) -> HttpResponse:
    """Render the application's page, after an action with its result."""
    lags = queries.lags()
    summary = queries.application(name, lags)
    open_commands = queries.open_commands(name)
    instances = queries.instances(name)
    state = buttons.state_of(summary.state, open_commands, instances)
    own, now = reverse("application", args=[name]), timezone.now()
    restore_query(request, own)
    query = request.GET
    tab = query["tab"] if query.get("tab") in TABS else "tasks"
    context = {
        "summary": summary,
        "attention": attention.read(who, now=now, lags=lags, application=name),
        "buttons": buttons.for_application(who, state),
        "rollout_disabled": "" if who.may_act_on(name) else NOT_AN_OPERATOR,
        "resume_disabled": _resume_disabled(who, summary),
        **_in_progress(open_commands),
        "log_gaps": queries.log_gaps(name),
        "limits_reached": queries.limits_reached(name),
        "reports": queries.reports(instances),
        "spark": failure_rates.sparks_of_applications(now=now, application=name).get(name),
        "tabs": TABS.items(),
        "tab": tab,
        "tab_template": f"dashboard/tabs/{tab}.html",
        "own": own,
    }
    context |= as_of_context(None, application=name, url=own)
    context |= _of_tab(tab, who, summary, state, query, now)
    return page(
        request,
        who,
        "applications",
        context,
        template="application",
        title=name,
        url=f"{own}?{query.urlencode()}" if query else own,
        shows=name,
        notice=notice,
        status=status,
        lags=lags,
    )


def _in_progress(open_commands: Sequence[CommandState]) -> dict[str, Any]:
    """Return the first commands in progress, rollouts and redrives apart, and how many more.

    The commands that these have issued are on their pages.
    """
    rollouts = [each for each in open_commands if each.kind in IN_PARTS]
    others = [
        each
        for each in open_commands
        if each.task is None and each.slice is UNSET and each.kind not in IN_PARTS
    ]
    return {
        "commands_in_progress": others[:PROGRESS_SHOWN],
        "rollouts": rollouts[:PROGRESS_SHOWN],
        "more_commands": len(others[PROGRESS_SHOWN:]) + len(rollouts[PROGRESS_SHOWN:]),
    }


def _resume_disabled(who: Person, summary: queries.Summary) -> str:
    """Return why no tasks can be resumed; empty if some can, or if none is PAUSED."""
    if not summary.paused:
        return ""
    if who.may_act_on(summary.state.name) and summary.state.status is ApplicationStatus.LATCHED:
        return f"{summary.state.name} is LATCHED; start the application first"
    return buttons.resume_many(who, summary.state.name)


def _of_tab(
    tab: str,
    who: Person,
    summary: queries.Summary,
    state: StreamState,
    query: QueryDict,
    now: datetime,
) -> dict[str, object]:
    """Return the context of one tab: it reads only what it shows."""
    name, cursor = summary.state.name, query.get("after")
    match tab:
        case "errors":
            rate = failure_rates.rate(time_range.span(query, now=now), application=name)
            causes = failure_rates.causes(now=now, limit=RANKED, application=name)
            return causes | {"rate": rate}
        case "timeline":
            return {"changes": queries.state_changes(name, cursor=cursor)}
        case "commands":
            return {"commands": queries.commands(name, parts=False, cursor=cursor, limit=SHOWN)}
        case "instances":
            return {
                "live": command_delivery.with_heartbeats([*state.instances.values()][:SHOWN]),
                "more_live": max(0, summary.instances - SHOWN),
                "ended": queries.instances(name, ended=True)[:ENDED_SHOWN],
            }
        case "policy":
            policies = queries.policies(name, now=now)
            number = page_numbers.requested(query.get("page", ""))
            part = page_numbers.part(number, size=task_grid.PIPELINES, total=len(policies))
            shown = policy_text.texts(policies[part.first - 1 : part.last])
            return {"policies": shown, "pipeline_part": part}
    wanted = task_grid.requested(*(query.get(field, "") for field in ("pipeline", "key", "page")))
    span = time_range.span(query, now=now, default=failure_rates.LAST_DAY)
    backlog = failure_rates.backlog(summary.held, span, limit=RANKED, application=name)
    return backlog | task_grid.context(name, wanted, partial(buttons.for_pipelines, who, state))


def _show_past(request: HttpRequest, who: Person, name: str, when: queries.AsOf) -> HttpResponse:
    """Render an application as of then: its tasks and live instances."""
    own = reverse("application", args=[name])
    wanted = task_grid.requested("", "", request.GET.get("page", ""))
    then = queries.as_of_state.application_detail(
        name, when, tasks=task_grid.CELLS, section=wanted.section
    )
    context = as_of_context(when, application=name, url=own) | {
        "summary": then.summary,
        "own": own,
        **task_grid.context_then(then.grid, wanted),
        "instances": then.instances[:SHOWN],
        "more_instances": len(then.instances[SHOWN:]),
    }
    return page(
        request,
        who,
        "applications",
        context,
        template="application_as_of",
        title=name,
        shows=name,
        live=False,
    )
