"""The quarantine: raw bytes, reasons and times of invalid entries, requeue and dismiss."""

from __future__ import annotations

from functools import partial
from uuid import UUID, uuid5

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import actions, queries
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.dashboard.components.action_forms import act_id, after_act, show_dialog
from arrester.dashboard.page_frame import Notice, Place, page
from arrester.dashboard.permissions import Person, for_operators, for_people
from arrester.dashboard.text import record_text

_FORMS = UUID("018f2f5e-3f6b-7c51-9d3a-6c1f0b5a4e24")
STILL = "The entry is still invalid and stays here. Upgrade the server, then try again."


@for_people
def quarantine(request: HttpRequest, who: Person) -> HttpResponse:
    """Show quarantined entries, newest first; with `waiting=1` those that need an operator."""
    return _show(request, who, request.GET.get("application", ""))


def _show(
    request: HttpRequest, who: Person, application: str, *, notice: Notice | None = None
) -> HttpResponse:
    get = request.method == "GET"
    place = Place(
        template="dashboard/quarantine.html",
        section="quarantine",
        title="Quarantine",
        url=request.get_full_path() if get else reverse("quarantine"),
        shows=application,
    )
    after = request.GET.get("after") if get else None
    waiting = get and request.GET.get("waiting") == "1"
    entries = queries.quarantine(application or None, waiting=waiting, cursor=after)
    context = {
        "application": application,
        "waiting": waiting,
        "names": sorted(queries.positions()),
        "entries": entries,
        "rows": [
            (each, record_text.hexdump(each.raw), _once(who, each.id)) for each in entries.rows
        ],
        "shown_bytes": record_text.SHOWN_BYTES,
    }
    return page(request, who, place, context, notice=notice)


@require_GET
@for_operators
def dismiss_dialog(request: HttpRequest, who: Person, number: int) -> HttpResponse:
    """Show the dialog to dismiss an entry with a reason."""
    return _dismiss_dialog(request, number)


def _dismiss_dialog(request: HttpRequest, number: int, *, wrong: str = "") -> HttpResponse:
    context = {
        "entry": queries.quarantined(number),
        "command_id": request.POST.get("id") or uuid7(timezone.now()),
        "typed_reason": request.POST.get("reason", ""),
        "wrong": wrong,
    }
    return show_dialog(request, "dismiss", context)


@require_POST
@for_operators
def dismiss(request: HttpRequest, who: Person, number: int) -> HttpResponse:
    """Dismiss an entry."""
    reason = request.POST.get("reason", "").strip()
    if not reason:
        return _dismiss_dialog(request, number, wrong="A reason is required.")
    actions.dismiss_one(number, actor=who.name, reason=reason, id=act_id(request))
    return _done(request, who, None)


@require_POST
@for_operators
def put_back(request: HttpRequest, who: Person, number: int) -> HttpResponse:
    """Requeue an entry that this version can read."""
    understood = actions.requeue_one(number, actor=who.name, id=act_id(request))
    return _done(request, who, None if understood else Notice(text=STILL, bad=True))


def _done(request: HttpRequest, who: Person, notice: Notice | None) -> HttpResponse:
    show = partial(_show, request, who, "", notice=notice)
    return after_act(request, show, plainly=reverse("quarantine"))


def _once(who: Person, number: int) -> UUID:
    """Return the id that makes a double click one act."""
    return uuid5(_FORMS, f"{who.name}\0{number}")
