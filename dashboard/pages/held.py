"""Held records by task, most first."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from arrester.controlplane import queries
from arrester.dashboard.components import failure_rates, filters
from arrester.dashboard.page_frame import Place, page
from arrester.dashboard.permissions import Person, for_people


@for_people
def held(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the tasks that hold records, filtered by the URL."""
    now = timezone.now()
    application = request.GET.get("application") or None
    place = Place(
        template="dashboard/held.html",
        section="held",
        title="Held records",
        url=request.get_full_path(),
        shows=application or "",
    )
    records, tasks = queries.held_in_all(application)
    found = queries.held(application, cursor=request.GET.get("after"))
    context = filters.form(request.GET, ("application",)) | {
        "tasks": found,
        "instances": queries.instance_counts([*{task.id.application for task in found.rows}]),
        "records": records,
        "levels": failure_rates.levels(
            failure_rates.span(request.GET, now=now, default=failure_rates.LAST_DAY),
            now=now,
            application=application,
        ),
        "in_all": tasks,
    }
    return page(request, who, place, context)
