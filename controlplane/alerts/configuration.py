"""Changes of channels, rules and limits by admins, each recorded in the audit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, time
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from django.db import IntegrityError, transaction

from arrester.controlplane import access
from arrester.controlplane.alerts import addresses, outbox, sending
from arrester.controlplane.alerts.audit import AlertAct, record
from arrester.controlplane.alerts.text import MessageKind, test_message
from arrester.controlplane.models import (
    Alert,
    AlertChannel,
    AlertLimits,
    AlertMessage,
    AlertRule,
)
from arrester.controlplane.queries.conditions.causes import AlertCause, Limits
from arrester.domain.errors import InvalidValue, NotFound

NAME_MAX = 100
#: The largest allowed value of each limit.
LIMITS_MAX = {
    "failures_per_minute": 10**9,
    "tolerance_percent": 100,
    "held_minutes": 100_000,
    "replaced_per_hour": 10_000,
    "silent_hours": 10_000,
    "no_batch_minutes": 100_000,
    "batch_minutes": 100_000,
    "backlog_minutes": 1_440,
    "failed_percent": 100,
}
THROTTLE_MAX_MINUTES, ESCALATE_MAX_MINUTES = 1440, 10_080


class RuleForm(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a rule."""

    name: str
    #: None: the channel of the owner of what an alert is about.
    channel: int | None
    application: str = ""
    causes: tuple[AlertCause, ...] = ()
    only_critical: bool = False
    throttle_minutes: int = 5
    quiet_from: time | None = None
    quiet_until: time | None = None
    time_zone: str = "UTC"
    escalate_minutes: int | None = None
    escalate_to: int | None = None
    enabled: bool = True


@transaction.atomic
def add_channel(address: str, name: str = "", *, actor: str) -> tuple[AlertChannel, str]:
    """Add a channel; return it, and the key that signs its webhooks, which is not shown again.

    The first channel gets a rule that sends it everything. Raises InvalidValue for an unusable
    address, or a name that another channel has.
    """
    parsed = addresses.parse(address)
    first = not AlertChannel.objects.filter(user=None, subscription=None).exists()
    channel = create_channel(parsed, name)
    record(actor, channel.name, AlertAct.CHANNEL_ADDED, f"{parsed.service}: {parsed.shown}")
    if first and not AlertRule.objects.exclude(channel=None).exists():
        save_rule(None, RuleForm(name="All alerts", channel=channel.id), actor=actor)
    return channel, parsed.key


def create_channel(address: addresses.Address, name: str = "") -> AlertChannel:
    """Create the row of a channel; raise InvalidValue for a name that another one has."""
    name = _name(name.strip() or address.shown)
    try:
        with transaction.atomic():
            return AlertChannel.objects.create(
                name=name,
                service=address.service,
                shown_address=address.shown,
                secret=sending.encrypt_address(address),
                created_at=datetime.now(UTC),
            )
    except IntegrityError:
        raise InvalidValue("name", name, "a name that no other channel has") from None


@transaction.atomic
def delete_channel(id: int, *, actor: str) -> None:
    """Delete a channel, its rules and its waiting messages; sent messages stay in the history."""
    channel = _get(AlertChannel, id)
    AlertMessage.objects.filter(channel=channel, status=outbox.MessageStatus.PENDING.value).delete()
    channel.delete()
    record(actor, channel.name, AlertAct.CHANNEL_DELETED, "")


@transaction.atomic
def request_test(id: int, *, actor: str) -> None:
    """Add a test message for a channel."""
    channel = _get(AlertChannel, id)
    # A person waits: not for the next attempt after earlier failures.
    AlertChannel.objects.filter(id=id).update(retry_at=None)
    text = test_message(channel.name, actor)
    outbox.add(None, channel, MessageKind.TEST, (), now=datetime.now(UTC), text=text)
    record(actor, channel.name, AlertAct.CHANNEL_TESTED, "")


def send_again(id: UUID, *, actor: str) -> None:
    """Send a message again, with its id; raise InvalidValue while it waits anyway.

    Requires the role operator on all its applications.
    """
    message = _seen(AlertMessage, id)
    with access.acting_on(*(message.applications or [None])):
        _send_again(id, actor=actor)


@transaction.atomic
def _send_again(id: UUID, *, actor: str) -> None:
    message = _get(AlertMessage, id)
    if message.channel is None:
        raise InvalidValue("message", str(id), "a message whose channel was not deleted")
    if message.status == outbox.MessageStatus.PENDING.value:
        raise InvalidValue("message", str(id), "a SENT or FAILED message; this one is PENDING")
    message.status = outbox.MessageStatus.PENDING.value
    message.save(update_fields=["status"])
    AlertChannel.objects.filter(id=message.channel_id).update(retry_at=None)
    record(actor, message.channel_name, AlertAct.MESSAGE_REPEATED, str(id))


