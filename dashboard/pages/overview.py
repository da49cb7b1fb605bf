"""The first page: what needs somebody, how much fails, and what was commanded."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from controlplane import queries
from dashboard import attention, rates
from dashboard.people import Person, for_people
from dashboard.shell import Place, page

FEED = 8


@for_people
def overview(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the first page."""
    now = timezone.now()
    seen = queries.overview()
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
        "chart": rates.of_everything(now=now),
        "commands": queries.commands(limit=FEED).rows,
    }
    return page(request, who, place, context)
