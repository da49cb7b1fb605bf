"""An agent runs while `state` is absent in Redis: after a loss it has to be back soon."""

from __future__ import annotations

from uuid import uuid4

import pytest
from msgspec.structs import replace
from redis import Redis

from controlplane import actions, ingest, tasks
from controlplane.domain import keys
from controlplane.management.commands import wake
from tests import histories
from tests.histories import APPLICATION
from tests.server import streams

pytestmark = pytest.mark.usefixtures("fresh_database")


@pytest.fixture
def latched(redis: Redis) -> Redis:
    """Return an emptied Redis beside a LATCHED application."""
    actions.open_application(APPLICATION, actor="ana")
    actions.shut_down_application(APPLICATION, actor="ana", reason="because")
    assert redis.get(keys.state(APPLICATION)) == b"LATCHED"
    redis.flushall()
    return redis


def test_an_emptied_redis_is_swept_at_the_next_look(
    latched: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(wake.Waker, "_send", lambda _, task, *__: asked.append(task.name))
    monkeypatch.setattr(wake, "LOOK_SECONDS", 0.0)
    waker = wake.Waker()
    waker.turn()
    assert "arrester.sweep" in asked

    tasks.sweep()
    actions.watch()
    assert latched.get(keys.state(APPLICATION)) == b"LATCHED"
    asked.clear()
    waker.turn()
    assert asked == []

    latched.flushall()
    waker.turn()
    assert "arrester.sweep" in asked


def test_whoever_starts_has_the_state_said_again(latched: Redis) -> None:
    streams.send(latched, [replace(histories.started()[0], instance=uuid4())])
    ingest.drain(APPLICATION)
    assert latched.get(keys.state(APPLICATION)) == b"LATCHED"