@transaction.atomic
def save_rule(id: int | None, form: RuleForm, *, actor: str) -> AlertRule:
    """Change a rule, or add one without `id`; raise InvalidValue for the first invalid value."""
    rule = AlertRule(created_at=datetime.now(UTC)) if id is None else _get(AlertRule, id)
    rule.name = _name(form.name.strip())
    rule.channel = None if form.channel is None else _get(AlertChannel, form.channel)
    rule.application = form.application
    rule.causes = [cause.value for cause in form.causes]
    rule.only_critical, rule.enabled = form.only_critical, form.enabled
    rule.throttle_seconds = 60 * _within(
        "throttle_minutes", form.throttle_minutes, 0, THROTTLE_MAX_MINUTES
    )
    if (form.quiet_from is None) != (form.quiet_until is None):
        raise InvalidValue("quiet_until", form.quiet_until, "both times of the quiet hours")
    rule.quiet_from, rule.quiet_until = form.quiet_from, form.quiet_until
    rule.time_zone = _time_zone(form.time_zone)
    if (form.escalate_minutes is None) != (form.escalate_to is None):
        raise InvalidValue("escalate_to", form.escalate_to, "minutes and a channel, or neither")
    rule.escalate_seconds = rule.escalate_to = None
    if form.escalate_minutes is not None and form.escalate_to is not None:
        rule.escalate_seconds = 60 * _within(
            "escalate_minutes", form.escalate_minutes, 1, ESCALATE_MAX_MINUTES
        )
        rule.escalate_to = _get(AlertChannel, form.escalate_to)
    try:
        with transaction.atomic():
            rule.save()
    except IntegrityError:
        raise InvalidValue("name", form.name, "a name that no other rule has") from None
    record(actor, rule.name, AlertAct.RULE_SAVED, "" if form.enabled else "disabled")
    return rule


@transaction.atomic
def delete_rule(id: int, *, actor: str) -> None:
    """Delete a rule; what it has sent is resolved as before."""
    rule = _get(AlertRule, id)
    rule.delete()
    record(actor, rule.name, AlertAct.RULE_DELETED, "")


@transaction.atomic
def set_limits(application: str, values: Mapping[str, int | None], *, actor: str) -> None:
    """Set the limits of an application, or with an empty name those of all others."""
    checked = {
        name: None if (value := values.get(name)) is None else _within(name, value, 1, most)
        for name, most in LIMITS_MAX.items()
    }
    limits = Limits(**checked)
    AlertLimits.objects.update_or_create(
        application=application, defaults=msgspec.structs.asdict(limits)
    )
    detail = ", ".join(f"{name} {value}" for name, value in checked.items() if value is not None)
    record(actor, application or "all applications", AlertAct.LIMITS_SET, detail)


def acknowledge(id: int, *, actor: str) -> Alert:
    """Record that a person takes care of an alert: it is not sent or escalated any more.

    A repetition, or one after its end, changes nothing. Requires the role operator on its
    application.
    """
    with access.acting_on(_seen(Alert, id).application or None):
        return _acknowledge(id, actor=actor)


@transaction.atomic
def _acknowledge(id: int, *, actor: str) -> Alert:
    alert: Alert = _get(Alert, id)
    if alert.acknowledged_at is None and alert.resolved_at is None:
        alert.acknowledged_at, alert.acknowledged_by = datetime.now(UTC), actor
        alert.save(update_fields=["acknowledged_at", "acknowledged_by"])
        record(actor, alert.application or "server", AlertAct.ACKNOWLEDGED, alert.title)
    return alert


def _get(model: Any, id: Any) -> Any:
    return _one(model, model.objects.select_for_update(), id)


def _seen(model: Any, id: Any) -> Any:
    """Return a row that the person of the request may see, without a lock; raise NotFound."""
    return _one(model, model.objects.all(), id)


def _one(model: Any, rows: Any, id: Any) -> Any:
    found = rows.filter(pk=id).first()
    if found is None:
        raise NotFound(f"there is no {model._meta.verbose_name} {id}")
    return found


def _name(text: str) -> str:
    if not text or len(text) > NAME_MAX or not text.isprintable():
        raise InvalidValue("name", text[:50], f"1 to {NAME_MAX} printable characters")
    return text


def _within(name: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise InvalidValue(name, value, f"a whole number from {least} to {most:,}")
    return value


def _time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        allowed = "a name of the time zone database, such as UTC or Europe/Vienna"
        raise InvalidValue("time_zone", name, allowed) from None
    return name
