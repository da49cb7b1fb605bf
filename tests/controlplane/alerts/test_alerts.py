"""Alerts: opened, sent, collected, escalated, resolved."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, time, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, models
from arrester.controlplane.alerts import configuration, routing
from arrester.controlplane.alerts.configuration import RuleForm
from arrester.controlplane.alerts.evaluation import RESOLVE_AFTER
from arrester.controlplane.ingest import fold_stream
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    ApplicationShutdownRequested,
    CommandApplied,
    Event,
    FlowMeasured,
    InstanceStopped,
    ResumeHow,
    TaskPaused,
    TaskResumed,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from tests import histories
from tests.controlplane import streams
from tests.controlplane.alerts.conftest import Clock
from tests.controlplane.alerts.receivers import Mailbox, Receiver
from tests.histories import APPLICATION, FAILURE, JFK, RUN

SHORT = timedelta(seconds=5)
MINUTE = timedelta(minutes=1)


def fold(redis: Redis, events: list[Event]) -> None:
    """Fold events as if they had happened now, and not at the noon of the histories."""
    later = datetime.now(UTC) - histories.NOON
    streams.send(redis, [replace(each, occurred_at=each.occurred_at + later) for each in events])
    fold_stream.fold_stream(APPLICATION)


def paused(redis: Redis) -> None:
    fold(redis, [*histories.started(), *histories.paused()])


def resumed(redis: Redis, *, drained: bool = True) -> None:
    """Resume the task; its record and those after it pass."""
    fold(redis, [histories.event(TaskResumed(task="JFK", how=ResumeHow.RETRY))])
    if drained:
        fold(redis, [histories.held(0)])


def only(cause: str) -> models.Alert:
    return models.Alert.objects.get(cause=cause)


def titles(receiver: Receiver) -> list[str]:
    return [json.loads(each.content)["data"]["title"] for each in receiver.requests]


def test_a_pause_is_one_mail_and_one_webhook_and_its_end_another(
    redis: Redis, clock: Clock, receiver: Receiver, mailbox: Mailbox
) -> None:
    configuration.add_channel("ops@example.com", actor="adam")
    hook, key = configuration.add_channel(receiver.url, "hook", actor="adam")
    configuration.save_rule(
        None, RuleForm(name="hook", channel=hook.id, only_critical=True), actor="adam"
    )
    paused(redis)
    clock.update()
    clock.update(after=SHORT)

    (mail,) = mailbox.messages
    assert mail["Subject"] == "flights: 1 task PAUSED, 1 new error"
    assert mail["To"] == "ops@example.com" and "arrester@example.com" in mail["From"]
    text = mail.get_content()
    assert "flights/delays: task delays_JFK PAUSED: ValueError at position 7" in text
    assert f"http://127.0.0.1:8000/tasks/{JFK.digest}" in text
    assert "3 records held" in text and "new error" in text

    (request,) = receiver.requests
    body = json.loads(request.content)
    assert body["type"] == "alerts.fired"
    (alert,) = body["data"]["alerts"]
    assert alert["cause"] == "TASKS_PAUSED" and alert["count"] == 1
    assert_signed(request.headers, request.content, key)

    resumed(redis)
    clock.update(after=SHORT)
    clock.update(after=RESOLVE_AFTER / 2)
    assert len(receiver.requests) == 1
    clock.update(after=RESOLVE_AFTER)
    resolved = json.loads(receiver.requests[1].content)
    assert resolved["type"] == "alerts.resolved"
    assert resolved["data"]["incident"] == body["data"]["id"]
    assert only("TASKS_PAUSED").resolved_at is not None
    # The new error of the same mail is still open: it has no end that is news.
    (_, ended) = mailbox.messages
    assert ended["Subject"].startswith("Resolved: flights/delays: task delays_JFK PAUSED")
    assert (mail["Auto-Submitted"], mail["Importance"]) == ("auto-generated", "high")
    assert (ended["Auto-Submitted"], ended["Importance"]) == ("auto-generated", None)
    thread = str(mail["References"])
    assert "Critical, since" in text
    assert (ended["References"], ended["In-Reply-To"]) == (thread, thread)
    assert mail["In-Reply-To"] is None
    resolve_error()
    clock.update(after=SHORT)
    clock.update(after=RESOLVE_AFTER)
    assert len(mailbox.messages) == 2


def resolve_error() -> None:
    requested = GroupRequest(
        id=uuid4(), act=GroupAct.RESOLVE, fingerprint=FAILURE.fingerprint, actor="olga"
    )
    actions.act_on_group(APPLICATION, requested)


def assert_signed(headers: dict[str, str], content: bytes, key: str) -> None:
    """Check the signature as a receiver does."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + content
    secret = base64.b64decode(key.removeprefix("whsec_"))
    digest = base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"


