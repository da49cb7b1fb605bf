"""Acts on alerts, and on their channels, rules and limits."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import queries
from arrester.controlplane.alerts import configuration, reads, routing, subscriptions
from arrester.controlplane.alerts.configuration import LIMITS_MAX, RuleForm
from arrester.controlplane.alerts.subscriptions import SubscriptionForm
from arrester.controlplane.models import AlertRule
from arrester.controlplane.queries.conditions import causes
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.dashboard.components import forms
from arrester.dashboard.page_frame import Notice
from arrester.dashboard.pages import alerts as page
from arrester.dashboard.pages.alerts import REPLAY_HOURS
from arrester.dashboard.permissions import Person, for_admins, for_operators
from arrester.domain.errors import InvalidValue
from arrester.domain.events import EVENT_TYPES

#: In the form of a rule, in place of a channel: that of the owner.
TO_OWNER = "owner"


@require_POST
@for_operators
def acknowledge(request: HttpRequest, who: Person, id: int) -> HttpResponse:
    """Acknowledge an alert."""
    configuration.acknowledge(id, actor=who.name)
    return _alerts(request, who)


@require_POST
@for_operators
def send_again(request: HttpRequest, who: Person, id: UUID) -> HttpResponse:
    """Send a message again."""
    notice = None
    try:
        configuration.send_again(id, actor=who.name)
    except InvalidValue as error:
        notice = Notice(text=f"{error}.", bad=True)
    return _alerts(request, who, notice=notice)


def _alerts(request: HttpRequest, who: Person, *, notice: Notice | None = None) -> HttpResponse:
    show = partial(page.show, request, who, notice=notice)
    return forms.page_after(request, show, redirect_to=reverse("alerts"))


@require_POST
@for_admins
def add_channel(request: HttpRequest, who: Person) -> HttpResponse:
    """Add a channel; the key of a webhook is shown once."""
    address, name = request.POST.get("address", ""), request.POST.get("name", "")
    key, notice = "", None
    try:
        _, key = configuration.add_channel(address, name, actor=who.name)
    except InvalidValue as error:
        notice = Notice(text=f"{error}.", bad=True)
    return _settings(request, who, notice=notice, key=key)


@require_POST
@for_admins
def delete_channel(request: HttpRequest, who: Person, id: int) -> HttpResponse:
    """Delete a channel with its rules."""
    configuration.delete_channel(id, actor=who.name)
    return _settings(request, who)


@require_POST
@for_admins
def test_channel(request: HttpRequest, who: Person, id: int) -> HttpResponse:
    """Send a test message."""
    notice = Notice(text="A test message was requested.", url=reverse("alerts"), link="Messages")
    configuration.request_test(id, actor=who.name)
    return _settings(request, who, notice=notice)


@require_GET
@for_admins
def rule_dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the form of a rule, with `rule` of an existing one."""
    id = request.GET.get("rule", "")
    rule = reads.rule(int(id)) if id.isdecimal() else None
    return _rule_dialog(request, rule)


def _rule_dialog(
    request: HttpRequest, rule: AlertRule | None, *, invalid: str = ""
) -> HttpResponse:
    context = {
        "rule": rule,
        "channels": reads.channels(),
        "names": sorted(queries.log_positions()),
        "causes": [(each.value, each.label, each.critical) for each in causes.ALERTS],
        "posted": request.POST,
        "posted_causes": request.POST.getlist("cause"),
        "invalid": invalid,
    }
    return forms.dialog(request, "alert_rule", context)


@require_POST
@for_admins
def save_rule(request: HttpRequest, who: Person) -> HttpResponse:
    """Add or change a rule; with `preview` show what it would have sent in the last day."""
    id = request.POST.get("rule", "")
    rule = reads.rule(int(id)) if id.isdecimal() else None
    try:
        form = _rule_form(request.POST)
        if "preview" in request.POST:
            return _preview(request, form)
        configuration.save_rule(None if rule is None else rule.id, form, actor=who.name)
    except InvalidValue as error:
        return _rule_dialog(request, rule, invalid=f"{error}.")
    return _settings(request, who)


def _preview(request: HttpRequest, form: RuleForm) -> HttpResponse:
    rule = AlertRule(
        channel_id=form.channel,
        application=form.application,
        causes=[each.value for each in form.causes],
        only_critical=form.only_critical,
        throttle_seconds=60 * form.throttle_minutes,
        quiet_from=form.quiet_from,
        quiet_until=form.quiet_until,
        time_zone=form.time_zone,
    )
    messages = routing.preview(rule, now=timezone.now())
    context = {"messages": messages[:50], "total": len(messages)}
    response = forms.dialog(request, "alert_preview", context)
    response["HX-Retarget"], response["HX-Reswap"] = "#rule-preview", "innerHTML"
    return response


@require_POST
@for_admins
def delete_rule(request: HttpRequest, who: Person, id: int) -> HttpResponse:
    """Delete a rule."""
    configuration.delete_rule(id, actor=who.name)
    return _settings(request, who)


