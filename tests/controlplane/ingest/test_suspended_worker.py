"""A fold is suspended (SIGSTOP) while it holds its stream: another worker takes over, and the fold
changes nothing when it continues."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from django.db import connection, connections, transaction
from redis import Redis

from arrester.controlplane import store
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.store.streams import copy_in
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION
from tests.patience import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("fresh_database")]


def stop(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def when_all_is_folded() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_stream, "_relay_if_needed", stop)
        fold_stream.fold_stream(APPLICATION)


def in_a_transaction() -> None:
    def execute(execute: Callable[..., object], sql: str, *arguments: object) -> object:
        if "INSERT INTO task " in sql:
            stop()
        return execute(sql, *arguments)

    with connection.execute_wrapper(execute):
        fold_stream.fold_stream(APPLICATION)


def in_a_copy() -> None:
    def rows() -> Iterator[tuple[object, ...]]:
        stop()
        yield from ()

    with store.try_fold_lock(APPLICATION), transaction.atomic():
        store.lock(APPLICATION)
        copy_in("batch_seen", {"application": "text"}, rows())


def suspended(work: Callable[[], None]) -> int:
    """Run `work` in another process until it is suspended; return the process id."""
    connections.close_all()
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            # With any answer of its lost connection.
            os._exit(0)
    _, status = os.waitpid(child, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    return child


@pytest.mark.parametrize("work", [when_all_is_folded, in_a_transaction, in_a_copy])
def test_a_suspended_fold_is_ended(
    redis: Redis, work: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.open_stream(APPLICATION)
    streams.send(redis, [*histories.started(), histories.failed(1)])
    child = suspended(work)
    try:
        streams.send(redis, [histories.failed(2)])
        # It may only be slow.
        assert fold_stream.fold_stream(APPLICATION).busy
        monkeypatch.setattr(fold_stream, "STUCK_SECONDS", 0.0)
        wait_until(lambda: not fold_stream.fold_stream(APPLICATION).busy)
        log = streams.log()
        assert len(log) == 4
        streams.assert_exact()
    finally:
        os.kill(child, signal.SIGCONT)
        os.waitpid(child, 0)
    assert streams.log() == log
    streams.assert_exact()
