"""What people do on an error group's page: resolve, reopen, mute, unmute, write a note."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from controlplane import actions, queries
from controlplane.domain.errors import GroupRefused, InvalidValue
from controlplane.domain.groups import PERIODS, GroupAct, GroupWish
from controlplane.domain.ids import uuid7
from dashboard import ranges
from dashboard.pages import errors
from dashboard.people import Person, for_operators, note_positions
from dashboard.shell import Notice

#: For how long a click may mute: the form's words and the times they stand for.
LENGTHS = {
    "1h": ("1 hour", timedelta(hours=1)),
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
}


@require_POST
@for_operators
def act(
    request: HttpRequest, who: Person, application: str, verb: str, fingerprint: str
) -> HttpResponse:
    """Resolve, reopen or unmute a group."""
    wish = GroupWish(
        id=_id(request),
        act=GroupAct(verb.upper()),
        fingerprint=fingerprint,
        actor=who.name,
        reason=request.POST.get("reason", "").strip() or None,
    )
    return _done(request, who, application, wish)


@require_GET
@for_operators
def mute_dialog(
    request: HttpRequest, who: Person, application: str, fingerprint: str
) -> HttpResponse:
    """Ask until when a group shall be silent."""
    return _mute_dialog(request, application, fingerprint)


def _mute_dialog(
    request: HttpRequest, application: str, fingerprint: str, *, wrong: str = ""
) -> HttpResponse:
    now = timezone.now()
    context = {
        "group": queries.group(application, fingerprint).state,
        "lengths": [(value, words) for value, (words, _) in LENGTHS.items()],
        "periods": PERIODS.items(),
        "given": request.POST,
        "typed_reason": request.POST.get("reason", ""),
        "id": request.POST.get("id") or uuid7(now),
        "wrong": wrong,
        "now": now,
    }
    answer = render(request, "dashboard/dialogs/mute.html", context, status=400 if wrong else 200)
    if wrong:
        answer["HX-Retarget"], answer["HX-Reswap"] = "#dialog", "innerHTML"
    return answer


@require_POST
@for_operators
def mute(request: HttpRequest, who: Person, application: str, fingerprint: str) -> HttpResponse:
    """Silence a group until a time, or until it fails more often."""
    try:
        wish = _mute_wish(request, who, fingerprint)
        return _done(request, who, application, wish)
    except InvalidValue as wrong:
        return _mute_dialog(request, application, fingerprint, wrong=f"{wrong}.")


def _mute_wish(request: HttpRequest, who: Person, fingerprint: str) -> GroupWish:
    end = request.POST.get("end", "")
    until, failures, period = None, None, None
    if end == "failures":
        failures = _whole("failures", request.POST.get("failures", ""))
        period = _whole("period", request.POST.get("period", ""))
    elif end == "until":
        until = _moment(request.POST.get("until", ""))
    elif end in LENGTHS:
        until = timezone.now() + LENGTHS[end][1]
    else:
        raise InvalidValue("end", end, ", ".join([*LENGTHS, "until", "failures"]))
    return GroupWish(
        id=_id(request),
        act=GroupAct.MUTE,
        fingerprint=fingerprint,
        actor=who.name,
        reason=request.POST.get("reason", "").strip() or None,
        until=until,
        failures=failures,
        period_seconds=period,
    )


@require_POST
@for_operators
def note(request: HttpRequest, who: Person, application: str, fingerprint: str) -> HttpResponse:
    """Write something down about a group."""
    actions.note_on_group(
        application,
        fingerprint,
        actor=who.name,
        text=request.POST.get("text", "").strip(),
        id=_id(request),
    )
    return _shown(request, who, application, fingerprint, tab="notes")


def _done(request: HttpRequest, who: Person, application: str, wish: GroupWish) -> HttpResponse:
    try:
        actions.act_on_group(application, wish)
    except GroupRefused as refused:
        notice = Notice(text=f"Refused: {refused}.", bad=True)
        return _shown(request, who, application, wish.fingerprint, notice=notice, status=409)
    return _shown(request, who, application, wish.fingerprint)


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
    if "HX-Request" not in request.headers:
        url = reverse("error", args=[application, fingerprint])
        return redirect(f"{url}?tab={tab}" if tab else url)
    note_positions(request)
    shown = request.POST.get("tab", "")
    tab = tab or (shown if shown in errors.TABS else "")
    answer = errors.show(
        request, who, application, fingerprint, tab=tab, notice=notice, status=status
    )
    answer["HX-Trigger"] = "arrester:done"
    return answer


def _id(request: HttpRequest) -> UUID:
    text = request.POST.get("id", "")
    try:
        return UUID(text)
    except ValueError:
        raise InvalidValue("id", text, "a UUID, made once per form") from None


def _whole(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise InvalidValue(name, text[:50], "a whole number")
    return int(text)


def _moment(text: str) -> datetime:
    found = ranges.moment("until", text)
    if found is None:
        raise InvalidValue("until", "", "a time")
    return found
