"""Subscriptions: webhooks that receive the events of chosen types, by the outbox of alerts.

A subscription has a cursor of the feed, so nothing is missed while the server or the receiver is
down: events become messages only while few wait, and the log is the buffer. They are delivered at
least once, the messages one after the other, each application's events in their order.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from django.db import transaction
from django.db.models import Count, Q

from arrester.controlplane import queries, store
from arrester.controlplane.alerts import addresses, configuration, outbox
from arrester.controlplane.alerts.audit import AlertAct, record
from arrester.controlplane.alerts.outbox import MessageStatus
from arrester.controlplane.alerts.text import MessageKind
from arrester.controlplane.models import AlertChannel, AlertMessage, EventSubscription
from arrester.controlplane.queries import event_feed, event_lines
from arrester.domain.errors import BeforeHistory, InvalidValue, NotFound
from arrester.domain.events import EVENT_TYPES, StoredEvent
from arrester.domain.identity import uuids

#: The most events of a message, and their bytes, apart from the last one.
EVENTS_PER_MESSAGE, MESSAGE_BYTES = 100, 256 * 1024
#: No more messages of a subscription are made while so many wait.
MOST_WAITING = 20
#: The events that are read at once.
PORTION = 2_000
#: How many times as long as it took a slow receiver rests.
REST = 4
#: The most subscriptions.
MOST = 100


class SubscriptionForm(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a subscription."""

    address: str
    event_types: tuple[str, ...]
    application: str = ""
    name: str = ""


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription and its state."""

    id: int
    channel: int
    name: str
    #: Without its secrets.
    address: str
    event_types: tuple[str, ...]
    application: str
    created_at: datetime
    #: When the webhook last accepted events.
    delivered_at: datetime | None
    #: Messages that are not accepted yet.
    waiting: int
    #: Events of its applications, of any type, that it has not looked at yet.
    unread: int
    #: Since when each attempt has failed; None: the last one succeeded.
    failing_since: datetime | None
    #: When the next attempt is, and why the last one failed.
    retry_at: datetime | None
    error: str


def subscriptions() -> list[Subscription]:
    """Return all subscriptions by name."""
    of_events = Q(channel__alertmessage__kind=MessageKind.EVENTS.value)
    rows = EventSubscription.objects.select_related("channel").order_by("channel__name")
    streams = store.all_streams()
    return [
        _state(each, streams)
        for each in rows.annotate(waiting=Count("channel__alertmessage", filter=of_events))
    ]


def subscription(id: int) -> Subscription:
    """Return a subscription; raise NotFound."""
    for each in subscriptions():
        if each.id == id:
            return each
    raise NotFound(f"there is no event subscription {id}")


def _state(row: EventSubscription, streams: Sequence[store.LogStream]) -> Subscription:
    positions, channel = event_feed.unpack_cursor(row.cursor), row.channel
    own = [each for each in streams if row.application in ("", each.application)]
    return Subscription(
        id=row.id,
        channel=channel.id,
        name=channel.name,
        address=channel.shown_address,
        event_types=tuple(row.event_types),
        application=row.application,
        created_at=row.created_at,
        delivered_at=row.delivered_at,
        waiting=getattr(row, "waiting", 0),
        unread=sum(max(0, each.sequence - positions.get(each.id, 0)) for each in own),
        failing_since=channel.failing_since,
        retry_at=channel.retry_at,
        error=channel.error,
    )


@transaction.atomic
def add(form: SubscriptionForm, *, actor: str) -> tuple[Subscription, str]:
    """Add a subscription, from the present end of the log on; return it, and the key that signs its
    webhooks, which is not shown again.

    Raises InvalidValue for the first value that is not allowed.
    """
    for name in form.event_types:
        if name not in EVENT_TYPES:
            raise InvalidValue("event_types", name[:100], ", ".join(EVENT_TYPES))
    if not form.event_types:
        raise InvalidValue("event_types", "", "at least one type")
    if EventSubscription.objects.count() >= MOST:
        raise InvalidValue("address", form.address[:60], f"at most {MOST} subscriptions")
    if form.application:
        queries.check_known(form.application)
    address = addresses.parse(form.address)
    if address.service != addresses.WEBHOOK:
        allowed = "an https:// or http:// address of a webhook"
        raise InvalidValue("address", address.shown, allowed)
    channel = configuration.create_channel(address, form.name)
    row = EventSubscription.objects.create(
        channel=channel,
        event_types=sorted({*form.event_types}),
        application=form.application,
        cursor=queries.feed(form.application or None, last=0).next,
        created_at=datetime.now(UTC),
    )
    about = f"{', '.join(row.event_types)} of {form.application or 'all applications'}"
    record(actor, channel.name, AlertAct.SUBSCRIPTION_ADDED, f"{address.shown}: {about}")
    return subscription(row.id), address.key


@transaction.atomic
def delete(id: int, *, actor: str) -> None:
    """Delete a subscription with its waiting messages."""
    row = _locked(id)
    AlertMessage.objects.filter(channel=row.channel).delete()
    row.channel.delete()
    record(actor, row.channel.name, AlertAct.SUBSCRIPTION_DELETED, "")


@transaction.atomic
def replay(id: int, since: datetime, *, actor: str) -> None:
    """Deliver the events after a time again, as far as the log has them."""
    row = _locked(id)

    def begin(stream: store.LogStream, base: int, position: int) -> int:
        return min(position, max(base, store.position_at(stream.application, since)))

    row.cursor = _moved(row, begin)
    row.save(update_fields=["cursor"])
    # A person waits: not for the next attempt after earlier failures.
    row.channel.retry_at = None
    row.channel.save(update_fields=["retry_at"])
    text = f"{since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    record(actor, row.channel.name, AlertAct.SUBSCRIPTION_REPLAYED, f"from {text}")


def _locked(id: int) -> EventSubscription:
    rows = EventSubscription.objects.select_related("channel").select_for_update(of=("self",))
    found = rows.filter(id=id).first()
    if found is None:
        raise NotFound(f"there is no event subscription {id}")
    return found


def _moved(row: EventSubscription, move: Callable[[store.LogStream, int, int], int]) -> str:
    """Return the cursor with each log's position moved: by its first position and the present
    one."""
    positions, bases = event_feed.unpack_cursor(row.cursor), store.bases()
    for stream in store.all_streams():
        if row.application in ("", stream.application):
            base = bases.get(stream.application, store.LogBeginning()).position
            # An application without a position is newer than the subscription.
            positions[stream.id] = move(stream, base, positions.get(stream.id, 0))
    return event_feed.pack_cursor(positions)


def ids() -> list[int]:
    """Return the numbers of all subscriptions."""
    return [*EventSubscription.objects.order_by("id").values_list("id", flat=True)]


def deliver(id: int, *, seconds: float) -> None:
    """Send new events of a subscription for so long; the next call continues.

    A slow receiver then rests for a multiple of the time that it took, since one process sends to
    all receivers.
    """
    row = EventSubscription.objects.filter(id=id).first()
    if row is None:
        return
    begin = time.monotonic()
    spent, is_more = 0.0, True
    while spent < seconds and is_more:
        added = _collect(id)
        sent = outbox.send_pending(row.channel_id, seconds=seconds - spent)
        is_more = bool(added or sent)
        spent = time.monotonic() - begin
    if spent > 2 * seconds:
        rested = datetime.now(UTC) + timedelta(seconds=REST * spent)
        AlertChannel.objects.filter(id=row.channel_id, failing_since=None).update(retry_at=rested)


@transaction.atomic(durable=True)
def _collect(id: int) -> bool:
    """Add the messages of a portion of events; return whether there are more to add now."""
    rows = EventSubscription.objects.select_for_update(skip_locked=True, of=("self",))
    row = rows.filter(id=id).first()
    if row is None:
        return False
    kind = MessageKind.EVENTS.value
    waiting = AlertMessage.objects.filter(channel_id=row.channel_id, kind=kind)
    if waiting.count() >= MOST_WAITING:
        return False
    cursor = _moved(row, lambda _stream, _base, position: position)
    try:
        feed = queries.feed(row.application or None, cursor=cursor, limit=PORTION)
    except (BeforeHistory, InvalidValue):
        _skip_missing(row)
        return True
    wanted = {*row.event_types}
    for content in _contents([each for each in feed.events if each.event.type in wanted]):
        _add(row, *content)
    row.cursor = feed.next
    row.save(update_fields=["cursor"])
    return feed.more


def _skip_missing(row: EventSubscription) -> None:
    """Move the cursor to events that the log has, and report the log positions that it skips.

    Retention has dropped them, or the database is an older backup.
    """

    def inside(stream: store.LogStream, base: int, position: int) -> int:
        found = min(max(position, base), stream.sequence)
        if found != position:
            data = {"application": stream.application, "after": position, "next": found + 1}
            _add(row, stream.application, "events.missing", data)
        return found

    row.cursor = _moved(row, inside)
    row.save(update_fields=["cursor"])


def _contents(events: Sequence[StoredEvent]) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield the application, the type and the data of each message."""
    by_application: defaultdict[str, list[StoredEvent]] = defaultdict(list)
    for each in events:
        by_application[each.application].append(each)
    for application, some in by_application.items():
        lines: list[msgspec.Raw] = []
        size = 0
        for line in event_lines.lines(some):
            lines.append(msgspec.Raw(line))
            size += len(line)
            if len(lines) == EVENTS_PER_MESSAGE or size >= MESSAGE_BYTES:
                yield application, "events.stored", {"application": application, "events": lines}
                lines, size = [], 0
        if lines:
            yield application, "events.stored", {"application": application, "events": lines}


def _add(row: EventSubscription, application: str, type: str, data: dict[str, object]) -> None:
    """Add a message to the outbox, in the caller's transaction."""
    now = datetime.now(UTC)
    id = uuids.uuid7(now)
    content = event_lines.encode({"type": type, "timestamp": now, "data": {"id": str(id), **data}})
    AlertMessage.objects.create(
        id=id,
        channel_id=row.channel_id,
        channel_name="",
        kind=MessageKind.EVENTS.value,
        applications=[application],
        text=content.decode(),
        created_at=now,
        status=MessageStatus.PENDING.value,
        settled=True,
    )
