"""What was not understood: raw bytes, reasons, times."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from controlplane import queries
from dashboard import record
from dashboard.people import Person, for_people
from dashboard.shell import Place, page


@for_people
def quarantine(request: HttpRequest, who: Person) -> HttpResponse:
    """Show what was kept aside, newest first."""
    application = request.GET.get("application", "")
    place = Place(
        template="dashboard/quarantine.html",
        section="quarantine",
        title="Quarantine",
        url=request.get_full_path(),
        shows=application,
    )
    entries = queries.quarantine(application or None, cursor=request.GET.get("after"))
    context = {
        "application": application,
        "names": sorted(queries.positions()),
        "entries": entries,
        "rows": [(each, record.hexdump(each.raw)) for each in entries.rows],
        "shown_bytes": record.SHOWN_BYTES,
    }
    return page(request, who, place, context)
