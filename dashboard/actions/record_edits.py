"""Edit the record of a dead letter; the difference becomes the JSON Patch of its redrive."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, QueryDict
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import access, queries
from arrester.dashboard.actions import redrives
from arrester.dashboard.components import forms
from arrester.dashboard.components.editable_records import Reviewed, editable
from arrester.dashboard.permissions import Person, for_operators


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person, application: str, id: str) -> HttpResponse:
    """Show the record as fields and as JSON."""
    access.require(application)
    return _dialog(request, application, id)


def _dialog(
    request: HttpRequest, application: str, id: str, *, reviewed: Reviewed | None = None
) -> HttpResponse:
    one = queries.dead_letter(application, id)
    found, reviewed = editable(one), reviewed or Reviewed()
    context = {
        "one": one,
        "found": found,
        "typed": request.POST.get("text", ""),
        "editor": reviewed.editor or found.editor,
        "invalid": reviewed.invalid,
    }
    return forms.dialog(request, "edit_record", context)


@require_POST
@for_operators
def review(request: HttpRequest, who: Person, application: str, id: str) -> HttpResponse:
    """Show the dialog of the redrive with the changes; nothing is sent yet."""
    access.require(application)
    found = editable(queries.dead_letter(application, id))
    reviewed = found.review(request.POST)
    if reviewed.invalid:
        return _dialog(request, application, id, reviewed=reviewed)
    chosen = QueryDict(mutable=True)
    chosen["record"] = f"{application}/{id}"
    return redrives.show_dialog(request, chosen, patch=reviewed.patch)
