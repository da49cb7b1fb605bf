"""Timeouts: instances lost and found, commands expired."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import psycopg
import pytest
from django.db import connection
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, embedded, models, queries
from arrester.controlplane.actions import timeouts
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.redis import heartbeats, reachability, redis_client
from arrester.controlplane.views import projections, row_mapping
from arrester.controlplane.views.bulk_upsert import Upsert, upsert
from arrester.domain.events import CommandApplied, CommandKind, TaskPaused
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import CommandStatus, InstanceState
from arrester.domain.wire import command_codec
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, INSTANCE, JFK, OTHER_INSTANCE

pytestmark = pytest.mark.usefixtures("fresh_database")


@pytest.fixture
def now(redis: Redis) -> datetime:
    """Return now, with an application whose task JFK is PAUSED."""
    streams.send(redis, [*histories.started(), *histories.paused()])
    fold_stream.fold_stream(APPLICATION)
    return datetime.now(UTC)


def watched_since(redis: Redis, since: datetime, *, last: datetime) -> None:
    watch = reachability.Watch(since=since, last=last)
    redis.set(redis_keys.WATCH, msgspec.json.encode(watch))


def instance() -> InstanceState:
    (state,) = queries.instances(APPLICATION)
    return state


def test_an_instance_without_heartbeat_is_lost_and_found_with_the_next_one(
    redis: Redis, now: datetime
) -> None:
    watched_since(redis, now - timedelta(seconds=31), last=now - timedelta(seconds=5))

    assert actions.watch(now=now) == 1
    assert instance().lost
    assert actions.watch(now=now) == 0
    assert queries.application(APPLICATION).lost == 1

    redis.set(redis_keys.heartbeat(APPLICATION, INSTANCE), b"{}")
    assert actions.watch(now=now) == 1
    assert not instance().lost
    streams.assert_exact()


def test_an_application_whose_fold_is_slow_delays_the_checks_of_no_other(
    redis: Redis, now: datetime, fresh_database: embedded.Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "LOCK_SECONDS", 0.05)
    watched_since(redis, now - timedelta(seconds=31), last=now - timedelta(seconds=5))
    for application in ("a", "z"):
        streams.append(histories.started(), received_at=now, application=application)
    with psycopg.connect(fresh_database.database) as slow:
        slow.execute("SELECT FROM stream WHERE application = %s FOR UPDATE", [APPLICATION])
        assert actions.watch(now=now) == 2
    assert not instance().lost
    assert actions.watch(now=now) == 1
    assert instance().lost
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


def test_a_value_that_postgresql_refuses_affects_the_checks_of_no_other_application(
    redis: Redis, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched_since(redis, now - timedelta(seconds=31), last=now - timedelta(seconds=5))
    streams.append(histories.started(), received_at=now, application="a")
    check = timeouts._watch

    def watch(application: str, **arguments: Any) -> int:
        if application == "a":
            with connection.cursor() as cursor:
                cursor.execute("SELECT (2::numeric ^ 64)::bigint")
        return check(application, **arguments)

    monkeypatch.setattr(timeouts, "_watch", watch)
    assert actions.watch(now=now) == 1
    assert instance().lost


def test_killed_and_replaced_instances_are_checked_for_a_day(redis: Redis, now: datetime) -> None:
    """They never report their end, and each action would load all of them since creation."""
    long_ago, lately = now - timedelta(days=2), now - timedelta(hours=2)
    running = row_mapping.INSTANCES.load("id = %s", [INSTANCE])[0]
    killed = replace(running, id=uuid4(), lost=True, started_at=long_ago)
    new = replace(killed, id=uuid4(), started_at=lately)
    without_start = replace(killed, id=uuid4(), started_at=None)
    # The newest run of its pipeline is its own.
    known = [replace(running, lost=True, started_at=long_ago), killed, new, without_start]
    rows = [row_mapping.INSTANCES.row(each) for each in known]
    upsert([Upsert(models.Instance, rows)])
    state = projections.current_states(APPLICATION)
    assert state.instances.keys() == {INSTANCE, new.id, without_start.id}
    assert instance().id == INSTANCE
    assert {each.id for each in queries.instances(APPLICATION, ended=True)} == {
        killed.id,
        new.id,
        without_start.id,
    }


def test_a_paused_task_is_resumed_when_its_time_is_over(redis: Redis, now: datetime) -> None:
    redis.set(redis_keys.heartbeat(APPLICATION, INSTANCE), b"{}")
    streams.send(redis, [histories.failed(3, key="EWR")])
    fold_stream.fold_stream(APPLICATION)
    ewr = replace(JFK, key="EWR")
    minute = timedelta(minutes=1)
    pause = actions.command_task(CommandKind.PAUSE_TASK, ewr.digest, actor="ana", duration=minute)
    (entry,) = redis_client.entries(redis, redis_keys.commands(APPLICATION))
    # Agents of 0.2.0 do not know the end, and need not.
    assert command_codec.decode_command(entry[1][b"body"]).until is None
    paused = TaskPaused(task="EWR", position=None, actor="ana")
    applied = CommandApplied(command=pause.id)
    streams.send(redis, [histories.event(each, caused_by=pause.id) for each in (paused, applied)])
    fold_stream.fold_stream(APPLICATION)
    assert streams.task(ewr.digest).paused_until == pause.paused_until

    assert actions.watch(now=pause.issued_at + minute - timedelta(seconds=1)) == 0
    assert actions.watch(now=pause.issued_at + minute) == 1
    assert actions.watch(now=pause.issued_at + 2 * minute) == 0
    resume = queries.task(ewr.digest).open_command
    assert resume is not None
    assert (resume.kind, resume.actor) == (CommandKind.RESUME_TASK, "pause of ana")
    assert len(redis_client.entries(redis, redis_keys.commands(APPLICATION))) == 1
    streams.assert_exact()


def test_an_instance_with_a_heartbeat_is_not_lost(redis: Redis, now: datetime) -> None:
    watched_since(redis, now - timedelta(hours=1), last=now)
    redis.set(redis_keys.heartbeat(APPLICATION, INSTANCE), b"{}")
    assert actions.watch(now=now) == 0


@pytest.mark.parametrize(
    ("since", "last"),
    [(29, 5), (3600, 16)],
    ids=["Redis is reachable for too short", "no check for a while"],
)
def test_no_instance_is_lost_after_redis_was_unreachable(
    redis: Redis, now: datetime, since: int, last: int
) -> None:
    watched_since(redis, now - timedelta(seconds=since), last=now - timedelta(seconds=last))
    assert actions.watch(now=now) == 0


def test_a_silent_instance_is_lost_after_the_clock_went_back(redis: Redis, now: datetime) -> None:
    ahead = now + timedelta(hours=3)
    watched_since(redis, ahead - timedelta(hours=1), last=ahead)
    for seconds in range(0, 30, 5):
        assert actions.watch(now=now + timedelta(seconds=seconds)) == 0
    assert actions.watch(now=now + timedelta(seconds=30)) == 1


def test_an_emptied_redis_proves_nothing_until_it_was_reachable_for_a_while(
    redis: Redis, now: datetime
) -> None:
    redis.flushall()
    for seconds in range(0, 30, 5):
        assert actions.watch(now=now + timedelta(seconds=seconds)) == 0
    assert actions.watch(now=now + timedelta(seconds=30)) == 1


def test_no_instance_is_lost_while_events_wait_to_be_folded(redis: Redis, now: datetime) -> None:
    streams.send(redis, [histories.failed(9)])
    later = now + timedelta(seconds=60)
    watched_since(redis, now, last=later - timedelta(seconds=5))
    assert actions.watch(now=later) == 0
    fold_stream.fold_stream(APPLICATION)
    assert actions.watch(now=later) == 1


def test_an_instance_that_starts_during_the_check_is_not_lost(
    redis: Redis, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched_since(redis, now - timedelta(hours=1), last=now)
    check = heartbeats.with_heartbeat

    def check_slowly(application: str, instances: Collection[UUID]) -> set[UUID]:
        answer = check(application, instances)
        redis.set(redis_keys.heartbeat(APPLICATION, OTHER_INSTANCE), b"{}")
        streams.send(redis, [replace(histories.started()[0], instance=OTHER_INSTANCE)])
        fold_stream.fold_stream(APPLICATION)
        return answer

    monkeypatch.setattr(heartbeats, "with_heartbeat", check_slowly)
    actions.watch(now=now)

    lost = {each.id: each.lost for each in queries.instances(APPLICATION)}
    assert lost == {INSTANCE: True, OTHER_INSTANCE: False}


def test_a_command_that_no_instance_fetches_expires(redis: Redis, now: datetime) -> None:
    redis.set(redis_keys.heartbeat(APPLICATION, INSTANCE), b"{}")
    command = actions.resume_task(JFK.digest, actor="ana")
    assert redis.xlen(redis_keys.commands(APPLICATION)) == 1

    actions.watch(now=command.expires_at - timedelta(seconds=1))
    assert queries.command(command.id).status is CommandStatus.ISSUED
    actions.watch(now=command.expires_at)

    assert queries.command(command.id).status is CommandStatus.EXPIRED
    assert redis.xlen(redis_keys.commands(APPLICATION)) == 0
    streams.assert_exact()


def test_a_command_of_a_lost_instance_expires(redis: Redis, now: datetime) -> None:
    command = actions.resume_task(JFK.digest, actor="ana")
    watched_since(redis, now - timedelta(hours=1), last=now)
    actions.watch(now=now)
    assert queries.command(command.id).outcome == "the instance is LOST"
    assert queries.command(command.id).status is CommandStatus.EXPIRED
