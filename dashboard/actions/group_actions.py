"""Acts on an error group's page: resolve, reopen, mute, unmute, note."""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import actions, queries
from arrester.controlplane.domain.errors import GroupRefused, InvalidValue
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.controlplane.domain.state.error_groups import GroupAct, GroupRequest
from arrester.dashboard.components import mute_form
from arrester.dashboard.components.action_forms import act_id, after_act, show_dialog
from arrester.dashboard.page_frame import Notice
from arrester.dashboard.pages import errors
from arrester.dashboard.permissions import Person, for_operators


@require_POST
@for_operators
def act(
    request: HttpRequest, who: Person, application: str, verb: str, fingerprint: str
) -> HttpResponse:
    """Resolve, reopen or unmute a group."""
    requested = GroupRequest(
        id=act_id(request),
        act=GroupAct(verb.upper()),
        fingerprint=fingerprint,
        actor=who.name,
        reason=request.POST.get("reason", "").strip() or None,
    )
    return _done(request, who, application, requested)


@require_GET
@for_operators
def mute_dialog(
    request: HttpRequest, who: Person, application: str, fingerprint: str
) -> HttpResponse:
    """Show the dialog to mute a group."""
    return _mute_dialog(request, application, fingerprint)


def _mute_dialog(
    request: HttpRequest, application: str, fingerprint: str, *, wrong: str = ""
) -> HttpResponse:
    now = timezone.now()
    context = mute_form.ends(request) | {
        "group": queries.group(application, fingerprint).state,
        "typed_reason": request.POST.get("reason", ""),
        "id": request.POST.get("id") or uuid7(now),
        "wrong": wrong,
        "now": now,
    }
    return show_dialog(request, "mute", context)


@require_POST
@for_operators
def mute(request: HttpRequest, who: Person, application: str, fingerprint: str) -> HttpResponse:
    """Mute a group until a time, or until it fails more often."""
    try:
        requested = mute_form.requested(request, who, fingerprint)
        return _done(request, who, application, requested)
    except InvalidValue as wrong:
        return _mute_dialog(request, application, fingerprint, wrong=f"{wrong}.")


@require_POST
@for_operators
def note(request: HttpRequest, who: Person, application: str, fingerprint: str) -> HttpResponse:
    """Add a note to a group."""
    actions.note_on_group(
        application,
        fingerprint,
        actor=who.name,
        text=request.POST.get("text", "").strip(),
        id=act_id(request),
    )
    return _shown(request, who, application, fingerprint, tab="notes")


def _done(
    request: HttpRequest, who: Person, application: str, requested: GroupRequest
) -> HttpResponse:
    try:
        actions.act_on_group(application, requested)
    except GroupRefused as refused:
        notice = Notice(text=f"Refused: {refused}.", bad=True)
        return _shown(request, who, application, requested.fingerprint, notice=notice, status=409)
    return _shown(request, who, application, requested.fingerprint)


def _shown(
    request: HttpRequest,
    who: Person,
    application: str,
    fingerprint: str,
    *,
    tab: str = "",
    notice: Notice | None = None,
    status: int = 200,
) -> HttpResponse:
    url = reverse("error", args=[application, fingerprint])
    seen = request.POST.get("tab", "")
    shown = tab or (seen if seen in errors.TABS else "")
    show = partial(
        errors.show, request, who, application, fingerprint, tab=shown, notice=notice, status=status
    )
    return after_act(request, show, plainly=f"{url}?tab={tab}" if tab else url)
