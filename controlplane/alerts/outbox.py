"""The outbox: messages wait in PostgreSQL until their channel has accepted them.

A worker leases a channel and sends its messages in their order. If it dies, its lease ends and
another one continues: a message whose acceptance was not stored is sent again with the same id.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from arrester.controlplane.alerts import sending
from arrester.controlplane.alerts.audit import SERVER, AlertAct, record
from arrester.controlplane.alerts.encryption import Undecipherable
from arrester.controlplane.alerts.text import MessageKind, MessageText, compose
from arrester.controlplane.alerts.time_limit import AttemptTooLong
from arrester.controlplane.models import (
    Alert,
    AlertChannel,
    AlertMessage,
    AlertRule,
    EventSubscription,
)
from arrester.domain.identity import uuids

log = logging.getLogger(__name__)
#: Longer than an attempt.
LEASE = timedelta(seconds=60)
#: The wait after a failed attempt doubles, between these two.
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=10), timedelta(minutes=10)
#: Older messages are no longer sent.
GIVE_UP_AFTER = timedelta(hours=24)
#: A worker sends for so long, then lets others have a turn.
BUDGET_SECONDS = 20.0


class MessageStatus(StrEnum):
    """The states of a message."""

    PENDING = "PENDING"
    SENT = "SENT"
    #: Not accepted within a day; a person can send it again.
    FAILED = "FAILED"


def add(
    rule: AlertRule | None,
    channel: AlertChannel | None,
    kind: MessageKind,
    alerts: Sequence[Alert],
    *,
    now: datetime,
    about: UUID | None = None,
    text: MessageText | None = None,
) -> None:
    """Add a message to the outbox, in the caller's transaction."""
    if channel is None:
        return
    AlertMessage.objects.create(
        id=uuids.uuid7(now),
        channel=channel,
        channel_name=channel.name,
        rule=rule,
        kind=kind.value,
        about=about,
        alerts=[each.id for each in alerts],
        applications=sorted({each.application for each in alerts}),
        text=(text or compose(kind, alerts)).encode(),
        created_at=now,
        status=MessageStatus.PENDING.value,
        settled=kind in (MessageKind.RESOLVED, MessageKind.TEST),
    )


def channels_to_send(*, now: datetime) -> list[int]:
    """Return the channels with messages about alerts that may be sent now."""
    pending = AlertMessage.objects.filter(
        channel=OuterRef("pk"), status=MessageStatus.PENDING.value
    )
    free = Q(leased_until=None) | Q(leased_until__lt=now)
    due = Q(retry_at=None) | Q(retry_at__lte=now)
    channels = AlertChannel.objects.filter(free, due, subscription=None).filter(Exists(pending))
    return [*channels.order_by("id").values_list("id", flat=True)]


def send_pending(channel_id: int, *, seconds: float = BUDGET_SECONDS) -> int:
    """Send the messages of a channel until one fails or the time is over; return how many."""
    started = now = datetime.now(UTC)
    sent = 0
    while now - started < timedelta(seconds=seconds):
        # The lease is extended before each attempt.
        channel = _lease(channel_id, now, first=not sent)
        message = None if channel is None else _next(channel_id)
        if channel is None:
            return sent
        if message is None:
            break
        if not _attempt(channel, message, now):
            break
        sent += 1
        now = datetime.now(UTC)
    AlertChannel.objects.filter(id=channel_id).update(leased_until=None)
    return sent


def _lease(channel_id: int, now: datetime, *, first: bool) -> AlertChannel | None:
    """Take or extend the lease of a channel; return None if another worker has it."""
    channels = AlertChannel.objects.filter(id=channel_id)
    if first:
        free = Q(leased_until=None) | Q(leased_until__lt=now)
        channels = channels.filter(free, Q(retry_at=None) | Q(retry_at__lte=now))
    if not channels.update(leased_until=now + LEASE):
        return None
    return AlertChannel.objects.get(id=channel_id)


def _next(channel_id: int) -> AlertMessage | None:
    messages = AlertMessage.objects.filter(
        channel_id=channel_id, status=MessageStatus.PENDING.value
    )
    return messages.order_by("created_at", "id").first()


def _attempt(channel: AlertChannel, message: AlertMessage, now: datetime) -> bool:
    """Send one message and store the result; return whether the next one may follow."""
    message.attempts += 1
    try:
        _send(channel, message, now)
    except (sending.NotSent, AttemptTooLong, Undecipherable) as exc:
        return _failed(channel, message, str(exc), now)
    except Exception as exc:  # the library of a channel may raise anything
        log.exception("alert channel %s: sending failed", channel.name)
        return _failed(channel, message, f"{type(exc).__name__}: {exc}"[:300], now)
    _accepted(channel, message)
    AlertChannel.objects.filter(id=channel.id).update(
        failing_since=None, failed_attempts=0, retry_at=None, error=""
    )
    return True


def _send(channel: AlertChannel, message: AlertMessage, now: datetime) -> None:
    if message.kind == MessageKind.EVENTS.value:
        sending.post_events(channel, message.id, message.text.encode(), now=now)
        return
    text = MessageText.decode(message.text)
    resolved = message.kind == MessageKind.RESOLVED.value and message.about
    sending.send(channel, message.id, resolved or message.id, text, now=now)


def _accepted(channel: AlertChannel, message: AlertMessage) -> None:
    """Store that a message was accepted. Events are deleted: the log has them for a replay."""
    now = datetime.now(UTC)
    if message.kind == MessageKind.EVENTS.value:
        message.delete()
        EventSubscription.objects.filter(channel=channel).update(delivered_at=now)
        return
    message.status, message.error, message.sent_at = MessageStatus.SENT.value, "", now
    with transaction.atomic():
        message.save(update_fields=["status", "error", "sent_at", "attempts"])
        title = MessageText.decode(message.text).title
        record(SERVER, channel.name, AlertAct.MESSAGE_SENT, title)


def _failed(channel: AlertChannel, message: AlertMessage, reason: str, now: datetime) -> bool:
    """Store a failed attempt; the channel waits before the next one."""
    message.error = reason
    is_late = now - message.created_at >= GIVE_UP_AFTER
    # Events wait until they are accepted: their order lasts, and the log has the later ones.
    may_give_up = is_late and message.kind != MessageKind.EVENTS.value
    if may_give_up or message.kind == MessageKind.TEST.value:
        message.status = MessageStatus.FAILED.value
    with transaction.atomic():
        # A person may have deleted a webhook with its messages meanwhile.
        AlertMessage.objects.filter(id=message.id).update(
            status=message.status, error=reason, attempts=message.attempts
        )
        if message.status == MessageStatus.FAILED.value:
            title = MessageText.decode(message.text).title
            record(SERVER, channel.name, AlertAct.MESSAGE_FAILED, f"{title}: {reason}")
    wait = min(FIRST_WAIT * 2 ** min(channel.failed_attempts, 10), LONGEST_WAIT)
    AlertChannel.objects.filter(id=channel.id).update(
        failing_since=channel.failing_since or now,
        failed_attempts=channel.failed_attempts + 1,
        retry_at=now + wait,
        error=reason,
    )
    log.warning(
        "alert channel %s: message %s not sent, next attempt in %d s: %s",
        channel.name, message.id, wait.total_seconds(), reason,
    )  # fmt: skip
    return message.status == MessageStatus.FAILED.value
