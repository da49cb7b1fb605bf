"""The quarantine: raw bytes, reasons and times of invalid entries, requeue and dismiss."""

from __future__ import annotations

from functools import partial
from uuid import UUID, uuid5

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import access, actions, queries
from arrester.dashboard.components import forms
from arrester.dashboard.page_frame import Notice, page
from arrester.dashboard.permissions import Person, for_operators, for_people
from arrester.dashboard.text import record_text

_FORMS = UUID("018f2f5e-3f6b-7c51-9d3a-6c1f0b5a4e24")
STILL_INVALID = (
    "This server version cannot read the entry. Upgrade the server, then requeue it again."
)


@for_people
def quarantine(request: HttpRequest, who: Person) -> HttpResponse:
    """Show quarantined entries, newest first; with `waiting=1` those that need an operator."""
    return _show(request, who, request.GET.get("application", ""))


def _show(
    request: HttpRequest, who: Person, application: str, *, notice: Notice | None = None
) -> HttpResponse:
    get = request.method == "GET"
    after = request.GET.get("after") if get else None
    waiting = get and request.GET.get("waiting") == "1"
    entries = queries.quarantine(application or None, waiting=waiting, cursor=after)
    context = {
        "application": application,
        "waiting": waiting,
        "names": sorted(queries.log_positions()),
        "entries": entries,
        "rows": [
            (each, record_text.hexdump(each.raw), _act_id(who, each.id)) for each in entries.rows
        ],
        "shown_bytes": record_text.SHOWN_BYTES,
    }
    url = "" if get else reverse("quarantine")
    return page(request, who, "quarantine", context, url=url, shows=application, notice=notice)


@require_GET
@for_operators
def dismiss_dialog(request: HttpRequest, who: Person, number: int) -> HttpResponse:
    """Show the dialog to dismiss an entry with a reason."""
    return _dismiss_dialog(request, number)


def _dismiss_dialog(request: HttpRequest, number: int, *, invalid: str = "") -> HttpResponse:
    entry = queries.quarantined(number)
    access.require(entry.application)
    context = {"entry": entry, "invalid": invalid}
    return forms.dialog(request, "dismiss", context)


@require_POST
@for_operators
def dismiss(request: HttpRequest, who: Person, number: int) -> HttpResponse:
    """Dismiss an entry."""
    reason = forms.reason(request)
    if reason is None:
        return _dismiss_dialog(request, number, invalid=forms.REASON_REQUIRED)
    actions.dismiss_one(number, actor=who.name, reason=reason, id=forms.act_id(request))
    return _done(request, who, None)


@require_POST
@for_operators
def requeue(request: HttpRequest, who: Person, number: int) -> HttpResponse:
    """Requeue an entry that this version can read."""
    valid = actions.requeue_one(number, actor=who.name, id=forms.act_id(request))
    return _done(request, who, None if valid else Notice(text=STILL_INVALID, bad=True))


def _done(request: HttpRequest, who: Person, notice: Notice | None) -> HttpResponse:
    show = partial(_show, request, who, "", notice=notice)
    return forms.page_after(request, show, redirect_to=reverse("quarantine"))


def _act_id(who: Person, number: int) -> UUID:
    """Return the id that makes a double click one act."""
    return uuid5(_FORMS, f"{who.name}\0{number}")
