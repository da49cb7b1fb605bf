"""An application with very many conditions hides none of another application."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import models
from arrester.controlplane.alerts import configuration, evaluation
from arrester.controlplane.alerts.configuration import RuleForm
from arrester.controlplane.alerts.evaluation import RESOLVE_AFTER
from arrester.controlplane.alerts.text import DESCRIBED
from arrester.controlplane.queries import conditions
from arrester.controlplane.queries.conditions import condition
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.domain.events import (
    CommandExpired,
    CommandIssued,
    CommandKind,
    Event,
    Failure,
    FailuresCounted,
    FinalResponse,
    InstanceLost,
    InstanceStarted,
    ResumeHow,
    TaskPaused,
    TaskResumed,
    ThreadDied,
    ThreadStarted,
)
from tests import histories
from tests.controlplane import streams
from tests.controlplane.alerts.conftest import Clock
from tests.controlplane.alerts.receivers import Receiver
from tests.controlplane.alerts.test_alerts import titles
from tests.histories import FAILURE, RUN

pytestmark = pytest.mark.usefixtures("fresh_database", "redis")
MOST = 3


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition, "MOST", MOST)


def failure(number: int) -> Failure:
    return replace(FAILURE, fingerprint=f"1-{number:016x}")


def stop(number: int) -> list[Event]:
    paused = TaskPaused(task=f"task-{number}", position=1, failure=failure(number))
    return [*histories.started(), histories.event(paused, minute=number)]


def error(number: int) -> list[Event]:
    event = histories.failed(number)
    data = replace(event.data, failure=failure(number))
    return [*histories.started(), replace(event, data=data)]


def dead_run(number: int) -> list[Event]:
    run = replace(RUN, pipeline=f"pipeline-{number}", checkpoint=f"cp-{number}")
    died = ThreadDied(reason="disk", failure=failure(number), recordless=True)
    return [histories.event(each, run=run) for each in (ThreadStarted(), died)]


def lost_instance(number: int) -> list[Event]:
    id = UUID(int=number)
    run = replace(RUN, pipeline=f"pipeline-{number}", checkpoint=f"cp-{number}")
    return [
        histories.event(InstanceStarted(host="driver", pid=number), run=None, instance=id),
        histories.event(ThreadStarted(), run=run, instance=id),
        histories.event(InstanceLost(last_heard=histories.NOON), run=None, instance=id),
    ]


def expired_command(number: int) -> list[Event]:
    id = UUID(int=number)
    issued = CommandIssued(
        command=id,
        kind=CommandKind.RESUME_TASK,
        actor="olga",
        pipeline=RUN.pipeline,
        checkpoint=RUN.checkpoint,
        task=f"task-{number}",
        expires_at=histories.NOON,
    )
    expired = CommandExpired(command=id, reason="no instance answered")
    return [*stop(number), *(histories.event(each, run=None) for each in (issued, expired))]


KINDS: dict[AlertCause, Callable[[int], list[Event]]] = {
    AlertCause.TASKS_PAUSED: stop,
    AlertCause.ERROR_NEW: error,
    AlertCause.PIPELINE_DEAD: dead_run,
    AlertCause.INSTANCE_LOST: lost_instance,
    AlertCause.COMMAND_EXPIRED: expired_command,
}


def append(application: str, events: list[Event], *, shift: int = 0) -> None:
    """Append events as if they had happened now, and not at the noon of the histories."""
    now = datetime.now(UTC)
    later = now - histories.NOON - timedelta(hours=1) + timedelta(minutes=shift)
    moved = [replace(each, occurred_at=each.occurred_at + later) for each in events]
    streams.append(moved, received_at=now, application=application)


@pytest.mark.parametrize("cause", KINDS)
def test_many_conditions_of_an_application_hide_none_of_another(cause: AlertCause) -> None:
    make = KINDS[cause]
    for number in range(1, MOST + 3):
        append("noisy", make(number))
    append("quiet", make(100), shift=30)
    found = conditions.find(now=datetime.now(UTC)).conditions
    of_cause = [each.application for each in found if each.cause is cause]
    assert sorted(of_cause) == [*["noisy"] * MOST, "quiet"]
    rest = [each for each in found if each.cause is AlertCause.MORE_THAN_LISTED]
    assert {(each.application, each.count) for each in rest} == {("noisy", 2)}


def test_the_alert_of_a_quiet_application_is_sent_and_the_rest_of_a_noisy_one_is_counted(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    configuration.add_channel(receiver.url, actor="adam")
    for number in range(1, MOST + 3):
        append("noisy", stop(number))
    clock.update()
    append("quiet", stop(100), shift=30)
    clock.update(after=timedelta(seconds=5))
    assert "quiet/delays: task delays_task-100 PAUSED: ValueError at position 1" in titles(receiver)
    more = models.Alert.objects.get(cause="MORE_THAN_LISTED")
    assert more.title == "noisy: 2 more: causes that stop tasks"


def test_alerts_of_a_noisy_application_at_the_same_time_hide_no_end_and_no_escalation(
    redis: Redis, clock: Clock, receiver: Receiver
) -> None:
    channel, _ = configuration.add_channel(receiver.url, actor="adam")
    form = RuleForm(name="all", channel=channel.id, escalate_minutes=10, escalate_to=channel.id)
    configuration.save_rule(models.AlertRule.objects.get().id, form, actor="adam")
    for number in range(DESCRIBED):
        append("noisy", dead_run(number), shift=-number)
    for task in (100, 101):
        append("quiet", stop(task))
    clock.update()
    described = {
        alert["title"]
        for each in receiver.requests
        for alert in json.loads(each.content)["data"]["alerts"]
    }
    assert "quiet/delays: task delays_task-100 PAUSED: ValueError at position 1" in described
    # A person acts on the noisy one only.
    for alert in models.Alert.objects.filter(application="noisy"):
        configuration.acknowledge(alert.id, actor="olga")
    clock.update(after=timedelta(minutes=11))
    assert titles(receiver)[-1].startswith("No action yet: quiet: 2 tasks PAUSED")
    for task in (100, 101):
        resumed = TaskResumed(task=f"task-{task}", how=ResumeHow.RETRY)
        append("quiet", [histories.event(resumed), histories.held(0, key=f"task-{task}")])
    clock.update(after=timedelta(seconds=5))
    clock.update(after=RESOLVE_AFTER)
    assert models.Alert.objects.filter(application="noisy", resolved_at=None).exists()
    assert any(each.startswith("Resolved: quiet: 2 tasks PAUSED") for each in titles(receiver))


def counted_very_often() -> list[Event]:
    counted = FailuresCounted(
        task="a",
        failure=failure(1),
        response=FinalResponse.CONTINUE,
        count=2**63 - 1,
        first_position=1,
        last_position=2,
    )
    return [*histories.started(), *[histories.event(counted)] * 2]


def stopped_with_a_zero_character() -> list[Event]:
    wrong = replace(failure(1), message="in\0valid", stage="process:\0", exception_class="E\0")
    return [*histories.started(), histories.event(TaskPaused(task="a", position=1, failure=wrong))]


@pytest.mark.parametrize("make", [counted_very_often, stopped_with_a_zero_character])
def test_values_that_postgresql_cannot_store_silence_no_alert(
    clock: Clock, make: Callable[[], list[Event]]
) -> None:
    append("noisy", make())
    append("quiet", stop(100), shift=30)
    clock.update()
    clock.update(after=timedelta(seconds=5))
    names = models.Alert.objects.values_list("application", flat=True)
    assert {*names} == {"noisy", "quiet"}
    assert not any("\0" in each.title + each.detail for each in models.Alert.objects.all())


def test_alerts_that_cannot_be_stored_affect_no_other_application(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # What `_storable` does not know.
    monkeypatch.setattr(evaluation, "_storable", lambda condition: condition)
    append("noisy", stopped_with_a_zero_character())
    append("quiet", stop(100), shift=30)
    clock.update()
    assert {*models.Alert.objects.values_list("application", flat=True)} == {"quiet"}
    assert "noisy: its alerts cannot be stored" in caplog.text
