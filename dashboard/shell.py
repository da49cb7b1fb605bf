"""The frame around every page, and the one road by which a page or its refresh is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane import queries
from dashboard.people import POSITIONS, Person

#: Names of URLs and what people call them.
SECTIONS = (
    ("overview", "Overview"),
    ("applications", "Applications"),
    ("tasks", "Tasks"),
    ("errors", "Errors"),
    ("commands", "Commands"),
    ("dead-letters", "Dead letters"),
    ("held", "Held"),
    ("instances", "Instances"),
    ("audit", "Audit"),
    ("quarantine", "Quarantine"),
    ("settings", "Settings"),
)
#: A batch that waits longer than this to be folded is worth a banner.
BEHIND_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What an action came to, said once, above the page."""

    text: str
    url: str = ""
    link: str = ""
    bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page stands: its template, section and title, and which applications it shows."""

    template: str
    section: str
    title: str
    #: Where the page itself lives; a POST is answered with it too.
    url: str
    #: Names, apart by spaces; all applications where empty.
    shows: str = ""


def page(
    request: HttpRequest,
    who: Person,
    place: Place,
    context: dict[str, Any],
    *,
    notice: Notice | None = None,
    status: int = 200,
) -> HttpResponse:
    """Answer with the whole page, or to htmx with what of it refreshes: the same templates."""
    lags = queries.lags()
    positions: dict[str, int] = request.META[POSITIONS]
    shell = {
        "who": who,
        "now": timezone.now(),
        "place": place,
        "sections": SECTIONS,
        "health": queries.health(),
        "positions": sorted(positions.items()),
        # One number that grows with every event of any application.
        "position": sum(positions.values()),
        "behind": _behind(lags),
        "notices": [notice] if notice else [],
    }
    whole = "HX-Request" not in request.headers
    template = "dashboard/base.html" if whole else "dashboard/refresh.html"
    return render(request, template, shell | context, status=status)


def _behind(lags: Sequence[queries.Lag]) -> queries.Lag | None:
    worst = max(lags, key=lambda lag: lag.waiting_seconds or 0.0, default=None)
    if worst is None or (worst.waiting_seconds or 0.0) <= BEHIND_SECONDS:
        return None
    return worst
