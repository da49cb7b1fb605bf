"""The overview: what needs attention, failure rates, recent commands."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from arrester.controlplane import queries
from arrester.dashboard.components import attention, fair_shares, pipeline_lines, time_range
from arrester.dashboard.components.charts import failure_rates
from arrester.dashboard.page_frame import page
from arrester.dashboard.permissions import Person, for_people

FEED, RANKED = 8, 6
#: Pipelines in the overview, dead ones first, of each application some; the others have a page.
PIPELINES = 8


@for_people
def overview(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the overview."""
    now = timezone.now()
    state = queries.overview()
    span = time_range.span(request.GET, now=now)
    rate = failure_rates.rate(span)
    needing = attention.read(who, now=now, overview=state)
    flows = queries.pipeline_flows(now=now, threads=state.threads, tasks=state.tasks)
    context = {
        "overview": state,
        "pipelines": pipeline_lines.lines(_first(flows), needing),
        "pipelines_in_all": len(flows),
        "attention": needing,
        "problems": len(needing.items),
        "tiles": attention.tiles(state, needing, rate),
        "rate": rate,
        "commands": queries.commands(limit=FEED, parts=False).rows,
    }
    held_total = sum(each.held for each in state.applications)
    plots = failure_rates.causes(now=now, limit=RANKED) | failure_rates.backlog(
        held_total, span, limit=RANKED
    )
    context |= plots
    return page(request, who, "overview", context, lags=state.lags, health=state.health)


def _first(flows: Sequence[queries.PipelineFlow]) -> list[queries.PipelineFlow]:
    return fair_shares.first(flows, PIPELINES, application=lambda each: each.application)


@require_safe
@for_people
def problems(request: HttpRequest, who: Person) -> HttpResponse:
    """Return the number of items that need attention, for the title of a hidden page."""
    return HttpResponse(str(attention.current_total(who)), content_type="text/plain")
