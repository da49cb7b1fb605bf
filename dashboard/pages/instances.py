"""The driver processes of all applications: where, what, how well heard, and what waits in them."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from controlplane import queries
from dashboard import filters
from dashboard.people import Person, for_people
from dashboard.shell import Place, page

#: Between the clocks of an instance and of the server; more than this is marked.
SKEW_SECONDS = 5.0
FIELDS = ("application", "show")


@for_people
def instances(request: HttpRequest, who: Person) -> HttpResponse:
    """Show instances that live, or with `show=ended` the others, filtered by the URL."""
    asked = filters.asked(request.GET, FIELDS)
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
        cursor=request.GET.get("after"),
    )
    context = filters.form(request.GET, FIELDS) | {
        "found": found,
        "rows": [
            (each, each.skew_seconds is not None and abs(each.skew_seconds) > SKEW_SECONDS)
            for each in found.rows
        ],
    }
    return page(request, who, place, context)
