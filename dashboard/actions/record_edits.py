"""Edit the record of a dead letter; the difference becomes the JSON Patch of its redrive."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, QueryDict
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import access, queries
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.json_patch import difference
from arrester.dashboard.actions import redrives
from arrester.dashboard.components import forms
from arrester.dashboard.components.editable_records import editable
from arrester.dashboard.permissions import Person, for_operators


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person, application: str, id: str) -> HttpResponse:
    """Show the record as JSON."""
    access.require(application)
    return _dialog(request, application, id)


def _dialog(request: HttpRequest, application: str, id: str, *, invalid: str = "") -> HttpResponse:
    one = queries.dead_letter(application, id)
    context = {
        "one": one,
        "found": editable(one),
        "typed": request.POST.get("text", ""),
        "invalid": invalid,
    }
    return forms.dialog(request, "edit_record", context)


@require_POST
@for_operators
def review(request: HttpRequest, who: Person, application: str, id: str) -> HttpResponse:
    """Show the dialog of the redrive with the changes; nothing is sent yet."""
    access.require(application)
    found = editable(queries.dead_letter(application, id))
    if not found.text:
        missing = "The record is read once more: review the changes in a few seconds."
        return _dialog(request, application, id, invalid=found.reason or missing)
    try:
        patch = difference(found.text, request.POST.get("text", ""))
    except InvalidValue as error:
        return _dialog(request, application, id, invalid=f"{error}.")
    if patch is None:
        return _dialog(request, application, id, invalid="No column is changed.")
    if lost := found.incomplete(patch.columns):
        names = ", ".join(lost)
        invalid = f"{names}: the page does not have the whole value. Change other columns."
        return _dialog(request, application, id, invalid=invalid)
    chosen = QueryDict(mutable=True)
    chosen["record"] = f"{application}/{id}"
    return redrives.show_dialog(request, chosen, patch=patch.text)
