"""A fold that is suspended (SIGSTOP) while it holds its stream: another takes over, and what it
does when it goes on changes nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from django.db import connection, connections, transaction
from redis import Redis

from controlplane import ingest, store
from controlplane.store.streams import copy_in
from tests import histories
from tests.histories import APPLICATION
from tests.server import streams
from tests.server.test_wake import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("fresh_database")]


def stop() -> bool:
    os.kill(os.getpid(), signal.SIGSTOP)
    return True


def when_all_is_folded() -> None:
    once = iter([stop])
    ingest.drain(APPLICATION, may_linger=lambda: any(each() for each in once))


def in_a_transaction() -> None:
    def execute(execute: Callable[..., object], sql: str, *arguments: object) -> object:
        if sql.startswith("INSERT INTO task "):
            stop()
        return execute(sql, *arguments)

    with connection.execute_wrapper(execute):
        ingest.drain(APPLICATION)


def in_a_copy() -> None:
    def rows() -> Iterator[tuple[object, ...]]:
        stop()
        yield from ()

    with store.exclusively(APPLICATION), transaction.atomic():
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
        assert ingest.drain(APPLICATION).busy
        monkeypatch.setattr(ingest, "STUCK_SECONDS", 0.0)
        wait_until(lambda: not ingest.drain(APPLICATION).busy)
        log = streams.log()
        assert len(log) == 4
        streams.assert_exact()
    finally:
        os.kill(child, signal.SIGCONT)
        os.waitpid(child, 0)
    assert streams.log() == log
    streams.assert_exact()
