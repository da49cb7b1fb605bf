"""Put messages about alerts into the outbox, as the rules require."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db.models import QuerySet

from arrester.controlplane import store
from arrester.controlplane.alerts.outbox import MessageStatus, add
from arrester.controlplane.alerts.owner_channels import channels_of_owners, may_receive
from arrester.controlplane.alerts.text import MessageKind
from arrester.controlplane.models import Alert, AlertChannel, AlertMessage, AlertRule
from arrester.controlplane.queries.conditions.causes import AlertCause

#: Less urgent than any cause.
_LEAST = len(AlertCause) + 1
#: Services with incidents, which have to be resolved even if the end of the cause is no news.
_INCIDENTS = ("Pager Duty", "Opsgenie")


def route(*, now: datetime) -> None:
    """Add the messages that are due. Call it under the lock of alerts."""
    rules = [*AlertRule.objects.filter(enabled=True).select_related("channel", "escalate_to")]
    open_alerts = [*Alert.objects.filter(resolved_at=None, acknowledged_at=None).order_by("id")]
    for rule in rules:
        _fire(rule, open_alerts, now)
    _follow_up(rules, now)


def matches(rule: AlertRule, alert: Alert) -> bool:
    """Return whether a rule is about an alert, at any time of the day."""
    if rule.application and rule.application != alert.application:
        return False
    if rule.causes and alert.cause not in rule.causes:
        return False
    return alert.critical or not rule.only_critical


def is_quiet(rule: AlertRule, now: datetime) -> bool:
    """Return whether it is in the quiet hours of a rule, which may include midnight."""
    begin, end = rule.quiet_from, rule.quiet_until
    if begin is None or end is None or begin == end:
        return False
    time = now.astimezone(ZoneInfo(rule.time_zone)).time()
    return begin <= time < end if begin < end else time >= begin or time < end


def _fire(rule: AlertRule, open_alerts: Iterable[Alert], now: datetime) -> None:
    """Add a message for each application with alerts that the rule has not sent and may send now.

    In a message of several, the alerts of one could hide those of another, and delay their end.
    """
    quiet = is_quiet(rule, now)
    wanted = [each for each in open_alerts if matches(rule, each)]
    wanted = [each for each in wanted if each.critical or not quiet]
    if rule.channel is not None:
        _fire_to(rule.channel, rule, wanted, _messages(rule), now)
        return
    by_channel: defaultdict[int, list[Alert]] = defaultdict(list)
    channels = channels_of_owners(wanted)
    for alert in wanted:
        if alert.id in channels:
            by_channel[channels[alert.id].id].append(alert)
    by_id = {channel.id: channel for channel in channels.values()}
    for id, some in by_channel.items():
        # An alert is sent to a new owner, too.
        _fire_to(by_id[id], rule, some, _messages(rule).filter(channel=id), now)


def _messages(rule: AlertRule) -> QuerySet[AlertMessage]:
    """Return what a rule has sent about alerts that began."""
    return AlertMessage.objects.filter(rule=rule, kind=MessageKind.FIRED.value)


def _fire_to(
    channel: AlertChannel,
    rule: AlertRule,
    wanted: Sequence[Alert],
    messages: QuerySet[AlertMessage],
    now: datetime,
) -> None:
    """Add messages for a channel; `messages` are those before."""
    if not wanted:
        return
    sent = _sent(messages, [each.id for each in wanted])
    lately = messages.filter(created_at__gt=now - timedelta(seconds=rule.throttle_seconds))
    throttled = _throttled(lately)
    new: defaultdict[str, list[Alert]] = defaultdict(list)
    for alert in wanted:
        if alert.id not in sent and not _waits(alert, throttled):
            new[alert.application].append(alert)
    for some in new.values():
        add(rule, channel, MessageKind.FIRED, some, now=now)


def _sent(messages: QuerySet[AlertMessage], ids: Sequence[int]) -> set[int]:
    """Return those of some alerts that messages have sent already."""
    sent = messages.filter(alerts__overlap=ids)
    return {id for alerts in sent.values_list("alerts", flat=True) for id in alerts}


def _throttled(messages: QuerySet[AlertMessage]) -> dict[str, int]:
    """Return the applications that messages of lately are about, each with the most urgent cause.

    An alert that is more urgent does not wait.
    """
    ids = {id for alerts in messages.values_list("alerts", flat=True) for id in alerts}
    sent: dict[str, int] = {}
    for application, cause in Alert.objects.filter(id__in=ids).values_list("application", "cause"):
        urgency = AlertCause(cause).urgency
        sent[application] = min(urgency, sent.get(application, urgency))
    return sent


def _waits(alert: Alert, throttled: Mapping[str, int]) -> bool:
    return AlertCause(alert.cause).urgency >= throttled.get(alert.application, _LEAST)


def _follow_up(rules: Sequence[AlertRule], now: datetime) -> None:
    """Escalate the messages on which no person has acted, and report the end of resolved ones."""
    by_id = {rule.id: rule for rule in rules}
    unsettled = AlertMessage.objects.filter(settled=False).select_related("channel")
    messages = [*unsettled.order_by("created_at", "id")]
    alert_by_id = Alert.objects.in_bulk({id for each in messages for id in each.alerts})
    escalated = _escalated([each.id for each in messages])
    for message in messages:
        alerts = [alert_by_id[id] for id in message.alerts if id in alert_by_id]
        # New errors and commands have no end that is news: the others do not wait for them.
        lasting = [each for each in alerts if AlertCause(each.cause).lasts] or alerts
        if all(each.resolved_at is not None for each in lasting):
            if message.status != MessageStatus.PENDING.value:
                _settle(message, lasting, now)
        elif message.kind == MessageKind.FIRED.value and message.id not in escalated:
            rule = by_id.get(message.rule_id or 0)
            if rule is not None and _is_ignored(rule, message, alerts, now):
                waiting = [each for each in alerts if each.resolved_at is None]
                add(
                    rule,
                    rule.escalate_to,
                    MessageKind.ESCALATED,
                    waiting,
                    now=now,
                    about=message.id,
                )


def _escalated(ids: Sequence[UUID]) -> set[UUID | None]:
    messages = AlertMessage.objects.filter(kind=MessageKind.ESCALATED.value, about__in=ids)
    return set(messages.values_list("about", flat=True))


def _settle(message: AlertMessage, alerts: Sequence[Alert], now: datetime) -> None:
    """Report the end of all alerts of a message, if it is news, and be done with it."""
    message.settled = True
    message.save(update_fields=["settled"])
    channel = message.channel
    if channel is None or message.status != MessageStatus.SENT.value:
        return
    if not all(may_receive(channel, each) for each in message.applications):
        return
    if _needs_end(channel, alerts):
        add(message.rule, channel, MessageKind.RESOLVED, alerts, now=now, about=message.id)


def _needs_end(channel: AlertChannel, alerts: Iterable[Alert]) -> bool:
    return channel.service in _INCIDENTS or any(AlertCause(each.cause).lasts for each in alerts)


def _is_ignored(
    rule: AlertRule, message: AlertMessage, alerts: Sequence[Alert], now: datetime
) -> bool:
    """Return whether a message is so old that it escalates, and no person has acted since."""
    if rule.escalate_seconds is None or rule.escalate_to is None:
        return False
    if now - message.created_at < timedelta(seconds=rule.escalate_seconds):
        return False
    waiting = [each for each in alerts if each.resolved_at is None]
    return not any(
        each.acknowledged_at is not None or _acted(each.application, message.created_at)
        for each in waiting
    )


def _acted(application: str, since: datetime) -> bool:
    """Return whether a person has acted on an application since a time."""
    if not application:
        return False
    wanted = store.ActionQuery(application=application, since=since)
    return bool(store.read_actions(wanted, before=None, limit=1))


def preview(rule: AlertRule, *, now: datetime) -> list[tuple[datetime, list[Alert]]]:
    """Return the messages that a rule would have sent about the alerts of the last day."""
    opened = Alert.objects.filter(opened_at__gt=now - timedelta(days=1)).order_by("opened_at", "id")
    throttle = timedelta(seconds=rule.throttle_seconds)
    messages: list[tuple[datetime, list[Alert]]] = []
    by_application: dict[str, list[tuple[datetime, list[Alert]]]] = defaultdict(list)
    alerts = [*opened]
    if rule.channel_id is None:
        owned = channels_of_owners(alerts)
        alerts = [each for each in alerts if each.id in owned]
    for alert in alerts:
        if not matches(rule, alert) or (is_quiet(rule, alert.opened_at) and not alert.critical):
            continue
        earlier = by_application[alert.application]
        lately = [each for each in earlier if alert.opened_at - each[0] <= throttle]
        urgency = AlertCause(alert.cause).urgency
        # The next message, which the throttle delays, is as good as the last one here.
        if any(urgency >= _urgency(about) for _, about in lately):
            lately[-1][1].append(alert)
            continue
        earlier.append((alert.opened_at, [alert]))
        messages.append(earlier[-1])
    return messages


def _urgency(alerts: Iterable[Alert]) -> int:
    return min(AlertCause(each.cause).urgency for each in alerts)
