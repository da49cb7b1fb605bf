"""A fold, a rebuild and retention killed (-9) behind each of their steps: what is there is whole,
and the next run does what was left."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, TypeVar

import psycopg
import pytest
from django.db import connection, connections
from psycopg.copy import LibpqWriter
from redis import Redis
from redis.connection import AbstractConnection

from arrester.controlplane import models, store
from arrester.controlplane.history import rebuild, retention, state_at_position
from arrester.controlplane.ingest import fold_stream
from arrester.domain.identity import redis_keys
from tests import histories
from tests.controlplane import streams
from tests.controlplane.lost_connections import wait_until_closed
from tests.histories import APPLICATION

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("fresh_database")]
NOW = datetime.now(UTC)
T = TypeVar("T")


@pytest.fixture
def six_days(monkeypatch: pytest.MonkeyPatch) -> rebuild.Derived:
    """Append events on each of six days; return the rows of the views."""
    monkeypatch.setattr(state_at_position, "EVENTS_PER_SNAPSHOT", 4)
    monkeypatch.setattr(rebuild, "NEAR", 2)
    store.ensure_partitions((NOW - timedelta(days=6)).date(), days=6)
    for number in range(6):
        events = [*histories.paused(number), histories.failed(number, key="EWR")]
        streams.append(events, received_at=NOW - timedelta(days=6 - number))
        state_at_position.make_snapshot_if_due(APPLICATION)
    streams.assert_exact()
    return rebuild.live_rows(APPLICATION)


def kills(work: Callable[[], object]) -> Iterator[int]:
    """Run `work` in processes that are killed one step later each time, until one completes.

    A step is a statement, a piece of what is copied, a commit, or an answer of Redis.
    """
    number = 0
    while True:
        number += 1
        connections.close_all()
        child = os.fork()
        if child == 0:
            _die_behind(number, work)
        _, status = os.waitpid(child, 0)
        wait_until_closed()
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        yield number


def _die_behind(number: int, work: Callable[[], object]) -> None:
    left = number

    def step(do: Callable[..., T], *arguments: Any, **options: Any) -> T:
        nonlocal left
        found = do(*arguments, **options)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    try:
        for kind, name in (
            (psycopg.Connection, "commit"),
            (LibpqWriter, "write"),
            (AbstractConnection, "read_response"),
        ):
            do = getattr(kind, name)
            setattr(kind, name, lambda *given, do=do, **options: step(do, *given, **options))
        with connection.execute_wrapper(step):
            work()
    except BaseException:
        os._exit(1)
    os._exit(0)


@pytest.mark.long
def test_a_fold_is_killed_after_any_step(redis: Redis) -> None:
    store.open_stream(APPLICATION)
    batches = [streams.send(redis, histories.paused(0))]
    killed = 0
    for killed in kills(lambda: fold_stream.fold_stream(APPLICATION)):
        streams.assert_exact()
        batches.append(streams.send(redis, histories.paused(killed)))
    assert killed > 15
    streams.assert_exact()
    assert [batch for batch, _ in groupby(each.batch for each in streams.log())] == batches
    assert streams.confirmed(redis) == set(batches)
    assert redis.xlen(redis_keys.events(APPLICATION)) == 0


@pytest.mark.long
def test_a_rebuild_is_killed_after_any_statement(six_days: rebuild.Derived) -> None:
    killed = 0
    for number in kills(lambda: rebuild.rebuild(APPLICATION)):
        killed = number
        assert rebuild.live_rows(APPLICATION) == six_days
    assert killed > 30
    assert rebuild.live_rows(APPLICATION) == six_days
    assert rebuild.differences(APPLICATION) == []
    assert not models.ShadowRow.objects.exists()


def test_retention_is_killed_after_any_statement(six_days: rebuild.Derived) -> None:
    def retain() -> None:
        assert not retention.retain(days=3, replay_days=3, now=NOW).busy

    kept = [each.sequence for each in streams.log()]
    # Before there is a base, then with it, until all is done.
    killed = 0
    while [each.sequence for each in streams.log()] == kept:
        had = models.Base.objects.exists()
        for number in kills(retain):
            killed += 1
            assert rebuild.live_rows(APPLICATION) == six_days
            assert rebuild.differences(APPLICATION) == []
            if models.Base.objects.exists() != had:
                break
            assert number < 500
    assert killed > 20
    assert store.base(APPLICATION).position == streams.log()[0].sequence - 1 > 0
    assert rebuild.differences(APPLICATION) == []
    assert rebuild.live_rows(APPLICATION) == six_days
