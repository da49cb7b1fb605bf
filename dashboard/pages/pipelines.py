"""The list of pipelines, and one pipeline: its run, its flow, its steps and its runs."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from arrester.controlplane import queries
from arrester.dashboard.components import (
    attention,
    buttons,
    filters,
    page_numbers,
    pipeline_lines,
    time_range,
)
from arrester.dashboard.components.attention import Attention
from arrester.dashboard.components.charts import flow_charts
from arrester.dashboard.page_frame import Notice, page, restore_query
from arrester.dashboard.permissions import Person, for_people
from arrester.dashboard.text import policy_text
from arrester.dashboard.text.policy_text import StageRow
from arrester.domain.state.live_runs import RunStatus
from arrester.domain.state.states import CommandState

#: The lines of a page.
SHOWN = 100
FIELDS = ("application", "run")
_RUNS, _COMMANDS, _STEPS = 20, 100, 100
_SOURCE, _SINK = "source", "produce"


class StripStep(NamedTuple):
    """A stage in the strip of a pipeline, with the records that failed there in the last hour."""

    row: StageRow
    failed: int
    #: Records read from the source or written to the sink; None for other stages, or unknown.
    records: int | None
    word: str = ""


@for_people
def pipelines(request: HttpRequest, who: Person) -> HttpResponse:
    """Show all pipelines, a line each."""
    now = timezone.now()
    state = queries.overview()
    needing = attention.read(who, now=now, overview=state)
    wanted = filters.of_pipelines(request.GET)
    every = queries.pipeline_flows(now=now, threads=state.threads, tasks=state.tasks)
    flows = [each for each in every if wanted.takes(each)]
    number = page_numbers.requested(request.GET.get("page", ""))
    part = page_numbers.part(number, size=SHOWN, total=len(flows))
    context = {
        "problems": len(needing.items),
        "pipelines": pipeline_lines.lines(flows[part.first - 1 : part.last], needing),
        "applications": bool(state.applications),
        "part": part,
        "runs": [*RunStatus],
    }
    context |= filters.form(request.GET, FIELDS)
    shows = wanted.application or ""
    return page(
        request, who, "pipelines", context, shows=shows, lags=state.lags, health=state.health
    )


@for_people
def pipeline(request: HttpRequest, who: Person, application: str, name: str) -> HttpResponse:
    """Show one pipeline."""
    return show(request, who, application, name)


def show(
    request: HttpRequest,
    who: Person,
    application: str,
    name: str,
    *,
    notice: Notice | None = None,
    status: int = 200,
) -> HttpResponse:
    """Render the page of a pipeline, after an action with its result."""
    now = timezone.now()
    own = reverse("pipeline", args=[application, name])
    restore_query(request, own)
    flow = queries.pipeline_flow(application, name, now=now)
    lags = queries.lags()
    needing = attention.read(who, now=now, lags=lags, application=application)
    span = time_range.span(request.GET, now=now)
    runs = queries.past_runs(application, name, limit=_RUNS)
    commands = _commands(application, name)
    measured, earlier = flow_charts.read(application, name, span)
    query = request.GET.urlencode()
    context = {
        "of": flow,
        "attention": _of_pipeline(needing, application, name),
        "strip": _strip(flow, now),
        "span": span,
        "charts": flow_charts.charts(measured, earlier, span, flow_charts.markers(runs, commands)),
        "runs": runs,
        "buttons": _buttons(who, application, name),
        "own": own,
    }
    return page(
        request,
        who,
        "pipelines",
        context,
        template="pipeline",
        title=name,
        url=f"{own}?{query}" if query else own,
        shows=application,
        notice=notice,
        status=status,
        lags=lags,
    )


def _of_pipeline(needing: Attention, application: str, name: str) -> Attention:
    return Attention(
        tuple(
            each
            for each in needing.items
            if (each.condition.application, each.condition.pipeline) == (application, name)
        )
    )


def _commands(application: str, name: str) -> list[CommandState]:
    """Return the newest commands about a pipeline or one of its tasks."""
    return [
        each
        for each in queries.commands(application, parts=False, limit=_COMMANDS).rows
        if name in (each.pipeline, None if each.task is None else each.task.pipeline)
    ]


def _strip(flow: queries.PipelineFlow, now: datetime) -> list[StripStep]:
    """Return the stages of a pipeline in their order; empty if its run has not described them."""
    key = flow.key
    policies = queries.policies(flow.application, now=now, pipeline=flow.pipeline)
    described = next(
        (
            each
            for each in policy_text.texts(policies)
            if (each.policy.thread.pipeline, each.policy.thread.checkpoint) == key[1:]
        ),
        None,
    )
    if described is None:
        return []
    failed = queries.failed_by_stage(
        flow.application, flow.pipeline, since=now - queries.RECENT, until=now
    )
    rows = described.rows[:_STEPS]
    return [_step(row, failed.get(row.stage.name, 0), flow) for row in rows]


def _step(row: StageRow, failed: int, flow: queries.PipelineFlow) -> StripStep:
    recent = flow.recent
    if row.stage.name == _SOURCE:
        return StripStep(row, failed, None if recent is None else recent.records_in, "read")
    if row.stage.name == _SINK:
        return StripStep(row, failed, None if recent is None else recent.records_out, "written")
    return StripStep(row, failed, None)


def _buttons(who: Person, application: str, name: str) -> buttons.PipelineButtons | None:
    """Return the buttons of a pipeline, disabled for an unguarded query; None: it has no run."""
    summary = queries.application(application)
    state = buttons.state_of(
        summary.state, queries.open_commands(application), queries.instances(application)
    )
    threads = [each for each in queries.threads(application) if each.pipeline == name]
    return buttons.for_pipelines(who, state, threads).get(name) if threads else None
