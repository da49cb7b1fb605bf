"""An agent runs while its application's state is missing in Redis: it is restored soon."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, tasks
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.management.commands import wake
from arrester.controlplane.redis import redis_client
from arrester.domain.events import ApplicationShutdownRequested, CommandKind
from arrester.domain.identity import redis_keys
from arrester.domain.wire import command_codec
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION

pytestmark = pytest.mark.usefixtures("fresh_database")


@pytest.fixture
def latched(redis: Redis) -> Redis:
    """Return an emptied Redis, with a LATCHED application."""
    actions.open_application(APPLICATION, actor="ana")
    actions.shut_down_application(APPLICATION, actor="ana", reason="because")
    assert redis.get(redis_keys.state(APPLICATION)) == b"LATCHED"
    redis.flushall()
    return redis


def test_an_emptied_redis_is_swept_at_the_next_check(
    latched: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(wake.Waker, "_send", lambda _, task, *__, **___: sent.append(task.name))
    monkeypatch.setattr(wake, "POLL_SECONDS", 0.0)
    waker = wake.Waker()
    waker.poll()
    assert "arrester.sweep" in sent

    tasks.sweep()
    actions.watch()
    assert latched.get(redis_keys.state(APPLICATION)) == b"LATCHED"
    sent.clear()
    waker.poll()
    assert sent == []

    latched.flushall()
    waker.poll()
    assert "arrester.sweep" in sent


def test_a_shutdown_by_an_instance_ends_all_others_once(redis: Redis) -> None:
    started = histories.started()[0]
    other = uuid4()
    streams.send(redis, [started, replace(started, instance=other)])
    requested = histories.event(ApplicationShutdownRequested(reason="it broke"), run=None)
    requested = replace(requested, occurred_at=datetime.now(UTC))
    batch = streams.send(redis, [requested])
    fold_stream.fold_stream(APPLICATION)

    streams.send(redis, [requested], batch=batch)
    fold_stream.fold_stream(APPLICATION)

    assert redis.get(redis_keys.state(APPLICATION)) == b"LATCHED"
    [(_, fields)] = redis_client.entries(redis, redis_keys.commands(APPLICATION))
    command = command_codec.decode_command(fields[b"body"])
    assert (command.kind, command.error) == (CommandKind.SHUT_DOWN_APPLICATION, True)
    assert command.instances == (other,)
    logged = [each.event.type for each in streams.log()]
    assert logged[2:] == ["ApplicationShutdownRequested", "CommandIssued", "ApplicationLatched"]
    streams.assert_exact()


def test_the_state_is_published_again_for_a_starting_instance(latched: Redis) -> None:
    streams.send(latched, [replace(histories.started()[0], instance=uuid4())])
    fold_stream.fold_stream(APPLICATION)
    assert latched.get(redis_keys.state(APPLICATION)) == b"LATCHED"
