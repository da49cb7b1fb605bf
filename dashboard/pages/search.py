"""The search by name and in failed records: as a page, in the search dialog, and one record."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from arrester.controlplane import queries
from arrester.dashboard.page_frame import page
from arrester.dashboard.permissions import Person, for_people
from arrester.dashboard.text import record_text
from arrester.domain.errors import InvalidValue

#: Failed records in the dialog, and on a page.
FEW, ROWS = 8, 50


@for_people
def search(request: HttpRequest, who: Person) -> HttpResponse:
    """Show what has the text `q` in its name, and the failed records that match it."""
    text, cursor = request.GET.get("q", "").strip(), request.GET.get("after")
    if len(text) > queries.MAX_SEARCH:
        raise InvalidValue("q", f"{text[:50]}…", f"at most {queries.MAX_SEARCH} characters")
    in_dialog = "HX-Request" in request.headers
    context: dict[str, Any] = {
        "text": text,
        # Further pages are of records only.
        "found": queries.search(text) if text and not cursor else None,
        "records": _records(text, cursor, FEW if in_dialog else ROWS) if text else None,
        "in_dialog": in_dialog,
    }
    if in_dialog:
        context["now"] = timezone.now()
        return render(request, "dashboard/search_results.html", context)
    return page(request, who, "search", context, title="Search", live=False)


def _records(text: str, cursor: str | None, limit: int) -> queries.FoundRecords | None:
    """Return the matching records; None if the text has no word, which may be part of a name."""
    try:
        return queries.find_records(queries.RecordFilter(q=text), cursor=cursor, limit=limit)
    except InvalidValue as exc:
        if exc.name != "q":
            raise
        return None


@for_people
def record(request: HttpRequest, who: Person, application: str, sequence: int) -> HttpResponse:
    """Show a failed record, and all that happened to it."""
    history = queries.record_history(application, sequence)
    context = record_text.context(history.failure) | {"history": history}
    return page(
        request,
        who,
        "search",
        context,
        template="record",
        title=f"Record of {history.task.printed}",
        url=reverse("record", args=[application, sequence]),
        shows=application,
    )
