"""Redrives: their dialog, the preview of a patch, and a patch from an edited record."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST
from msgspec.structs import replace

from arrester.controlplane import access, actions, queries
from arrester.dashboard.components import command_delivery, filters, forms
from arrester.dashboard.components.editable_records import Editable, Reviewed, editable
from arrester.dashboard.permissions import Person, for_operators
from arrester.dashboard.text.record_changes import changes
from arrester.domain.commands.redrive import MAX_REDRIVEN
from arrester.domain.errors import CommandForbidden, InvalidValue
from arrester.domain.events import Redrive
from arrester.domain.json_patch import MAX_CHARACTERS, JsonPatch, PatchFailed


class _Chosen(NamedTuple):
    """The dead letters of the dialog: of a filter, or with these ids."""

    application: str
    wanted: queries.DeadLetterFilter
    ids: list[str] | None
    #: The fields of the form that choose them again.
    fields: list[tuple[str, str]]


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the dialog: the number of records, the pipeline, the patch and the waves."""
    return show_dialog(request, request.GET)


def show_dialog(
    request: HttpRequest, given: QueryDict, *, patch: str = "", invalid: str = ""
) -> HttpResponse:
    """Render the dialog, with a patch, or with what is wrong with the sent form."""
    chosen, plan, sample, preview = None, None, "", {}
    try:
        chosen = _chosen(given)
        access.require(chosen.application)
        plan = actions.plan_redrive(chosen.application, chosen.wanted, ids=chosen.ids)
        sample = chosen.ids[0] if chosen.ids else _first(chosen)
        if patch:
            preview = _preview(chosen.application, sample, patch)
    except InvalidValue as error:
        invalid = invalid or f"{error}."
    application = chosen.application if chosen else ""
    context = {
        "application": application,
        "plan": plan,
        "fields": chosen.fields if chosen else [],
        "sample": sample,
        "patch": patch or given.get("patch", ""),
        "waves": "waves" in given or request.method == "GET" or bool(patch),
        "records_per_minute": given.get("records_per_minute", ""),
        "most": MAX_REDRIVEN,
        "most_characters": MAX_CHARACTERS,
        "recipients": _recipients(application, plan.pipeline) if plan else [],
        "no_test": actions.no_test(application, plan) if plan and plan.records == 1 else None,
        "invalid": invalid,
        **preview,
    }
    return forms.dialog(request, "redrive", context)


@require_POST
@for_operators
def start(request: HttpRequest, who: Person) -> HttpResponse:
    """Start the redrive of the dialog, and open its page."""
    reason = forms.reason(request)
    if reason is None:
        return show_dialog(request, request.POST, invalid=forms.REASON_REQUIRED)
    try:
        chosen = _chosen(request.POST)
        if chosen.ids is None:
            records = actions.plan_redrive(chosen.application, chosen.wanted).records
            filters.refuse_more_dead_letters(request.POST, records)
        command = actions.start_redrive(
            chosen.application,
            chosen.wanted,
            ids=chosen.ids,
            redrive=_redrive(request.POST),
            actor=who.name,
            reason=reason,
            command=forms.act_id(request),
        )
    except (InvalidValue, CommandForbidden) as error:
        return show_dialog(request, request.POST, invalid=f"{error}.")
    return forms.to_command(request, command.id)


def _redrive(given: QueryDict) -> Redrive:
    """Return how the dead letters are processed; their number follows."""
    has_rate = bool(given.get("records_per_minute", "").strip())
    return Redrive(
        records=0,
        waves="waves" in given,
        records_per_minute=forms.whole_number("records_per_minute", given) if has_rate else None,
        patch=given.get("patch", "").strip() or None,
    )


@require_POST
@for_operators
def preview(request: HttpRequest, who: Person) -> HttpResponse:
    """Return what the patch of the dialog changes in one of its records."""
    application, sample = request.POST.get("application", ""), request.POST.get("sample", "")
    access.require(application)
    context = _preview(application, sample, request.POST.get("patch", "").strip())
    return render(request, "dashboard/dialogs/redrive_preview.html", context)


def _preview(application: str, sample: str, patch: str) -> dict[str, Any]:
    one = queries.dead_letter(application, sample)
    found: Editable = editable(one)
    context: dict[str, Any] = {"shown": True, "one": one, "found": found}
    if not found.text:
        return context
    try:
        changed = JsonPatch(patch).apply(found.text)
    except (InvalidValue, PatchFailed) as error:
        return context | {"problem": str(error)}
    return context | {"changes": changes(found.text, changed)}


@require_GET
@for_operators
def edit_dialog(request: HttpRequest, who: Person, application: str, id: str) -> HttpResponse:
    """Show the record of a dead letter as fields and as JSON."""
    access.require(application)
    return _edit_dialog(request, application, id)


def _edit_dialog(
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
    """Show the dialog with the changes of an edited record as its patch; nothing is sent yet."""
    access.require(application)
    found = editable(queries.dead_letter(application, id))
    reviewed = found.review(request.POST)
    if reviewed.invalid:
        return _edit_dialog(request, application, id, reviewed=reviewed)
    chosen = QueryDict(mutable=True)
    chosen["record"] = f"{application}/{id}"
    return show_dialog(request, chosen, patch=reviewed.patch)


def _chosen(given: QueryDict) -> _Chosen:
    """Return the chosen dead letters; those of a filter were decided before the dialog opened."""
    selected = given.getlist("record")
    pairs = [each.partition("/")[::2] for each in selected]
    names = {name for name, _ in pairs} or {given.get("application", "")}
    if len(names) > 1:
        raise InvalidValue("record", ", ".join(sorted(names)), "dead letters of one application")
    (application,) = names
    if not application:
        raise InvalidValue("application", "", "an application: filter the list by one first")
    if selected:
        wanted = queries.DeadLetterFilter(application=application)
        ids = [id for _, id in pairs]
        return _Chosen(application, wanted, ids, [("record", each) for each in selected])
    wanted, fields = filters.of_known_dead_letters(given, now=timezone.now())
    # The form has a field of its own for it.
    del fields["application"]
    return _Chosen(application, wanted, None, list(fields.items()))


def _first(chosen: _Chosen) -> str:
    wanted = replace(chosen.wanted, status=chosen.wanted.status or filters.OPEN)
    rows = queries.dead_letters(wanted, limit=1).rows
    return rows[0].id if rows else ""


def _recipients(application: str, pipeline: str) -> list[command_delivery.Recipient]:
    live = command_delivery.live_instances(application)
    threads = queries.restartable(application, pipeline, [each.instance for each in live])
    instances = {each.instance for each in threads}
    return [each for each in live if each.instance.id in instances]