@require_GET
@for_admins
def subscription_dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the form of a webhook that receives events."""
    return _subscription_dialog(request)


def _subscription_dialog(request: HttpRequest, *, invalid: str = "") -> HttpResponse:
    context = {
        "names": sorted(queries.log_positions()),
        "types": sorted(EVENT_TYPES),
        "posted": request.POST,
        "chosen": request.POST.getlist("event_type"),
        "invalid": invalid,
    }
    return forms.dialog(request, "event_subscription", context)


@require_POST
@for_admins
def add_subscription(request: HttpRequest, who: Person) -> HttpResponse:
    """Add a webhook that receives events; its key is shown once."""
    form = SubscriptionForm(
        address=request.POST.get("address", ""),
        event_types=tuple(request.POST.getlist("event_type")),
        application=request.POST.get("application", ""),
        name=request.POST.get("name", ""),
    )
    try:
        _, key = subscriptions.add(form, actor=who.name)
    except InvalidValue as error:
        return _subscription_dialog(request, invalid=f"{error}.")
    return _settings(request, who, key=key)


@require_POST
@for_admins
def delete_subscription(request: HttpRequest, who: Person, id: int) -> HttpResponse:
    """Delete a webhook that receives events."""
    subscriptions.delete(id, actor=who.name)
    return _settings(request, who)


@require_POST
@for_admins
def replay_subscription(request: HttpRequest, who: Person, id: int) -> HttpResponse:
    """Deliver the events of the last hours again."""
    hours = _number("hours", request.POST)
    if hours not in REPLAY_HOURS:
        raise InvalidValue("hours", hours, ", ".join(map(str, REPLAY_HOURS)))
    subscriptions.replay(id, timezone.now() - timedelta(hours=hours), actor=who.name)
    period = REPLAY_HOURS[hours]
    return _settings(
        request, who, notice=Notice(text=f"Events of the {period} are delivered again.")
    )


@require_GET
@for_admins
def limits_dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the form of limits, of all applications or of one."""
    return _limits_dialog(request, request.GET.get("application", ""))


def _limits_dialog(request: HttpRequest, application: str, *, invalid: str = "") -> HttpResponse:
    limits = causes.read_limits()
    present = limits.of(application) if application else limits.default
    context = {
        "application": application,
        "names": sorted(queries.log_positions()),
        "fields": [
            (
                name,
                *page.LIMIT_LABELS[name],
                most,
                request.POST.get(name, "" if (value := getattr(present, name)) is None else value),
            )
            for name, most in LIMITS_MAX.items()
        ],
        "invalid": invalid,
    }
    return forms.dialog(request, "alert_limits", context)


@require_POST
@for_admins
def set_limits(request: HttpRequest, who: Person) -> HttpResponse:
    """Set the limits of an application."""
    application = request.POST.get("application", "")
    try:
        values = {name: _number(name, request.POST) for name in LIMITS_MAX}
        configuration.set_limits(application, values, actor=who.name)
    except InvalidValue as error:
        return _limits_dialog(request, application, invalid=f"{error}.")
    return _settings(request, who)


def _settings(
    request: HttpRequest, who: Person, *, notice: Notice | None = None, key: str = ""
) -> HttpResponse:
    """Return the settings after an act."""
    show = partial(page.show_settings, request, who, notice=notice, key=key)
    # Without JavaScript, notice and key are shown here, too: a redirect would lose them.
    if "HX-Request" not in request.headers and (notice is not None or key):
        return show()
    return forms.page_after(request, show, redirect_to=reverse("alert-settings"))


def _rule_form(posted: QueryDict) -> RuleForm:
    """Return the values of the form; raise InvalidValue."""
    names = posted.getlist("cause")
    for name in names:
        if name not in causes.ALERTS:
            raise InvalidValue("cause", name[:50], ", ".join(causes.ALERTS))
    every = posted.get("every") == "1"
    to_owner = posted.get("channel") == TO_OWNER
    return RuleForm(
        name=posted.get("name", ""),
        channel=None if to_owner else _number("channel", posted) or 0,
        application=posted.get("application", ""),
        causes=() if every else tuple(AlertCause(name) for name in names),
        only_critical=posted.get("only_critical") == "1",
        throttle_minutes=_number("throttle_minutes", posted) or 0,
        quiet_from=_time("quiet_from", posted),
        quiet_until=_time("quiet_until", posted),
        time_zone=posted.get("time_zone", "").strip() or "UTC",
        escalate_minutes=_number("escalate_minutes", posted),
        escalate_to=_number("escalate_to", posted),
        enabled=posted.get("enabled") == "1",
    )


def _number(name: str, posted: Any) -> int | None:
    text = posted.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 10:
        raise InvalidValue(name, text[:50], "a whole number")
    return int(text)


def _time(name: str, posted: QueryDict) -> time | None:
    text = posted.get(name, "").strip()
    if not text:
        return None
    try:
        return datetime.strptime(text, "%H:%M").time()
    except ValueError:
        raise InvalidValue(name, text[:50], "a time such as 22:00") from None
