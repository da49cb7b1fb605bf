"""A fold that is suspended (SIGSTOP) while it holds its stream: another takes over, and what it
does when it goes on changes nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from django.db import connection, connections, transaction
from redis import Redis

from arrester.controlplane import store
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.ingest import drain
from arrester.controlplane.store.streams import copy_in
from tests import histories
from tests.controlplane import streams
from tests.controlplane.ingest.test_wake import wait_until
from tests.histories import APPLICATION

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("fresh_database")]


def stop(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def when_all_is_folded() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drain, "_tell", stop)
        drain.drain(APPLICATION)


def in_a_transaction() -> None:
    def execute(execute: Callable[..., object], sql: str, *arguments: object) -> object:
        if "INSERT INTO task " in sql:
            stop()
        return execute(sql, *arguments)

    with connection.execute_wrapper(execute):
        drain.drain(APPLICATION)


def in_a_copy() -> None:
    def rows() -> Iterator[tuple[object, ...]]:
        stop()
        yield from ()

    with store.try_fold_lock(APPLICATION), transaction.atomic():
        store.lock(APPLICATION)
        copy_in("batch_seen", {"application": "text"}, rows())


def suspended(work: Callable[[], None]) -> int:
    """Do `work` in a process of its own until it is suspended; return its id."""
    connections.close_all()
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            # Whatever its connection says that is gone.
            os._exit(0)
    _, status = os.waitpid(child, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    return child


@pytest.mark.parametrize("work", [when_all_is_folded, in_a_transaction, in_a_copy])
def test_a_suspended_fold_is_cut_off(
    redis: Redis, work: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.open_stream(APPLICATION)
    streams.send(redis, [*histories.started(), histories.failed(1)])
    child = suspended(work)
    try:
        streams.send(redis, [histories.failed(2)])
        # It may only be slow.
        assert drain.drain(APPLICATION).busy
        monkeypatch.setattr(drain, "STUCK_SECONDS", 0.0)
        wait_until(lambda: not drain.drain(APPLICATION).busy)
        log = streams.log()
        assert len(log) == 4
        streams.assert_exact()
    finally:
        os.kill(child, signal.SIGCONT)
        os.waitpid(child, 0)
    assert streams.log() == log
    streams.assert_exact()


def test_a_fold_that_computes_long_is_given_twice_the_time_again(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL waits for its next word as for one that is suspended."""
    store.open_stream(APPLICATION)
    streams.send(redis, [histories.failed(1)])
    child, patience = suspended(when_all_is_folded), drain.STUCK_SECONDS
    monkeypatch.setattr(drain, "STUCK_SECONDS", 0.0)
    try:
        wait_until(lambda: not drain.drain(APPLICATION).busy)
        assert redis.get(redis_keys.cut_off(APPLICATION)) == b"1"
        # It is forgotten after the longest that one is waited for, not before.
        longest = patience * 2**drain.MOST_DOUBLINGS
        assert longest < redis.ttl(redis_keys.cut_off(APPLICATION)) <= redis_keys.CUT_OFF_SECONDS
    finally:
        os.kill(child, signal.SIGCONT)
        os.waitpid(child, 0)

    streams.send(redis, [histories.failed(2)])
    child = suspended(when_all_is_folded)
    monkeypatch.setattr(drain, "STUCK_SECONDS", 0.25)
    redis.set(redis_keys.cut_off(APPLICATION), drain.MOST_DOUBLINGS)
    try:
        wait_until(lambda: silent(seconds=0.25))
        assert drain.drain(APPLICATION).busy
        # With no more patience than at first it is cut off.
        redis.delete(redis_keys.cut_off(APPLICATION))
        assert drain.drain(APPLICATION).busy
        assert redis.get(redis_keys.cut_off(APPLICATION)) == b"1"
        wait_until(lambda: not drain.drain(APPLICATION).busy)
    finally:
        os.kill(child, signal.SIGCONT)
        os.waitpid(child, 0)
    streams.assert_exact()


def silent(*, seconds: float) -> bool:
    """Whether somebody holds a stream, and PostgreSQL has waited for so long for its word."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE locktype = 'advisory' AND wait_event = 'ClientRead'"
            " AND state_change < now() - %s * interval '1 second'",
            [seconds],
        )
        return bool(cursor.fetchone()[0])
