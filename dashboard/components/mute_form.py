"""The form that mutes error groups: until a time, or until they fail more often."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest

from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.state.error_groups import PERIODS, GroupAct, GroupRequest
from arrester.dashboard.components import time_range
from arrester.dashboard.components.action_forms import act_id
from arrester.dashboard.permissions import Person

#: The durations of the form with their names.
LENGTHS = {
    "1h": ("1 hour", timedelta(hours=1)),
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
}


def ends(request: HttpRequest) -> dict[str, Any]:
    """Return the options of the form, and the chosen values."""
    return {
        "lengths": [(value, words) for value, (words, _) in LENGTHS.items()],
        "periods": PERIODS.items(),
        "given": request.POST,
    }


def requested(request: HttpRequest, who: Person, fingerprint: str) -> GroupRequest:
    """Return the request of the form; raises InvalidValue for an invalid end."""
    end = request.POST.get("end", "")
    until, length, failures, period = None, None, None, None
    if end == "failures":
        failures = _whole("failures", request.POST.get("failures", ""))
        period = _whole("period", request.POST.get("period", ""))
    elif end == "until":
        until = _moment(request.POST.get("until", ""))
    elif end in LENGTHS:
        length = LENGTHS[end][1]
    else:
        raise InvalidValue("end", end, ", ".join([*LENGTHS, "until", "failures"]))
    return GroupRequest(
        id=act_id(request),
        act=GroupAct.MUTE,
        fingerprint=fingerprint,
        actor=who.name,
        reason=request.POST.get("reason", "").strip() or None,
        until=until,
        length=length,
        failures=failures,
        period_seconds=period,
    )


def _whole(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise InvalidValue(name, text[:50], "a whole number")
    return int(text)


def _moment(text: str) -> datetime:
    found = time_range.moment("until", text)
    if found is None:
        raise InvalidValue("until", "", "a time")
    return found
