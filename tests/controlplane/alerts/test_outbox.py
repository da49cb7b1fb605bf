"""The outbox: nothing is lost, and no channel delays another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from redis import Redis

from arrester.controlplane import models
from arrester.controlplane.alerts import addresses, configuration, outbox, sending, time_limit
from arrester.controlplane.alerts.evaluation import RESOLVE_AFTER
from arrester.domain.errors import InvalidValue
from tests import services
from tests.controlplane.alerts.conftest import Clock
from tests.controlplane.alerts.receivers import Mailbox, Receiver, dripping_server
from tests.controlplane.alerts.test_alerts import paused, resolve_error, resumed
from tests.controlplane.lost_connections import wait_until_closed

SHORT = timedelta(seconds=5)


@pytest.mark.parametrize(
    ("step", "messages"), [("evaluated", 0), ("routed", 0), ("leased", 0), ("accepted", 1)]
)
def test_a_worker_killed_at_any_step_loses_no_message(
    redis: Redis, clock: Clock, receiver: Receiver, step: str, messages: int
) -> None:
    """The one that was accepted, and not stored as such, comes again with its id."""
    configuration.add_channel(receiver.url, actor="adam")
    paused(redis)
    command = [sys.executable, "-m", "tests.controlplane.alerts.killed_worker", step]
    worker = subprocess.run(command, cwd=services.REPOSITORY, env=os.environ, timeout=60)
    assert worker.returncode == -signal.SIGKILL
    assert len(receiver.requests) == messages
    wait_until_closed()

    clock.now = datetime.now(UTC)
    clock.update()
    if step in ("leased", "accepted"):
        assert len(receiver.requests) == messages
        assert outbox.channels_to_send(now=datetime.now(UTC)) == []
        assert outbox.send_pending(models.AlertChannel.objects.get().id) == 0
        models.AlertChannel.objects.update(leased_until=datetime.now(UTC) - SHORT)
    clock.update(after=SHORT)
    clock.update(after=SHORT)
    assert len(receiver.requests) == messages + 1
    assert len({each.headers["webhook-id"] for each in receiver.requests}) == 1
    assert models.AlertMessage.objects.get().status == "SENT"


def test_a_dead_channel_is_retried_and_delays_no_other(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    configuration.add_channel(receiver.url, "alive", actor="adam")
    dead, _ = configuration.add_channel("http://127.0.0.1:9/hook", "dead", actor="adam")
    form = configuration.RuleForm(name="to dead", channel=dead.id)
    configuration.save_rule(None, form, actor="adam")
    paused(redis)
    clock.update()
    assert len(receiver.requests) == 1

    dead.refresh_from_db()
    assert dead.error == "request failed: NewConnectionError" and dead.failing_since is not None
    assert dead.retry_at is not None and dead.leased_until is None
    assert outbox.channels_to_send(now=datetime.now(UTC)) == []
    assert outbox.channels_to_send(now=dead.retry_at) == [dead.id]
    with pytest.raises(InvalidValue, match="this one is PENDING"):
        waiting = models.AlertMessage.objects.get(channel=dead)
        configuration.send_again(waiting.id, actor="adam")

    # Its address is repaired.
    sealed = models.AlertChannel.objects.get(name="alive").secret
    models.AlertChannel.objects.filter(id=dead.id).update(secret=sealed, retry_at=None)
    clock.update(after=SHORT)
    assert len(receiver.requests) == 2
    repaired = models.AlertChannel.objects.get(id=dead.id)
    assert (repaired.failing_since, repaired.failed_attempts, repaired.error) == (None, 0, "")

    configuration.send_again(models.AlertMessage.objects.get(channel=dead).id, actor="adam")
    clock.update(after=SHORT)
    ids = [each.headers["webhook-id"] for each in receiver.requests]
    assert len(ids) == 3 and ids[1] == ids[2]


def test_a_refused_test_message_is_not_repeated(clock: Clock, receiver: Receiver) -> None:
    receiver.status = 410
    channel, _ = configuration.add_channel(receiver.url, actor="adam")
    configuration.request_test(channel.id, actor="adam")
    clock.update()
    message = models.AlertMessage.objects.get()
    assert (message.status, message.error) == ("FAILED", "answered 410 Gone")
    assert json.loads(receiver.requests[0].content)["type"] == "alerts.test"


def test_secrets_are_encrypted_and_never_shown(clock: Clock, receiver: Receiver) -> None:
    channel, key = configuration.add_channel(f"{receiver.url}?token=geheim", actor="adam")
    stored = bytes(models.AlertChannel.objects.values_list("secret", flat=True).get())
    assert b"geheim" not in stored and key.encode() not in stored
    assert "geheim" not in channel.shown_address + channel.name
    slack = addresses.parse("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ")
    assert slack.service == "Slack" and slack.shown == "slack://T1JJ…"
    hook = addresses.parse(
        "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
    )
    assert hook.service == "Slack" and hook.shown == "https://hooks.slack.com/…"


def test_a_channel_of_another_secret_key_is_reported(
    clock: Clock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, _ = configuration.add_channel(receiver.url, actor="adam")
    monkeypatch.setattr("django.conf.settings.SECRET_KEY", "another key " * 4)
    configuration.request_test(channel.id, actor="adam")
    clock.update()
    channel.refresh_from_db()
    assert channel.error.startswith("its address was encrypted with another ARRESTER_SECRET_KEY")


def test_incidents_of_pagerduty_are_resolved_with_their_key(
    redis: Redis, clock: Clock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apprise.plugins import pagerduty

    configuration.add_channel(f"pagerduty://{'i' * 32}@{'a' * 20}", actor="adam")
    monkeypatch.setattr(pagerduty, "PAGERDUTY_API_LOOKUP", {"us": receiver.url})
    paused(redis)
    models.ErrorGroup.objects.update(first_seen=None)
    clock.update()
    resumed(redis)
    clock.update(after=SHORT)
    clock.update(after=RESOLVE_AFTER)
    first, second = (json.loads(each.content) for each in receiver.requests)
    assert (first["event_action"], second["event_action"]) == ("trigger", "resolve")
    assert first["dedup_key"] == second["dedup_key"]
    assert first["payload"]["severity"] == "critical"


def test_an_alert_of_opsgenie_is_closed_by_another_process(
    redis: Redis, clock: Clock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apprise.plugins import opsgenie

    monkeypatch.setattr(opsgenie, "OPSGENIE_API_LOOKUP", {"us": receiver.url})
    receiver.answer = b'{"requestId": "r-1"}'
    configuration.add_channel(f"opsgenie://{'a' * 36}", actor="adam")
    paused(redis)
    clock.update()
    # Each message is sent by an object of its own, which knows what is in the folder only.
    resumed(redis)
    clock.update(after=SHORT)
    resolve_error()
    clock.update(after=SHORT)
    clock.update(after=RESOLVE_AFTER)
    assert [each.path for each in receiver.requests] == [
        "/hook",
        "/hook/r-1/close?identifierType=id",
    ]


def test_the_answer_of_a_mail_server_is_shown(redis: Redis, clock: Clock, mailbox: Mailbox) -> None:
    mailbox.answer = "554 5.7.1 the quota of today is used"
    channel, _ = configuration.add_channel("ops@example.com", actor="adam")
    paused(redis)
    clock.update()
    channel.refresh_from_db()
    assert "554" in channel.error and "the quota of today is used" in channel.error


def test_the_smtp_server_has_an_encryption_and_a_login() -> None:
    url = addresses.mail_url(
        "ops@example.com", "smtp+starttls://joe:p%40ss@mail.example.com:587", {}
    )
    assert url.startswith("mailtos://joe:p%40ss@mail.example.com:587?")
    assert "mode=starttls" in url and "to=ops%40example.com" in url
    assert "mode=ssl" in addresses.mail_url("a@b.c", "smtps://mail.example.com", {})


@pytest.mark.parametrize(
    ("begin", "address"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", "http://127.0.0.1:{port}/hook"),
        (b"HTTP/1.1 200 OK\r\n", "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"),
        (b"220-", "ops@example.com"),
    ],
)
def test_a_receiver_that_drips_its_answer_holds_no_worker(
    redis: Redis, clock: Clock, monkeypatch: pytest.MonkeyPatch, begin: bytes, address: str
) -> None:
    """Each byte begins the time-out of a socket again."""
    for name in ("WEBHOOK_SECONDS", "CHANNEL_SECONDS"):
        monkeypatch.setattr(sending, name, 1.0)
    with dripping_server(begin) as port:
        smtp = f"smtp://127.0.0.1:{port}?from=arrester@example.com"
        environment = replace(settings.ENVIRONMENT, smtp_url=smtp)
        monkeypatch.setattr(settings, "ENVIRONMENT", environment)
        if address.startswith("slack"):
            monkeypatch.setattr(
                "apprise.plugins.slack.NotifySlack.webhook_url", f"http://127.0.0.1:{port}"
            )
        configuration.add_channel(address.format(port=port), actor="adam")
        paused(redis)
        begun = time.monotonic()
        clock.update()
        assert 0.9 < time.monotonic() - begun < 8
    message = models.AlertMessage.objects.get()
    assert (message.status, message.error) == ("PENDING", "not accepted within 1 s")
    assert models.AlertChannel.objects.get().leased_until is None
    # The timer is off.
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_library_that_catches_the_end_of_an_attempt_is_ended_again() -> None:
    ends = 0
    with pytest.raises(time_limit.AttemptTooLong), time_limit.limited(0.1):
        while True:
            try:
                time.sleep(30)
            except TimeoutError:
                ends += 1
                if ends == 2:
                    raise


@pytest.mark.parametrize("status", [300, 301, 304, 307, 399, 410, 500])
def test_only_2xx_accepts_a_message(
    redis: Redis, clock: Clock, receiver: Receiver, status: int
) -> None:
    """Also 301 without `Location`, which leads nowhere."""
    receiver.status = status
    configuration.add_channel(receiver.url, actor="adam")
    paused(redis)
    clock.update()
    message = models.AlertMessage.objects.get()
    assert message.status == "PENDING" and message.error.startswith(f"answered {status}")
