"""The conditions of each cause."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, models
from arrester.controlplane.alerts import configuration
from arrester.controlplane.queries import conditions
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.controlplane.queries.conditions.condition import Condition
from arrester.controlplane.redis import redis_client
from arrester.domain.events import (
    CommandApplied,
    CommandExpired,
    CommandIssued,
    CommandKind,
    Event,
    FlowMeasured,
    InstanceLost,
    InstanceStarted,
    InstanceStopped,
    PipelinePaused,
    PipelineResumed,
    RecordFailed,
    ResumeHow,
    TaskDied,
    TaskPaused,
    TaskResumed,
    ThreadDied,
    ThreadReplaced,
    ThreadStarted,
)
from arrester.domain.identity import redis_keys
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from arrester.domain.wire import codec
from tests import histories
from tests.controlplane import streams
from tests.controlplane.alerts.test_alerts import fold, paused, resolve_error
from tests.histories import APPLICATION, FAILURE, JFK, RUN

pytestmark = pytest.mark.usefixtures("fresh_database", "redis")
HOUR = timedelta(hours=1)


def found(*, after: timedelta = timedelta(0)) -> dict[str, Condition]:
    """Return the present conditions that are alerts, by cause."""
    now = datetime.now(UTC) + after
    present = conditions.find(now=now).conditions
    return {each.cause.value: each for each in present if each.cause.alerts}


def test_stopped_tasks_are_alerts_and_muted_or_hand_paused_ones_are_not(redis: Redis) -> None:
    by_hand = histories.event(TaskPaused(task="LGA", position=3, actor="olga"))
    fold(redis, [*histories.started(), *histories.paused(), by_hand])
    now = found()
    assert now.keys() == {"TASKS_PAUSED", "ERROR_NEW"}
    stop = now["TASKS_PAUSED"]
    assert (stop.count, stop.path) == (1, f"/tasks/{JFK.digest}")
    assert "RECORDS_HELD" in found(after=HOUR)

    fold(redis, [*histories.paused(9, key="EWR"), *histories.paused(9, key="BOS")])
    stop = found()["TASKS_PAUSED"]
    assert stop.title == "flights/delays: 3 tasks PAUSED: ValueError"
    assert stop.path == f"/errors/flights/{FAILURE.fingerprint}"
    models.ErrorGroup.objects.update(status="MUTED")
    assert found().keys() == set()


@pytest.mark.parametrize("act", [GroupAct.MUTE, GroupAct.RESOLVE])
def test_a_dead_pipeline_whose_error_a_person_settled_is_no_condition(
    redis: Redis, act: GroupAct
) -> None:
    died = histories.event(ThreadDied(reason="disk", failure=FAILURE))
    fold(redis, [*histories.started(), histories.failed(4), died])
    assert "PIPELINE_DEAD" in found()
    until = datetime.now(UTC) + HOUR if act is GroupAct.MUTE else None
    requested = GroupRequest(
        id=uuid4(), act=act, fingerprint=FAILURE.fingerprint, actor="olga", until=until
    )
    actions.act_on_group(APPLICATION, requested)
    assert "PIPELINE_DEAD" not in found()


def test_a_pipeline_that_dies_of_a_muted_error_is_a_condition(redis: Redis) -> None:
    fold(redis, [*histories.started(), histories.failed(4)])
    requested = GroupRequest(
        id=uuid4(),
        act=GroupAct.MUTE,
        fingerprint=FAILURE.fingerprint,
        actor="olga",
        until=datetime.now(UTC) + HOUR,
    )
    actions.act_on_group(APPLICATION, requested)
    died = histories.event(ThreadDied(reason="disk", failure=FAILURE), minute=1)
    fold(redis, [died])
    assert "PIPELINE_DEAD" in found()


def test_an_alert_about_one_task_has_the_message_of_its_record(redis: Redis) -> None:
    of_other = histories.failed(9, key="EWR")
    assert isinstance(of_other.data, RecordFailed)
    newest = replace(FAILURE, message="of another customer")
    fold(
        redis,
        [
            *histories.started(),
            *histories.paused(),
            replace(of_other, data=replace(of_other.data, failure=newest)),
        ],
    )
    stop = found()["TASKS_PAUSED"]
    assert stop.detail == f"3 records held. {FAILURE.stage}: {FAILURE.message}"
    fold(redis, histories.paused(9, key="BOS"))
    stop = found()["TASKS_PAUSED"]
    assert stop.detail == f"6 records held. {FAILURE.stage}, for example: {FAILURE.message}"


def test_a_dead_run_is_one_alert(redis: Redis) -> None:
    died = [
        histories.event(TaskDied(task="JFK", position=4, failure=FAILURE)),
        histories.event(ThreadDied(reason="a task died", failure=FAILURE)),
    ]
    fold(redis, [*histories.started(), histories.failed(4), *died])
    assert found().keys() == {"PIPELINE_DEAD", "ERROR_NEW"}
    assert found()["PIPELINE_DEAD"].path == f"/tasks/{JFK.digest}"
    other = replace(FAILURE, fingerprint="1-ffffffffffffffff", exception_class="OSError")
    fold(
        redis,
        [histories.event(ThreadDied(reason="disk", failure=other), run=replace(RUN, epoch=2))],
    )
    dead = found()["PIPELINE_DEAD"]
    assert dead.title == "flights/delays: DEAD: OSError"
    # The end of an earlier agent has no error group.
    assert dead.path == "/applications/flights?tab=timeline"
    alone = histories.event(TaskDied(task="JFK", position=4, failure=FAILURE, alone=True))
    third = replace(RUN, epoch=3)
    fold(redis, [histories.event(ThreadStarted(), run=third), replace(alone, run=third)])
    assert found().keys() == {"TASKS_DEAD", "ERROR_NEW"}


def test_a_run_that_died_without_a_failed_record(redis: Redis) -> None:
    died = ThreadDied(reason="no module", failure=FAILURE, recordless=True)
    fold(redis, [*histories.started(), histories.event(died)])
    dead = found()["PIPELINE_DEAD"]
    assert dead.path == f"/errors/flights/{FAILURE.fingerprint}"
    assert dead.summary == f"ValueError: {FAILURE.message}"
    resumed = histories.event(ThreadStarted(), run=replace(RUN, epoch=2))
    fold(redis, [resumed])
    assert "PIPELINE_DEAD" not in found()


def test_a_driver_that_failed_until_a_newer_one_starts(redis: Redis) -> None:
    failure = replace(FAILURE, stage="driver", exception_class="KeyError", message="'orders'")
    stopped = InstanceStopped(reason="the script failed", failure=failure, recordless=True)
    fold(redis, [*histories.started(), histories.event(stopped, run=None)])
    failed = found()["DRIVER_FAILED"]
    assert failed.title == "flights: the script of the driver failed: KeyError"
    assert (failed.name, failed.summary) == ("driver on driver", "KeyError: 'orders'")
    assert failed.path == f"/errors/flights/{failure.fingerprint}"
    later = histories.event(
        InstanceStarted(host="driver", pid=8, versions={}),
        run=None,
        instance=uuid4(),
        minute=5,
    )
    fold(redis, [later])
    assert "DRIVER_FAILED" not in found()


def test_lost_and_missing_instances(redis: Redis) -> None:
    fold(redis, histories.started())
    now = datetime.now(UTC)
    lost = histories.event(InstanceLost(last_heard=now), run=None)
    streams.append([replace(lost, occurred_at=now)], received_at=now)
    assert found().keys() == {"INSTANCE_LOST"}
    configuration.set_limits(APPLICATION, {"silent_hours": 24}, actor="adam")
    assert "APPLICATION_SILENT" not in found(after=23 * HOUR)
    assert "APPLICATION_SILENT" in found(after=25 * HOUR)


def test_a_resolved_error_that_fails_again(redis: Redis) -> None:
    fold(redis, [*histories.started(), histories.failed(4)])
    assert found().keys() == {"ERROR_NEW"}
    resolve_error()
    assert found().keys() == set()
    fold(redis, [histories.failed(5)])
    assert found().keys() == {"ERROR_RECURRED"}


def test_a_high_rate_of_failures(redis: Redis) -> None:
    fold(redis, [*histories.started(), *(histories.failed(60 * each) for each in range(1, 12))])
    configuration.set_limits("", {"failures_per_minute": 2}, actor="adam")
    assert "FAILURE_RATE" not in found()
    configuration.set_limits(APPLICATION, {"failures_per_minute": 1}, actor="adam")
    assert found()["FAILURE_RATE"].title == "flights: 2 failed records a minute"
    assert "FAILURE_RATE" not in found(after=HOUR)


def test_commands_that_expired_or_did_not_help(redis: Redis) -> None:
    paused(redis)
    command = actions.resume_task(JFK.digest, actor="olga")
    assert "FAILED_AGAIN" not in found()
    resumed = TaskResumed(task="JFK", how=ResumeHow.RETRY, position=7)
    answered = histories.event(CommandApplied(command=command.id), run=None)
    again = histories.event(TaskPaused(task="JFK", position=7, failure=FAILURE), minute=1)
    fold(redis, [histories.event(resumed, caused_by=command.id), answered, again])
    failed = found()["FAILED_AGAIN"]
    assert failed.title == "flights: task delays_JFK failed again at position 7"
    assert failed.path == f"/commands/{command.id}"
    # A test changes nothing: what the command before it achieved is as before.
    test = actions.command_task(CommandKind.TEST_RECORD, JFK.digest, actor="olga")
    fold(redis, [histories.event(CommandApplied(command=test.id), run=None)])
    assert found()["FAILED_AGAIN"].path == f"/commands/{command.id}"

    actions.resume_task(JFK.digest, actor="olga")
    actions.watch(now=datetime.now(UTC) + HOUR)
    now = found()
    assert "FAILED_AGAIN" not in now
    assert now["COMMAND_EXPIRED"].title == "flights: RESUME_TASK by olga EXPIRED"


def test_an_expired_part_of_a_redrive_or_rollout_that_goes_on_is_no_alert(redis: Redis) -> None:
    whole, part = uuid4(), uuid4()
    later = datetime.now(UTC) + HOUR
    common: dict[str, Any] = {"actor": "olga", "pipeline": RUN.pipeline, "expires_at": later}
    rollout = CommandIssued(command=whole, kind=CommandKind.RESUME_TASKS, **common)
    resume = CommandIssued(
        command=part,
        kind=CommandKind.RESUME_TASK,
        checkpoint=RUN.checkpoint,
        task="JFK",
        part_of=whole,
        **common,
    )
    expired = CommandExpired(command=part, reason="the instance is lost")
    events = [histories.event(each, run=None) for each in (rollout, resume, expired)]
    fold(redis, [*histories.started(), *histories.paused()])
    streams.append(events, received_at=datetime.now(UTC))
    models.Command.objects.filter(id=part).update(issued_at=datetime.now(UTC))
    assert "COMMAND_EXPIRED" not in found()
    ended = CommandExpired(command=whole, reason="two parts expired")
    streams.append([histories.event(ended, run=None)], received_at=datetime.now(UTC))
    assert "COMMAND_EXPIRED" in found()


def test_threads_that_are_replaced_often(redis: Redis) -> None:
    def replaced(number: int) -> list[Event]:
        data = ThreadReplaced(reason="OSError", wait_ms=10, replacement=number)
        later = replace(RUN, epoch=number + 1)
        return [
            histories.event(data, run=replace(RUN, epoch=number)),
            histories.event(ThreadStarted(), run=later),
        ]

    fold(redis, [*histories.started(), *replaced(1), *replaced(2)])
    assert "THREAD_REPLACED" not in found()
    fold(redis, replaced(3))
    assert found()["THREAD_REPLACED"].count == 3


def test_used_tolerance(redis: Redis) -> None:
    described = histories.event(replace(histories.POLICY, tolerance_limit=10))
    fold(redis, [*histories.started(), described, *(histories.failed(each) for each in range(7))])
    assert "TOLERANCE_USED" not in found()
    fold(redis, [histories.failed(8)])
    assert found()["TOLERANCE_USED"].title == (
        "flights/delays: 8 of 10 tolerated failures used in this run"
    )


def test_troubles_of_the_server(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    fold(redis, histories.started())
    streams.put(redis, {"batch": str(uuid4()), "events": b"nonsense"})
    fold(redis, [histories.failed(1)])
    assert "QUARANTINE" in found()
    # A batch that waits.
    entry = int(datetime.now(UTC).timestamp() * 1000) - 61_000
    redis.delete(redis_keys.events(APPLICATION))
    streams.put(redis, {"batch": str(uuid4()), "events": b""}, id=f"{entry}-0")
    models.Sighting.objects.create(name="housekeeper", at=datetime.now(UTC) - 4 * HOUR)
    limit = str(redis.config_get("maxmemory")["maxmemory"])
    redis.config_set("maxmemory", 1_000_000)
    try:
        now = found()
    finally:
        redis.config_set("maxmemory", limit)
    assert {"SERVER_BEHIND", "SERVER_STORAGE", "SERVER_PROCESS"} <= now.keys()
    assert now["SERVER_PROCESS"].title == "Server process housekeeper is not running"

    class Usage:
        used, free = 95, 5

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    assert found()["SERVER_STORAGE"].title.startswith("Disk of the data folder 95% full")


def test_alerts_about_redis_wait_while_it_is_away(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise redis_client.RedisError("away")

    paused(redis)
    monkeypatch.setattr(redis_client, "client", refused)
    checked = conditions.find(now=datetime.now(UTC))
    assert "TASKS_PAUSED" in {each.cause.value for each in checked.conditions}
    assert AlertCause.SERVER_BEHIND in checked.unknown
    assert AlertCause.TASKS_PAUSED not in checked.unknown


def test_every_cause_has_a_label_and_the_paths_are_pages() -> None:
    from django.urls import resolve

    from arrester.controlplane.queries.conditions import condition

    assert all(each.label for each in AlertCause)
    for path in (
        condition.task_path(JFK),
        condition.error_path("flights", "1-00 ü/?"),
        condition.application_path("flights", "policy").partition("?")[0],
    ):
        resolve(path)


def measured(ago: int, **values: object) -> Event:
    """Return what was measured in the minute that began some minutes ago."""
    minute = (datetime.now(UTC) - timedelta(minutes=ago)).replace(second=0, microsecond=0)
    data = FlowMeasured(minute=minute, **values)  # type: ignore[arg-type]  # by the caller's names
    return histories.event(data)


def test_a_pipeline_without_a_micro_batch_for_long(redis: Redis) -> None:
    configuration.set_limits("", {"no_batch_minutes": 5}, actor="adam")
    streams.append(histories.started(), received_at=datetime.now(UTC))
    # What an agent without flow does is not known.
    assert "PIPELINE_LATE" not in found()
    last = datetime.now(UTC) - timedelta(minutes=9)
    fold(redis, [measured(9, micro_batches=1, last_batch_at=last)])
    late = found()["PIPELINE_LATE"]
    assert (late.title, late.since) == ("flights/delays: no micro-batch for 9 min", last)
    assert late.path == "/pipelines/flights/delays"
    # After a pause it has the same time as after a start.
    fold(redis, [histories.event(PipelinePaused(since=last))])
    assert "PIPELINE_LATE" not in found()
    fold(redis, [histories.event(PipelineResumed())])
    assert "PIPELINE_LATE" not in found()
    assert "PIPELINE_LATE" in found(after=timedelta(minutes=6))
    fold(redis, [measured(2, micro_batches=1, last_batch_at=datetime.now(UTC))])
    assert "PIPELINE_LATE" not in found()
    assert "PIPELINE_LATE" in found(after=HOUR)
    fold(redis, [histories.event(ThreadDied(reason="stopped: the block ended"))])
    assert "PIPELINE_LATE" not in found(after=HOUR)


def test_a_backlog_that_grows(redis: Redis) -> None:
    fold(redis, histories.started())
    fold(redis, [measured(29 - each, backlog=100 + each) for each in range(29)])
    grows = found()["BACKLOG_GROWS"]
    assert grows.summary == "its backlog grows: 128, 28 more than 30 min ago"
    fold(redis, [measured(1, backlog=20)])
    assert "BACKLOG_GROWS" not in found()
    configuration.set_limits(APPLICATION, {}, actor="adam")
    assert "BACKLOG_GROWS" not in found()


def test_a_share_of_failed_records_above_the_limit(redis: Redis) -> None:
    configuration.set_limits("", {"failed_percent": 10}, actor="adam")
    fold(redis, histories.started())
    fold(redis, [measured(3, records_in=99, failed=99)])
    assert "FAILED_SHARE" not in found()
    fold(redis, [measured(3, records_in=101, failed=1)])
    assert found()["FAILED_SHARE"].summary == "50 % of 200 records failed in 5 min"
    fold(redis, [measured(3, records_in=10_000)])
    assert "FAILED_SHARE" not in found()


def test_a_micro_batch_that_runs_for_long(redis: Redis) -> None:
    configuration.set_limits("", {"batch_minutes": 10}, actor="adam")
    fold(redis, histories.started())
    now = datetime.now(UTC)
    for minutes in (9, 11):
        since = now - timedelta(minutes=minutes)
        at_work = codec.InProgress(pipeline="delays", input="batch 7", phase="write", since=since)
        beat = codec.Heartbeat(at=now, status="RUNNING", in_progress=(at_work,))
        key = redis_keys.heartbeat(APPLICATION, histories.INSTANCE)
        redis.set(key, msgspec.json.encode(beat), ex=redis_keys.LOST_AFTER_SECONDS)
        assert ("BATCH_LONG" in found()) is (minutes > 10)


def test_a_paused_pipeline_needs_attention_until_it_is_resumed_and_is_no_alert(
    redis: Redis,
) -> None:
    def by_hand() -> list[Condition]:
        now = datetime.now(UTC)
        return [
            each
            for each in conditions.needing_attention(now=now)
            if each.cause is AlertCause.PIPELINE_PAUSED
        ]

    until = histories.NOON + HOUR
    paused_by_ana = PipelinePaused(
        since=histories.NOON, until=until, actor="ana", reason="a migration"
    )
    fold(redis, [*histories.started(), histories.event(paused_by_ana)])
    [condition] = by_hand()
    assert not condition.cause.alerts and not condition.cause.critical
    assert condition.line == f"paused by ana until {until:%Y-%m-%d %H:%M:%S} UTC: a migration"
    assert (condition.since, condition.pipeline) == (histories.NOON, RUN.pipeline)
    assert condition.path == f"/pipelines/{APPLICATION}/{RUN.pipeline}"
    # Its next run starts PAUSED.
    fold(redis, [histories.event(ThreadDied(reason="stopped"))])
    assert len(by_hand()) == 1
    fold(redis, [histories.event(PipelineResumed(actor="ben"))])
    assert by_hand() == []
