"""Forms of actions: their dialogs, their ids, the page after them, and the form of a mute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from arrester.controlplane.queries import SkippedRecords
from arrester.dashboard.components import time_range
from arrester.dashboard.components.command_delivery import expiry_minutes
from arrester.dashboard.page_frame import Notice
from arrester.dashboard.permissions import Person, note_log_positions
from arrester.dashboard.text import command_links
from arrester.domain.errors import CommandForbidden, GroupActForbidden, InvalidValue
from arrester.domain.identity.uuids import uuid7
from arrester.domain.state.error_groups import PERIODS, GroupAct, GroupRequest
from arrester.domain.state.states import CommandState

REASON_REQUIRED = "A reason is required."
LOSS_UNCONFIRMED = "Confirm the loss of skipped records."
#: The reasons of refusals that a notice names.
_NAMED_REASONS = 3
#: The durations of the form with their names.
MUTE_LENGTHS = {
    "1h": ("1 hour", timedelta(hours=1)),
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
}
#: The durations of a pause with their names.
PAUSES = {
    "5m": ("5 minutes", timedelta(minutes=5)),
    "1h": ("1 hour", timedelta(hours=1)),
    "8h": ("8 hours", timedelta(hours=8)),
}


def must_confirm_loss(request: HttpRequest, skipped: SkippedRecords) -> bool:
    """Whether skipped records would be lost, and the form does not confirm it."""
    return skipped is SkippedRecords.LOST and "lost" not in request.POST


def act_id(request: HttpRequest) -> UUID:
    """Return the id that makes a repeated form one act; raises InvalidValue."""
    text = request.POST.get("id", "")
    try:
        return UUID(text)
    except ValueError:
        raise InvalidValue("id", text, "a UUID, made once per form") from None


def reason(request: HttpRequest) -> str | None:
    """Return the reason of the form; None if it is empty."""
    return request.POST.get("reason", "").strip() or None


def is_forced(request: HttpRequest) -> bool:
    """Return whether a shutdown is to cancel Spark jobs in progress, in its form or its URL."""
    return bool((request.POST or request.GET).get("force"))


def refusals(reasons: Counter[str]) -> str:
    """Return how many acts were refused, and the most frequent reasons; empty if none was."""
    if not reasons:
        return ""
    alike: Counter[str] = Counter()
    for text, number in reasons.items():
        alike[command_links.without_id(text)] += number
    named = "; ".join(each for each, _ in alike.most_common(_NAMED_REASONS))
    more = len(alike) - _NAMED_REASONS
    rest = f"; and {more} more" if more > 0 else ""
    return f" {alike.total():,} refused: {named}{rest}."


def dialog(
    request: HttpRequest, name: str, context: dict[str, Any], *, default: str = ""
) -> HttpResponse:
    """Return a dialog, or the default one if there is no template of this name.

    `invalid` in the context is the fault of a sent form, with status 400.
    """
    now = timezone.now()
    context = context | {
        "id": request.POST.get("id") or uuid7(now),
        "typed_reason": request.POST.get("reason", ""),
        "expiry_minutes": expiry_minutes(),
        "now": now,
    }
    invalid = bool(context.get("invalid"))
    status = 400 if invalid else 200
    templates = [f"dashboard/dialogs/{each}.html" for each in (name, default)]
    response = render(request, templates, context, status=status)
    if invalid:
        response["HX-Retarget"], response["HX-Reswap"] = "#dialog", "innerHTML"
    return response


def page_after(
    request: HttpRequest, show: Callable[[], HttpResponse], *, redirect_to: str
) -> HttpResponse:
    """Return the response to a form: the page after the act, with the dialog closed.

    Without JavaScript it redirects to the URL `redirect_to`, so that going back repeats no act.
    """
    if "HX-Request" not in request.headers:
        return redirect(redirect_to)
    note_log_positions(request)
    response = show()
    response["HX-Trigger"] = "arrester:done"
    return response


def to_command(request: HttpRequest, id: UUID) -> HttpResponse:
    """Return the response to a form whose command has a page: the browser opens it."""
    url = reverse("command", args=[id])
    if "HX-Request" not in request.headers:
        return redirect(url)
    return HttpResponse(status=204, headers={"HX-Redirect": url})


def act_and_show(
    request: HttpRequest,
    act: Callable[[], object],
    show: Callable[..., HttpResponse],
    *,
    redirect_to: str,
    link: str = "",
) -> HttpResponse:
    """Act, and return the page after it; 409 with the reason and a link if the state refuses it.

    If the command of the form had ended before, a notice states that nothing was issued: its result
    is not that of this click.
    """
    began = timezone.now()
    notice, status = None, 200
    try:
        done = act()
    except (CommandForbidden, GroupActForbidden) as refused:
        notice, status = _refused(refused, link), 409
    else:
        match done:
            case CommandState(issued_at=issued_at) if issued_at < began and done.status.final:
                # A cancel returns another command than that of the form.
                notice = _ended_before(done, link) if done.id == act_id(request) else None
    return page_after(request, partial(show, notice=notice, status=status), redirect_to=redirect_to)


def _refused(refused: CommandForbidden | GroupActForbidden, link: str) -> Notice:
    if isinstance(refused, CommandForbidden) and refused.pending is not None:
        # The text names the command in progress, which matters more than the refused one.
        return Notice(text=f"Refused: {refused}.", bad=True)
    return Notice(
        text=f"Refused: {refused}.", url=link, link="View command" if link else "", bad=True
    )


def _ended_before(command: CommandState, link: str) -> Notice:
    text = (
        f"No command was issued: this form was sent at {command.issued_at:%H:%M:%S} UTC already,"
        f" and its command is {command.status}. To issue another one, press the button again."
    )
    return Notice(text=text, url=link, link="View command", bad=True)


def mute_options(request: HttpRequest) -> dict[str, Any]:
    """Return the options of the form, and the chosen values."""
    return {
        "lengths": [(value, label) for value, (label, _) in MUTE_LENGTHS.items()],
        "periods": PERIODS.items(),
        "posted": request.POST,
    }


def mute_request(request: HttpRequest, who: Person, fingerprint: str) -> GroupRequest:
    """Return the request of the form; raises InvalidValue for an invalid end."""
    end = request.POST.get("end", "")
    until, length, failures, period = None, None, None, None
    if end == "failures":
        failures = whole_number("failures", request.POST)
        period = whole_number("period", request.POST)
    elif end == "until":
        until = _moment(request.POST.get("until", ""))
    elif end in MUTE_LENGTHS:
        length = MUTE_LENGTHS[end][1]
    else:
        raise InvalidValue("end", end, ", ".join([*MUTE_LENGTHS, "until", "failures"]))
    return GroupRequest(
        id=act_id(request),
        act=GroupAct.MUTE,
        fingerprint=fingerprint,
        actor=who.name,
        reason=reason(request),
        until=until,
        length=length,
        failures=failures,
        period_seconds=period,
    )


def pause_lengths() -> list[tuple[str, str]]:
    """Return the durations of the form of a pause, with their names."""
    return [(value, label) for value, (label, _) in PAUSES.items()]


def pause_end(request: HttpRequest) -> tuple[datetime | None, timedelta | None]:
    """Return the end of the form's pause as a time or a duration, neither: it has none.

    Raises InvalidValue for an invalid end.
    """
    end = request.POST.get("end", "")
    if end in ("", "never"):
        return None, None
    if end == "until":
        return _moment(request.POST.get("until", "")), None
    if end not in PAUSES:
        raise InvalidValue("end", end, ", ".join(["never", *PAUSES, "until"]))
    return None, PAUSES[end][1]


def whole_number(name: str, posted: Mapping[str, str]) -> int:
    """Return a field that is a whole number; raises InvalidValue."""
    text = posted.get(name, "")
    if not text.isdecimal() or len(text) > 12:
        raise InvalidValue(name, text[:50], "a whole number")
    return int(text)


def _moment(text: str) -> datetime:
    moment = time_range.moment("until", text)
    if moment is None:
        raise InvalidValue("until", "", "a time")
    return moment
