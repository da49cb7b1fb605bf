"""Alerts: those that last, those that ended, and the messages about them; and their settings."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from arrester.controlplane import queries
from arrester.controlplane.alerts import addresses, owner_channels, reads, subscriptions
from arrester.controlplane.alerts.configuration import LIMITS_MAX
from arrester.controlplane.queries.conditions import causes
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.dashboard.components import filters
from arrester.dashboard.page_frame import Notice, page
from arrester.dashboard.permissions import Person, for_all_applications, for_people

#: The limits with their labels and units.
LIMIT_LABELS = {
    "failures_per_minute": ("Failed records", "a minute"),
    "tolerance_percent": ("Tolerance used", "% of a limit"),
    "held_minutes": ("Records held", "minutes or longer"),
    "replaced_per_hour": ("Threads replaced", "times an hour"),
    "silent_hours": ("No live instance", "hours or longer"),
    "no_batch_minutes": ("No micro-batch", "minutes or longer"),
    "batch_minutes": ("Micro-batch in progress", "minutes or longer"),
    "backlog_minutes": ("Backlog grows", "minutes or longer"),
    "failed_percent": ("Failed records of some minutes", "% of those read"),
}


#: How many hours of events may be delivered again, and how they are called.
REPLAY_HOURS = {1: "last hour", 24: "last 24 h", 168: "last 7 d"}


@for_people
def alerts(request: HttpRequest, who: Person) -> HttpResponse:
    """Show alerts, newest first, and the newest messages."""
    return show(request, who)


def show(request: HttpRequest, who: Person, *, notice: Notice | None = None) -> HttpResponse:
    """Show the alerts after an act."""
    get = request.GET if request.method == "GET" else {}
    application = get.get("application", "")
    state = get.get("show", "open")
    message = filters.uuid("message", get)
    found = reads.alerts(application or None, open=state != "all", cursor=get.get("after"))
    by_alert = reads.messages_of(each.id for each in found.rows)
    context = {
        "rows": [
            (each, AlertCause(each.cause).label, by_alert.get(each.id, [])) for each in found.rows
        ],
        "found": found,
        "application": application,
        "names": sorted(queries.log_positions()),
        "state": state,
        "messages": reads.messages(limit=20, until=message),
        "message": message,
        "channels": reads.channels(),
    }
    return page(request, who, "alerts", context, url=_url(request, "alerts"), notice=notice)


@for_all_applications
def settings(request: HttpRequest, who: Person) -> HttpResponse:
    """Show channels, rules and limits."""
    return show_settings(request, who)


def show_settings(
    request: HttpRequest, who: Person, *, notice: Notice | None = None, key: str = ""
) -> HttpResponse:
    """Show the settings after an act; the key of a new webhook is shown once."""
    limits, rules, channels = causes.read_limits(), reads.rules(), reads.channels()
    all_limits = {"": limits.default, **dict(sorted(limits.by_application.items()))}
    context = {
        "channels": channels,
        "used": owner_channels.receiving(channels, rules),
        "sends_mail": addresses.sends_mail(),
        "hint": addresses.hint(),
        "rules": [(each, _cause_labels(each.causes)) for each in rules],
        "limits": [
            (
                name,
                [(*LIMIT_LABELS[field], getattr(values, field)) for field in LIMITS_MAX],
            )
            for name, values in all_limits.items()
        ],
        "subscriptions": subscriptions.subscriptions(),
        "replay_hours": REPLAY_HOURS.items(),
        "key": key,
    }
    return page(
        request,
        who,
        "alerts",
        context,
        template="alert_settings",
        title="Alert settings",
        url=_url(request, "alert-settings"),
        # A refresh would remove the key from the page.
        live=not key,
        notice=notice,
    )


def _cause_labels(names: list[str]) -> list[str]:
    return [AlertCause(name).label for name in names if name in list(AlertCause)]


def _url(request: HttpRequest, name: str) -> str:
    return "" if request.method == "GET" else reverse(name)
