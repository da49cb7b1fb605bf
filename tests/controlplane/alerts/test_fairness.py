"""An application with very many conditions hides none of another application."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import models
from arrester.controlplane.alerts import configuration
from arrester.controlplane.domain.events import (
    CommandExpired,
    CommandIssued,
    CommandKind,
    Event,
    Failure,
    InstanceLost,
    InstanceStarted,
    TaskPaused,
    ThreadDied,
    ThreadStarted,
)
from arrester.controlplane.queries import conditions
from arrester.controlplane.queries.conditions import condition
from arrester.controlplane.queries.conditions.causes import AlertCause
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