def test_hundreds_of_pauses_at_once_are_one_digest(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    configuration.add_channel(receiver.url, actor="adam")
    events = histories.started()
    for number in range(900):
        failure = replace(FAILURE, fingerprint=f"1-{number:016x}", message=f"number {number}")
        events.append(
            histories.event(TaskPaused(task=str(number), position=1, failure=failure), minute=1)
        )
    fold(redis, events)
    clock.update()
    # More of them a moment later wait for the end of the throttle, then are one more message.
    fold(redis, [histories.event(TaskPaused(task="late", position=1, failure=FAILURE))])
    clock.update(after=MINUTE)

    assert titles(receiver) == ["flights: 900 tasks PAUSED"]
    (request,) = receiver.requests
    data = json.loads(request.content)["data"]
    assert len(data["alerts"]) == 10 and data["others"] == {"Tasks PAUSED": 890}

    clock.update(after=5 * MINUTE)
    assert titles(receiver)[1:] == [
        "flights/delays: task delays_late PAUSED: ValueError at position 1"
    ]


def test_a_critical_alert_waits_for_no_other_message(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    configuration.add_channel(receiver.url, actor="adam")
    fold(redis, [*histories.started(), histories.failed(3)])
    clock.update()
    paused(redis)
    clock.update(after=SHORT)
    assert causes(receiver) == ["ERROR_NEW", "TASKS_PAUSED"]
    fold(redis, histories.paused(9, key="LGA"))
    other = replace(FAILURE, fingerprint="1-00000000000000ff")
    fold(redis, [histories.event(TaskPaused(task="EWR", position=1, failure=other))])
    clock.update(after=SHORT)
    assert len(receiver.requests) == 2
    every = models.AlertRule(name="all", channel_id=1, throttle_seconds=300)
    previewed = routing.preview(every, now=clock.now)
    assert [[each.cause for each in about] for _, about in previewed] == [
        ["ERROR_NEW"], ["TASKS_PAUSED", "TASKS_PAUSED"],
    ]  # fmt: skip


def test_a_more_urgent_alert_waits_for_no_less_urgent_one(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    configuration.add_channel(receiver.url, actor="adam")
    paused(redis)
    clock.update()
    fold(redis, [histories.event(ThreadDied(reason="disk", failure=FAILURE, recordless=True))])
    clock.update(after=SHORT)
    assert titles(receiver)[1:] == ["flights/delays: DEAD: ValueError"]
    other = replace(FAILURE, fingerprint="1-00000000000000ff")
    fold(redis, [histories.event(TaskPaused(task="EWR", position=1, failure=other))])
    clock.update(after=SHORT)
    assert len(receiver.requests) == 2
    every = models.AlertRule(name="all", channel_id=1, throttle_seconds=300)
    previewed = routing.preview(every, now=clock.now)
    assert [[each.cause for each in about] for _, about in previewed] == [
        ["TASKS_PAUSED", "ERROR_NEW"],
        ["PIPELINE_DEAD", "TASKS_PAUSED"],
    ]


def test_a_task_that_is_resumed_and_stops_again_is_the_same_alert(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    configuration.add_channel(receiver.url, actor="adam")
    paused(redis)
    clock.update()
    resumed(redis, drained=False)
    # A driver needs its time to start again.
    clock.update(after=SHORT)
    clock.update(after=10 * MINUTE)
    fold(redis, [histories.event(TaskPaused(task="JFK", position=7, failure=FAILURE), minute=9)])
    clock.update(after=SHORT)
    clock.update(after=10 * MINUTE)
    assert len(receiver.requests) == 1
    assert only("TASKS_PAUSED").resolved_at is None


def test_a_run_that_dies_again_at_the_same_record_is_the_same_alert(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    def measured(at: datetime) -> Event:
        return histories.event(
            FlowMeasured(minute=at.replace(second=0, microsecond=0), last_batch_at=at)
        )

    def dies(epoch: int) -> None:
        died = ThreadDied(reason="disk", failure=FAILURE, recordless=True)
        fold(redis, [histories.event(died, run=replace(RUN, epoch=epoch))])

    configuration.add_channel(receiver.url, actor="adam")
    fold(redis, [*histories.started(), measured(datetime.now(UTC) - MINUTE)])
    dies(1)
    clock.update()
    fold(redis, [histories.event(ThreadStarted(), run=replace(RUN, epoch=2))])
    clock.update(after=SHORT)
    clock.update(after=MINUTE)
    dies(2)
    clock.update(after=SHORT)
    assert len(receiver.requests) == 1
    fold(redis, [histories.event(ThreadStarted(), run=replace(RUN, epoch=3))])
    streams.append([measured(datetime.now(UTC) + MINUTE)], received_at=datetime.now(UTC))
    clock.update(after=SHORT)
    clock.update(after=RESOLVE_AFTER)
    assert len(receiver.requests) == 2
    assert titles(receiver)[1] == "Resolved: flights/delays: DEAD: ValueError"


def test_an_application_that_a_person_shut_down_has_no_alerts(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    configuration.add_channel(receiver.url, actor="adam")
    paused(redis)
    clock.update()
    command = actions.shut_down_application(APPLICATION, actor="olga", reason="maintenance")
    clock.update(after=SHORT)
    clock.update(after=RESOLVE_AFTER)
    assert not models.Alert.objects.filter(resolved_at=None).exists()
    ended = (CommandApplied(command=command.id), InstanceStopped(reason="shut down"))
    fold(redis, [histories.event(each, run=None) for each in ended])
    actions.open_application(APPLICATION, actor="olga")
    clock.update(after=10 * MINUTE)
    assert "1 task PAUSED" in titles(receiver)[-1]


def test_an_application_that_a_failure_shut_down_has_its_alerts(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    configuration.add_channel(receiver.url, actor="adam")
    requested = ApplicationShutdownRequested(reason="disk")
    died = ThreadDied(reason="disk", failure=FAILURE, recordless=True)
    fold(redis, [*histories.started(), histories.event(died), histories.event(requested)])
    assert models.Application.objects.get(name=APPLICATION).status == "LATCHED"
    clock.update()
    assert titles(receiver) == ["flights: 1 pipeline DEAD, 1 new error"]


def test_an_alert_escalates_until_a_person_acts(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    first, _ = configuration.add_channel(receiver.url, "first", actor="adam")
    second, _ = configuration.add_channel(f"{receiver.url}/second", "second", actor="adam")
    rule = models.AlertRule.objects.get()
    form = RuleForm(
        name="all", channel=first.id, only_critical=True, escalate_minutes=10, escalate_to=second.id
    )
    configuration.save_rule(rule.id, form, actor="adam")
    paused(redis)
    clock.update()
    clock.update(after=9 * MINUTE)
    assert [each.path for each in receiver.requests] == ["/hook"]
    clock.update(after=2 * MINUTE)
    clock.update(after=20 * MINUTE)
    assert [each.path for each in receiver.requests] == ["/hook", "/hook/second"]
    assert titles(receiver)[1].startswith("No action yet: flights/delays: task")


@pytest.mark.parametrize("act", ["acknowledge", "command"])
def test_an_act_of_a_person_ends_the_escalation(
    redis: Redis, clock: Clock, receiver: Receiver, act: str
) -> None:
    first, _ = configuration.add_channel(receiver.url, "first", actor="adam")
    rule = models.AlertRule.objects.get()
    form = RuleForm(name="all", channel=first.id, escalate_minutes=10, escalate_to=first.id)
    configuration.save_rule(rule.id, form, actor="adam")
    paused(redis)
    clock.update()
    if act == "acknowledge":
        for alert in models.Alert.objects.all():
            configuration.acknowledge(alert.id, actor="olga")
    else:
        actions.resume_task(JFK.digest, actor="olga")
    clock.update(after=20 * MINUTE)
    assert len(receiver.requests) == 1


def test_quiet_hours_hold_back_what_is_not_critical(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    hook, _ = configuration.add_channel(receiver.url, actor="adam")
    rule = models.AlertRule.objects.get()
    here = clock.now.astimezone(ZoneInfo("Europe/Vienna"))
    form = RuleForm(
        name="nights",
        channel=hook.id,
        quiet_from=(here - 60 * MINUTE).time(),
        quiet_until=(here + 60 * MINUTE).time(),
        time_zone="Europe/Vienna",
    )
    configuration.save_rule(rule.id, form, actor="adam")
    paused(redis)
    clock.update()
    assert causes(receiver) == ["TASKS_PAUSED"]
    clock.update(after=61 * MINUTE)
    assert causes(receiver) == ["TASKS_PAUSED", "RECORDS_HELD", "ERROR_NEW"]


@pytest.mark.parametrize(
    ("begin", "end", "quiet"), [(22, 7, (0, 5, 21, 22)), (1, 5, (0, 1, 2, 3)), (4, 4, ())]
)
def test_quiet_hours_may_include_midnight(begin: int, end: int, quiet: tuple[int, ...]) -> None:
    rule = models.AlertRule(
        quiet_from=time(begin), quiet_until=time(end), time_zone="Europe/Vienna"
    )
    hours = (0, 1, 2, 3, 4, 5, 6, 12, 20, 21, 22, 23)
    found = {
        hour for hour in hours if routing.is_quiet(rule, datetime(2026, 1, 1, hour, tzinfo=UTC))
    }
    inside = set(range(begin, 24)) | set(range(end)) if begin > end else set(range(begin, end))
    assert found == {hour for hour in hours if (hour + 1) % 24 in inside}
    assert set(quiet) <= found


def causes(receiver: Receiver) -> list[str]:
    return [
        alert["cause"]
        for each in receiver.requests
        for alert in json.loads(each.content)["data"]["alerts"]
    ]


def test_a_preview_has_the_messages_that_a_rule_would_have_sent(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    paused(redis)
    clock.update()
    every = models.AlertRule(name="all", channel_id=1, throttle_seconds=300)
    assert [len(alerts) for _, alerts in routing.preview(every, now=clock.now)] == [2]
    other = models.AlertRule(name="other", application="other", throttle_seconds=300)
    assert routing.preview(other, now=clock.now) == []


def test_changes_are_checked_and_recorded(clock: Clock, receiver: Receiver) -> None:
    hook, _ = configuration.add_channel(receiver.url, "hook", actor="adam")
    for address in ("", "nonsense", "ftp://example.com", "https://", "ops@example.com"):
        with pytest.raises(InvalidValue, match="address"):
            configuration.add_channel(address, actor="adam")
    with pytest.raises(InvalidValue, match="name: 'hook'"):
        configuration.add_channel(receiver.url, "hook", actor="adam")
    invalid: dict[str, dict[str, Any]] = {
        "time_zone": {"time_zone": "Moon/Crater"},
        "throttle_minutes": {"throttle_minutes": -1},
        "quiet_until": {"quiet_from": time(1)},
        "escalate_to": {"escalate_minutes": 5},
        "name": {"name": ""},
    }
    for wrong, values in invalid.items():
        form = RuleForm(**{"name": "one", "channel": hook.id, **values})
        with pytest.raises(InvalidValue, match=wrong):
            configuration.save_rule(None, form, actor="adam")
    with pytest.raises(InvalidValue, match="tolerance_percent"):
        configuration.set_limits("", {"tolerance_percent": 101}, actor="adam")
    configuration.set_limits("flights", {"failures_per_minute": 5}, actor="adam")
    configuration.delete_channel(hook.id, actor="adam")
    acts = models.AuditEntry.objects.order_by("id").values_list("act", "about", "detail")
    assert [*acts] == [
        ("ALERT_CHANNEL_ADDED", "hook", f"webhook: {receiver.url[:-5]}/…"),
        ("ALERT_RULE_SAVED", "All alerts", ""),
        ("ALERT_LIMITS_SET", "flights", "failures_per_minute 5"),
        ("ALERT_CHANNEL_DELETED", "hook", ""),
    ]
