"""Snapshots: made during folds without the stream's lock, and equal to the log."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from random import Random

import pytest
from django.db import connection, transaction
from redis import Redis

from arrester.controlplane import models, store, tasks
from arrester.controlplane.celery_workers import HOUSEKEEPING
from arrester.controlplane.history import rebuild as full_rebuild
from arrester.controlplane.history import state_at_position
from arrester.controlplane.ingest import fold_stream
from arrester.domain.events import Event
from arrester.domain.state.keyed_states import StateKeys
from arrester.domain.state.stream_state import StreamState, empty
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION

pytestmark = pytest.mark.usefixtures("fresh_database")
NOW = datetime.now(UTC)
WRITERS = KEEPERS = 2
TRANSACTIONS, REBUILDS = 25, 4


@pytest.fixture(autouse=True)
def few_events_per_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a snapshot every few events."""
    monkeypatch.setattr(state_at_position, "EVENTS_PER_SNAPSHOT", 5)
    monkeypatch.setattr(full_rebuild, "NEAR", 2)


def some(random: Random) -> list[Event]:
    """Return events of a few tasks and causes, at most as many as between two snapshots."""
    found: list[Event] = []
    for _ in range(random.randint(1, 3)):
        key = random.choice(("JFK", "EWR", "LGA"))
        number = random.randrange(100)
        found += random.choice(
            ([histories.failed(number, key=key)], histories.paused(number, key=key))
        )
    return found


def assert_kept_as_it_was() -> int:
    """Check each snapshot against the log; return the number of snapshots."""
    whole = streams.log()
    positions = set(models.Snapshot.objects.values_list("position", flat=True))
    for position in positions:
        kept = state_at_position.load_states(APPLICATION, store.states_at(APPLICATION, position))
        assert kept == alone(empty(APPLICATION).fold(whole[:position]))
    return len(positions)


def alone(state: StreamState) -> StreamState:
    state.changed_keys = StateKeys()
    return state


def test_snapshots_made_during_writes_and_rebuilds_equal_the_fold() -> None:
    store.open_stream(APPLICATION)
    written = threading.Event()

    def write(seed: int) -> None:
        random = Random(seed)
        for _ in range(TRANSACTIONS):
            streams.append(some(random), received_at=NOW)
        connection.close()

    def keep() -> None:
        while not written.is_set():
            state_at_position.make_snapshot_if_due(APPLICATION)
        connection.close()

    def rebuild() -> None:
        for _ in range(REBUILDS):
            full_rebuild.rebuild(APPLICATION)
        connection.close()

    with ThreadPoolExecutor() as pool:
        keepers = [pool.submit(keep) for _ in range(KEEPERS)]
        try:
            working = [pool.submit(write, seed) for seed in range(WRITERS)]
            for each in (*working, pool.submit(rebuild)):
                each.result(120)
        finally:
            written.set()
        for each in keepers:
            each.result(120)
    streams.assert_exact()
    assert assert_kept_as_it_was() > 5


def test_a_rebuild_waits_for_a_snapshot_and_no_fold_does() -> None:
    for number in range(6):
        streams.append(histories.paused(number), received_at=NOW)
    wrong = models.Task.objects.get()
    models.Task.objects.update(state=wrong.state.replace('"failed":', '"failed":99'))

    def rebuild() -> None:
        full_rebuild.rebuild(APPLICATION)
        connection.close()

    def append() -> None:
        streams.append([histories.failed(9, key="EWR")], received_at=NOW)
        connection.close()

    with ThreadPoolExecutor() as pool:
        with transaction.atomic():
            state_at_position.make_snapshot_if_due(APPLICATION)
            rebuilt = pool.submit(rebuild)
            while not is_a_lock_awaited() and not rebuilt.done():
                time.sleep(0.01)
            pool.submit(append).result(20)
            assert not rebuilt.done()
        rebuilt.result(60)
    streams.assert_exact()
    assert_kept_as_it_was()


def is_a_lock_awaited() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchall())


def test_one_snapshot_is_made_at_a_time() -> None:
    streams.append([histories.failed(number) for number in range(6)], received_at=NOW)

    def keep() -> None:
        state_at_position.make_snapshot_if_due(APPLICATION)
        connection.close()

    with ThreadPoolExecutor() as pool:
        with transaction.atomic():
            state_at_position.make_snapshot_if_due(APPLICATION)
            pool.submit(keep).result(60)
        assert store.nearest_snapshot(APPLICATION, 6) == 6
    assert set(models.Snapshot.objects.values_list("position", flat=True)) == {6}


def test_a_fold_makes_a_requested_snapshot_that_is_late() -> None:
    requests: list[str] = []
    looks = []
    for number in range(12):
        streams.append([histories.failed(number)], received_at=NOW)
        looks.append(
            state_at_position.ensure_snapshot(APPLICATION, number + 1, ask=requests.append)
        )
    assert looks[3] == 5
    assert requests == [APPLICATION] * 5
    assert looks[4:9] == [10, 11, 12, 13, 14]
    # Twice as many as are to be folded at most.
    assert (looks[9], store.nearest_snapshot(APPLICATION, 100)) == (15, 10)
    assert looks[10:] == [15, 15]


def test_a_fold_requests_snapshots(redis: Redis) -> None:
    streams.send(redis, [histories.failed(number) for number in range(6)])
    tasks.fold_stream.apply(args=(APPLICATION,)).get()
    streams.assert_exact()
    assert store.nearest_snapshot(APPLICATION, 6) == 0
    # In the queue of housekeeping: no fold waits for it.
    assert redis.llen(HOUSEKEEPING) == 1
    tasks.keep.apply(args=(APPLICATION,)).get()
    assert store.nearest_snapshot(APPLICATION, 6) == 6


def test_no_snapshot_is_requested_of_a_busy_housekeeper(redis: Redis) -> None:
    redis.lpush(HOUSEKEEPING, *[b"waits"] * tasks.MAX_REQUESTS)
    streams.send(redis, [histories.failed(number) for number in range(6)])
    tasks.fold_stream.apply(args=(APPLICATION,)).get()
    assert redis.llen(HOUSEKEEPING) == tasks.MAX_REQUESTS
    streams.send(redis, [histories.failed(number) for number in range(6, 12)])
    tasks.fold_stream.apply(args=(APPLICATION,)).get()
    assert store.nearest_snapshot(APPLICATION, 12) == 12


def test_a_fold_without_requests_makes_snapshots_itself(redis: Redis) -> None:
    streams.send(redis, [histories.failed(number) for number in range(6)])
    fold_stream.fold_stream(APPLICATION)
    assert store.nearest_snapshot(APPLICATION, 6) == 6
