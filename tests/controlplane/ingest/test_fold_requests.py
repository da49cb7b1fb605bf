"""Fold requests: one chain of messages per application, also after losses and waits."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest
from django.db import connections
from kombu import Connection
from redis import Redis

from arrester.controlplane import queries, store, tasks
from arrester.controlplane.celery import STREAM_FOLDS, app
from arrester.controlplane.celery_workers import FOLDS, HOUSEKEEPING
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.management.commands.wake import (
    PERIODIC,
    POLL_SECONDS,
    SWEEP_SECONDS,
    Waker,
)
from arrester.domain.identity import redis_keys
from arrester.domain.identity.redis_keys import PENDING_FOLD_SECONDS
from tests import histories
from tests.controlplane import streams
from tests.controlplane.lost_connections import wait_until_closed
from tests.histories import APPLICATION
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("fresh_database")
MARK = redis_keys.pending_fold(APPLICATION)


@pytest.fixture
def waker(redis: Redis) -> Waker:
    """Return a waker that has requested a fold and does not sweep."""
    store.open_stream(APPLICATION)
    streams.send(redis, [histories.failed(1)])
    waker = Waker()
    waker.poll()
    return waker


def look(waker: Waker) -> None:
    """Run the check of each second, without the sweep of every five seconds."""
    waker.next_discovery, waker.next_sweep = 0.0, float("inf")
    waker.poll()


def messages(redis: Redis) -> list[str]:
    """Return the ids of the queued folds, the next one last."""
    return [json.loads(text)["headers"]["id"] for text in redis.lrange(STREAM_FOLDS, 0, -1)]


def run(redis: Redis) -> None:
    """Run the next fold like a worker."""
    id = messages(redis)[-1]
    redis.rpop(STREAM_FOLDS)
    tasks.fold_stream.apply(args=(APPLICATION,), task_id=id, throw=True)


def test_a_queued_fold_is_not_requested_again(redis: Redis, waker: Waker) -> None:
    assert len(messages(redis)) == 1
    # As it is kept alive, it has an end again.
    redis.persist(MARK)
    look(waker)
    assert 0 < redis.ttl(MARK) <= PENDING_FOLD_SECONDS
    assert len(messages(redis)) == 1
    # Nor does it expire.
    assert json.loads(redis.lrange(STREAM_FOLDS, 0, -1)[0])["headers"]["expires"] is None


def lose_the_message(redis: Redis) -> None:
    redis.delete(STREAM_FOLDS)


def kill_the_fold(redis: Redis) -> None:
    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    connections.close_all()
    child = os.fork()
    if child == 0:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fold_stream, "_relay_if_needed", die)
            fold_stream.fold_stream(APPLICATION)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    wait_until_closed()
    redis.delete(STREAM_FOLDS)
    streams.send(redis, [histories.failed(2)])


@pytest.mark.parametrize("harm", [lose_the_message, kill_the_fold])
def test_a_lost_fold_is_requested_again(
    redis: Redis, waker: Waker, harm: Callable[[Redis], None]
) -> None:
    harm(redis)
    assert 0 < redis.ttl(MARK) <= PENDING_FOLD_SECONDS
    redis.persist(MARK)
    look(waker)
    # No process renews the key.
    assert redis.ttl(MARK) == -1 and not messages(redis)
    redis.delete(MARK)
    look(waker)
    assert len(messages(redis)) == 1
    # The mark's life, a look that has just been, and the next.
    assert PENDING_FOLD_SECONDS + 2 * POLL_SECONDS <= SWEEP_SECONDS
    run(redis)
    streams.assert_exact()
    look(waker)
    assert not waker.requested


def test_each_application_has_one_chain_of_messages(
    redis: Redis, waker: Waker, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fold_stream.fold_stream
    monkeypatch.setattr(
        fold_stream, "fold_stream", lambda *_args, **_options: fold_stream.StreamFold(more=True)
    )
    run(redis)
    (continued,) = messages(redis)
    assert redis.get(MARK) == continued.encode()
    # Wake did not look for long, and asks once more.
    redis.delete(MARK)
    look(waker)
    second, first = messages(redis)
    assert first == continued
    run(redis)
    # It was void: nothing is behind the second.
    assert messages(redis) == [second]
    run(redis)
    assert len(messages(redis)) == 1
    monkeypatch.setattr(fold_stream, "fold_stream", whole)
    run(redis)
    assert not messages(redis) and not redis.exists(MARK)
    assert queries.log_positions()[APPLICATION] == 1


def test_sweeps_run_before_waiting_folds(redis: Redis) -> None:
    for number in range(20):
        tasks.fold_stream.delay(f"noisy{number}")
    tasks.sweep.delay()
    tasks.watch.delay()
    taken = []
    connection: Connection
    with app.connection_for_read() as connection, connection.SimpleQueue(FOLDS) as queue:
        for _ in range(3):
            message = queue.get(timeout=PATIENCE_SECONDS)
            taken.append(message.headers["task"])
            message.ack()
    assert taken == ["arrester.sweep", "arrester.watch", "arrester.fold_stream"]


def test_a_lost_request_of_the_index_is_repeated(redis: Redis) -> None:
    """A housekeeper was killed with the last one, and no new events come."""
    waker = Waker()

    def index_requests() -> int:
        waker.next_sweep = 0.0
        waker.poll()
        queued = redis.lrange(HOUSEKEEPING, 0, -1)
        redis.delete(HOUSEKEEPING)
        return sum(
            json.loads(each)["headers"]["task"] == tasks.index_records.name for each in queued
        )

    assert index_requests() == 0
    streams.send(redis, [histories.failed(1)])
    waker.next_discovery = 0.0
    waker.poll()
    assert index_requests() == 1
    assert index_requests() == 0
    # A minute later.
    waker.next_request[tasks.index_records] = 0.0
    assert index_requests() == 1


def test_the_round_trips_of_wake_do_not_grow_with_the_applications(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `wake` that takes longer than a key lives would replace requests before they are folded."""
    monkeypatch.setattr(Waker, "_send", lambda *_, **__: None)
    trips = {}
    for many in (2, 60):
        names = [f"application-{number}" for number in range(many)]
        waker = Waker()
        for name in names:
            streams.send(redis, [histories.failed(1)], application=name)
        waker.next_request |= dict.fromkeys(PERIODIC, float("inf"))
        waker.poll()  # It finds the streams.
        for look_again in ("requests", "repeats"):
            if look_again == "requests":
                redis.delete(*map(redis_keys.pending_fold, names))
            waker.next_discovery = waker.next_sweep = 0.0
            before = redis.info("stats")["total_reads_processed"]
            waker.poll()
            trips[many, look_again] = redis.info("stats")["total_reads_processed"] - before
        assert redis.exists(*map(redis_keys.pending_fold, names)) == many
    assert trips[60, "requests"] <= trips[2, "requests"] + 10
    assert trips[60, "repeats"] <= trips[2, "repeats"] + 10
