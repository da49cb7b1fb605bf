"""The first page: what needs somebody, how much fails, and what was commanded."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from controlplane import queries
from dashboard import attention, chart
from dashboard.people import Person, for_people
from dashboard.shell import Place, page

CHART_MINUTES = 60
FEED = 8


@for_people
def overview(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the first page."""
    now = timezone.now()
    seen = queries.overview()
    start = chart.first_minute(now, minutes=CHART_MINUTES)
    counts = queries.minutes_by_application(since=start, until=now + timedelta(minutes=1))
    place = Place(
        template="dashboard/overview.html",
        section="overview",
        title="Overview",
        url=reverse("overview"),
    )
    context = {
        "seen": seen,
        "attention": attention.items(seen, now=now),
        "more": attention.more(seen),
        "tiles": attention.tiles(seen),
        "chart": chart.stacked(
            ((each.minute, each.application, each.count) for each in counts),
            start=start,
            minutes=CHART_MINUTES,
        ),
        "commands": queries.commands(limit=FEED).rows,
    }
    return page(request, who, place, context)
