"""The search by name, as a page and as the results of the search dialog."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from arrester.controlplane import queries
from arrester.dashboard.page_frame import page
from arrester.dashboard.permissions import Person, for_people
from arrester.domain.errors import InvalidValue

LENGTH = 200


@for_people
def search(request: HttpRequest, who: Person) -> HttpResponse:
    """Show what has the text `q` in its name."""
    text = request.GET.get("q", "").strip()
    if len(text) > LENGTH:
        raise InvalidValue("q", f"{text[:50]}…", f"at most {LENGTH} characters")
    context = {"text": text, "found": queries.search(text) if text else None}
    if "HX-Request" in request.headers:
        return render(request, "dashboard/search_results.html", context)
    return page(request, who, "search", context, title="Search", live=False)
