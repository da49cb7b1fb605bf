"""Save and delete filters of lists."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import actions, queries
from arrester.dashboard.components import forms
from arrester.dashboard.components.saved_filters import query_of
from arrester.dashboard.permissions import Person, for_people
from arrester.domain.errors import InvalidValue


@require_GET
@for_people
def dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the form that saves the filter of a list, and the own filters to delete."""
    page = request.GET.get("page", "")
    return _dialog(request, who, page, query_of(page, QueryDict(request.GET.get("query", ""))))


def _dialog(
    request: HttpRequest, who: Person, page: str, query: str, *, invalid: str = ""
) -> HttpResponse:
    context = {
        "page": page,
        "query": query,
        "values": QueryDict(query).items(),
        "own": [
            each
            for each in queries.saved_filters(page, who.name)
            if each.user.get_username() == who.name
        ],
        "name": request.POST.get("name", ""),
        "shared": "shared" in request.POST,
        "invalid": invalid,
    }
    return forms.dialog(request, "saved_filter", context)


@require_POST
@for_people
def save(request: HttpRequest, who: Person) -> HttpResponse:
    """Save the filter of the form, or delete the own one that its button names."""
    page = request.POST.get("page", "")
    given = QueryDict(request.POST.get("query", ""))
    query = query_of(page, given)
    try:
        if "delete" in request.POST:
            actions.delete_filter(who.name, forms.whole_number("delete", request.POST))
        else:
            name = request.POST.get("name", "").strip()
            application, shared = given.get("application", ""), "shared" in request.POST
            actions.save_filter(who.name, page, name, query, application=application, shared=shared)
    except InvalidValue as error:
        return _dialog(request, who, page, query, invalid=f"{error}.")
    url = f"{reverse(page)}?{query}" if query else reverse(page)
    if "HX-Request" not in request.headers:
        return redirect(url)
    return HttpResponse(status=204, headers={"HX-Redirect": url})
