"""Webhooks of events: each one is delivered, in order, whichever part was down."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from redis import Redis

from arrester.controlplane import models, store, tasks
from arrester.controlplane.alerts import (
    configuration,
    outbox,
    owner_channels,
    reads,
    sending,
    subscriptions,
)
from arrester.controlplane.alerts.subscriptions import SubscriptionForm
from arrester.controlplane.celery import app
from arrester.controlplane.celery_workers import HOUSEKEEPING
from arrester.domain.errors import InvalidValue, NotFound
from tests import histories, services
from tests.controlplane import streams
from tests.controlplane.alerts.receivers import Receiver
from tests.controlplane.lost_connections import wait_until_closed
from tests.histories import APPLICATION
from tests.services import REPOSITORY

pytestmark = pytest.mark.usefixtures("fresh_database", "redis")


def append(first: int, count: int = 1, application: str = APPLICATION, **more: Any) -> None:
    events = [histories.failed(number) for number in range(first, first + count)]
    more.setdefault("received_at", datetime.now(UTC))
    streams.append(events, application=application, **more)


def subscribe(receiver: Receiver, *types: str, **more: Any) -> tuple[int, str]:
    form = SubscriptionForm(address=receiver.url, event_types=types or ("RecordFailed",), **more)
    added, key = subscriptions.add(form, actor="adam")
    return added.id, key


def deliver() -> None:
    """Do what a worker does every few seconds."""
    for id in subscriptions.ids():
        subscriptions.deliver(id, seconds=5)


def received(receiver: Receiver) -> list[tuple[str, int]]:
    """Return application and log position of each event that was accepted, in order."""
    bodies = [json.loads(each.content)["data"] for each in receiver.requests]
    return [(each["application"], each["sequence"]) for body in bodies for each in body["events"]]


def of_the_docs() -> Callable[[str, dict[str, str], bytes], bool]:
    """Return the function of the how-to that checks a signature."""
    page = REPOSITORY.joinpath("docs/how-to/send-events.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    function: Callable[[str, dict[str, str], bytes], bool] = names["is_genuine"]
    return function


def test_chosen_events_are_delivered_once_signed_and_in_order(receiver: Receiver) -> None:
    append(0)
    id, key = subscribe(receiver)
    append(1, 250)
    streams.append(histories.started(), received_at=datetime.now(UTC), application="other")
    append(0, 1, "other")
    deliver()
    deliver()
    assert received(receiver) == [(APPLICATION, number) for number in range(2, 252)] + [
        ("other", 3)
    ]
    request = receiver.requests[0]
    body = json.loads(request.content)
    assert (body["type"], len(body["data"]["events"])) == ("events.stored", 100)
    assert body["data"]["id"] == request.headers["webhook-id"]
    assert body["data"]["events"][0]["type"] == "RecordFailed"
    is_genuine = of_the_docs()
    assert is_genuine(key, request.headers, request.content)
    assert not is_genuine(key, request.headers, request.content + b" ")

    state = subscriptions.subscription(id)
    assert (state.waiting, state.unread, state.failing_since) == (0, 0, None)
    assert state.delivered_at is not None
    # They are neither alerts nor kept: the log has them.
    assert reads.messages() == [] and not models.AlertMessage.objects.exists()
    assert reads.channels() == []


def test_a_subscription_has_one_application_and_the_types_of_its_form(receiver: Receiver) -> None:
    streams.append(histories.started(), received_at=datetime.now(UTC), application="other")
    append(0)
    subscribe(receiver, "InstanceStarted", application="other")
    for name in ("other", APPLICATION):
        streams.append(histories.started(), received_at=datetime.now(UTC), application=name)
    append(1, 1, "other")
    deliver()
    assert received(receiver) == [("other", 3)]


def test_events_wait_in_the_log_while_the_receiver_is_down(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "EVENTS_PER_MESSAGE", 2)
    monkeypatch.setattr(subscriptions, "PORTION", 10)
    id, _ = subscribe(receiver)
    receiver.status = 503
    append(0, 120)
    deliver()
    # The outbox is bounded: the other events are in the log only.
    waiting = models.AlertMessage.objects.count()
    assert subscriptions.MOST_WAITING <= waiting < subscriptions.MOST_WAITING + 5
    state = subscriptions.subscription(id)
    assert (state.waiting, state.error) == (waiting, "answered 503 Service Unavailable")
    assert state.unread == 120 - 2 * waiting
    # An attempt does not end after a day, as that of an alert does.
    day = datetime.now(UTC) - timedelta(days=2)
    models.AlertMessage.objects.update(created_at=day)
    receiver.requests.clear()
    models.AlertChannel.objects.update(retry_at=None)
    deliver()
    assert {each.status for each in models.AlertMessage.objects.all()} == {"PENDING"}

    receiver.status = 200
    receiver.requests.clear()
    while subscriptions.subscription(id).unread or models.AlertMessage.objects.exists():
        models.AlertChannel.objects.update(retry_at=None)
        deliver()
    assert sorted(received(receiver)) == [(APPLICATION, number) for number in range(1, 121)]


@pytest.mark.parametrize("step", ["collected", "accepted"])
def test_a_worker_killed_at_any_step_loses_no_event(receiver: Receiver, step: str) -> None:
    """Events that were accepted, and not deleted, come again with their id."""
    subscribe(receiver)
    append(0, 3)
    command = [sys.executable, "-m", "tests.controlplane.alerts.killed_worker", step]
    worker = subprocess.run(command, cwd=services.REPOSITORY, env=os.environ, timeout=60)
    assert worker.returncode == -signal.SIGKILL
    wait_until_closed()
    models.AlertChannel.objects.update(leased_until=None)
    deliver()
    events = [(APPLICATION, number) for number in range(1, 4)]
    assert received(receiver) == events * (2 if step == "accepted" else 1)
    assert len({each.headers["webhook-id"] for each in receiver.requests}) == 1


def test_events_that_retention_dropped_are_reported(receiver: Receiver) -> None:
    subscribe(receiver)
    append(0, 5)
    now = datetime.now(UTC)
    store.save_base(APPLICATION, 3, [], received_at=now - timedelta(days=1), now=now)
    deliver()
    missing, stored = (json.loads(each.content) for each in receiver.requests)
    data = {name: missing["data"][name] for name in ("application", "after", "next")}
    assert missing["type"] == "events.missing"
    assert data == {"application": APPLICATION, "after": 0, "next": 4}
    assert [each["sequence"] for each in stored["data"]["events"]] == [4, 5]


def test_a_replay_delivers_the_events_since_a_time_again(receiver: Receiver) -> None:
    id, _ = subscribe(receiver)
    now = datetime.now(UTC)
    for number in range(3):
        append(number, received_at=now + timedelta(seconds=number))
    deliver()
    subscriptions.replay(id, now + timedelta(seconds=1.5), actor="adam")
    deliver()
    assert [position for _, position in received(receiver)] == [1, 2, 3, 3]
    # A time to come skips nothing.
    append(3)
    subscriptions.replay(id, now + timedelta(days=9), actor="adam")
    deliver()
    assert [position for _, position in received(receiver)] == [1, 2, 3, 3, 4]
    acts = [*models.AuditEntry.objects.order_by("sequence").values_list("act", flat=True)]
    assert acts[-1] == "ALERT_SUBSCRIPTION_REPLAYED" and "ALERT_SUBSCRIPTION_ADDED" in acts


def test_a_subscription_is_deleted_with_its_messages(receiver: Receiver) -> None:
    id, _ = subscribe(receiver)
    append(0)
    receiver.status = 503
    deliver()
    assert models.AlertMessage.objects.exists()
    subscriptions.delete(id, actor="adam")
    assert not models.AlertChannel.objects.exists() and not models.AlertMessage.objects.exists()
    with pytest.raises(NotFound):
        subscriptions.delete(id, actor="adam")


def test_invalid_subscriptions_are_refused(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(0)
    slack = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
    wrong: list[tuple[str, tuple[str, ...], str]] = [
        (receiver.url, ("Nothing",), "event_types"),
        (receiver.url, (), "at least one type"),
        (slack, ("RecordFailed",), "address of a webhook"),
    ]
    for address, types, match in wrong:
        form = SubscriptionForm(address=address, event_types=types)
        with pytest.raises(InvalidValue, match=match):
            subscriptions.add(form, actor="adam")
    with pytest.raises(NotFound):
        subscribe(receiver, application="unknown")
    # Hosts are those that alerts may be sent to, also later.
    subscribe(receiver)
    monkeypatch.setattr(
        settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, alert_hosts=["example.com"])
    )
    with pytest.raises(InvalidValue, match="ARRESTER_ALERT_HOSTS"):
        subscribe(receiver, name="second")
    append(1)
    deliver()
    assert receiver.requests == []
    assert "ARRESTER_ALERT_HOSTS" in models.AlertChannel.objects.get().error


def test_a_subscription_is_not_the_first_channel_of_alerts(receiver: Receiver) -> None:
    subscribe(receiver)
    configuration.add_channel(receiver.url, "alerts", actor="adam")
    assert [each.name for each in reads.rules()] == ["All alerts"]


def test_the_task_of_alerts_delivers_events(receiver: Receiver, redis: Redis) -> None:
    subscribe(receiver)
    append(0)
    [id] = subscriptions.ids()
    tasks.alert()
    assert any(b"arrester.deliver_events" in each for each in redis.lrange(HOUSEKEEPING, 0, -1))
    tasks.deliver_events(id)
    assert received(receiver) == [(APPLICATION, 1)]
    # Folds have other workers.
    assert app.conf.task_routes[tasks.deliver_events.name]["queue"] == HOUSEKEEPING
    assert outbox.channels_to_send(now=datetime.now(UTC)) == []


def test_a_slow_receiver_rests(receiver: Receiver) -> None:
    [id] = [subscribe(receiver)[0]]
    append(0)
    # Slower than no time at all.
    subscriptions.deliver(id, seconds=1e-6)
    append(1)
    deliver()
    assert received(receiver) == [(APPLICATION, 1)]
    models.AlertChannel.objects.update(retry_at=None)
    deliver()
    assert received(receiver) == [(APPLICATION, 1), (APPLICATION, 2)]
    assert subscriptions.subscription(id).failing_since is None


def test_alerts_of_an_owner_are_not_sent_to_the_webhook_of_that_name(receiver: Receiver) -> None:
    subscribe(receiver, name="data-quality")
    assert owner_channels._channels(["data-quality"]) == {}


def test_no_webhook_is_always_the_last(receiver: Receiver, redis: Redis) -> None:
    """Messages that wait for a slow one expire."""
    for number in range(3):
        subscribe(receiver, name=f"webhook {number}")
    last = set()
    for _ in range(40):
        redis.delete(HOUSEKEEPING)
        tasks.alert()
        requests = [json.loads(each) for each in redis.lrange(HOUSEKEEPING, 0, -1)]
        last.add(requests[0]["headers"]["argsrepr"])
    assert last == {f"({id},)" for id in subscriptions.ids()}


def test_a_webhook_that_is_deleted_meanwhile_is_not_an_error(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    id, _ = subscribe(receiver)
    append(0)

    def deleted(*_: Any, **__: Any) -> None:
        subscriptions.delete(id, actor="adam")
        raise sending.NotSent("answered 500")

    monkeypatch.setattr(sending, "post_events", deleted)
    deliver()
    assert not models.AlertMessage.objects.exists() and not models.AlertChannel.objects.exists()
    assert "not sent" in caplog.text and "Traceback" not in caplog.text
