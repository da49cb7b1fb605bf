"""The instances of all applications: host, versions, heartbeat, spool."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from arrester.controlplane import queries
from arrester.dashboard.components import filters
from arrester.dashboard.page_frame import Notice, page, restore_query
from arrester.dashboard.permissions import Person, for_people
from arrester.domain.errors import InvalidValue

#: What has run for longer is shown.
LONG = timedelta(seconds=60)
FIELDS = ("application", "show")
#: The instances that are shown, by the value in the URL.
SHOWN = {"": "live", "lost": "LOST", "ended": "ended"}


@for_people
def instances(request: HttpRequest, who: Person) -> HttpResponse:
    """Show live instances, with `show=lost` LOST, with `ended` the others."""
    return show_all(request, who)


def show_all(
    request: HttpRequest, who: Person, *, notice: Notice | None = None, status: int = 200
) -> HttpResponse:
    """Render the list with its filter, after an action with its result."""
    own = reverse("instances")
    restore_query(request, own)
    query = request.GET
    requested = filters.field_values(request.GET, FIELDS)
    if requested["show"] not in SHOWN:
        raise InvalidValue("show", requested["show"], ", ".join(filter(None, SHOWN)))
    instance_page = queries.instance_page(
        requested["application"] or None,
        ended=requested["show"] == "ended",
        lost=requested["show"] == "lost",
        cursor=request.GET.get("after"),
    )
    now = datetime.now(UTC)
    skewed = [each.state.id for each in instance_page.rows if _is_skewed(each.skew_seconds)]
    context = filters.form(request.GET, FIELDS) | {
        "instance_page": instance_page,
        "shown": SHOWN.items(),
        "skewed": len(skewed),
        "rows": [
            (
                each,
                each.state.id in skewed,
                [work for work in each.in_progress if now - work.since > LONG],
            )
            for each in instance_page.rows
        ],
    }
    return page(
        request,
        who,
        "instances",
        context,
        url=f"{own}?{query.urlencode()}" if query else own,
        shows=requested["application"],
        notice=notice,
        status=status,
    )


def _is_skewed(seconds: float | None) -> bool:
    return seconds is not None and abs(seconds) > queries.SKEW_LIMIT.total_seconds()
