"""The instances of all applications: host, versions, heartbeat, spool."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from arrester.controlplane import queries
from arrester.controlplane.domain.errors import InvalidValue
from arrester.dashboard.components import filters
from arrester.dashboard.page_frame import Place, page
from arrester.dashboard.permissions import Person, for_people

#: A larger difference between the clocks of an instance and the server is marked.
SKEW_SECONDS = 5.0
FIELDS = ("application", "show")
#: By the value in the URL.
SHOWN = {"": "live", "lost": "LOST", "ended": "ended"}


@for_people
def instances(request: HttpRequest, who: Person) -> HttpResponse:
    """Show live instances, with `show=lost` LOST, with `ended` the others."""
    asked = filters.asked(request.GET, FIELDS)
    if asked["show"] not in SHOWN:
        raise InvalidValue("show", asked["show"], ", ".join(filter(None, SHOWN)))
    place = Place(
        template="dashboard/instances.html",
        section="instances",
        title="Instances",
        url=request.get_full_path(),
        shows=asked["application"],
    )
    found = queries.running(
        asked["application"] or None,
        ended=asked["show"] == "ended",
        lost=asked["show"] == "lost",
        cursor=request.GET.get("after"),
    )
    context = filters.form(request.GET, FIELDS) | {
        "found": found,
        "shown": SHOWN.items(),
        "rows": [
            (each, each.skew_seconds is not None and abs(each.skew_seconds) > SKEW_SECONDS)
            for each in found.rows
        ],
    }
    return page(request, who, place, context)
