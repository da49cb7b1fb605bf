"""Workers killed at any moment, workers that fight, a Redis that is emptied: nothing is lost,
nothing counts twice, and the order holds."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from redis import Redis

from arrester.controlplane import embedded
from arrester.controlplane.history import rebuild
from arrester.controlplane.ingest import fold_stream
from arrester.domain.events import Event
from arrester.domain.identity import redis_keys, uuids
from tests import histories
from tests.controlplane import streams
from tests.controlplane.ingest.test_wake import WAKE, WORKER, process
from tests.controlplane.lost_connections import wait_until_closed
from tests.histories import APPLICATION
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.chaos
KILLS = 10


class Spool:
    """The spool of an agent: batches are sent again until they are confirmed."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.kept: dict[UUID, list[Event]] = {}
        self.sent: list[Event] = []
        self.numbers = iter(range(10**9))

    def send(self, *, batches: int) -> None:
        """Send new batches of a few failures each; now and then one twice."""
        for _ in range(batches):
            events = [histories.failed(next(self.numbers)) for _ in range(random.randint(1, 8))]
            batch = uuids.uuid7(datetime.now(UTC))
            self.kept[batch] = events
            self.sent += events
            for _ in range(random.choice((1, 1, 1, 2))):
                streams.send(self.redis, events, batch=batch)

    def drop_confirmed(self) -> None:
        """Let go of what is confirmed."""
        for batch in streams.confirmed(self.redis):
            self.kept.pop(batch, None)

    def is_confirmed(self) -> bool:
        """Drop confirmed batches, and return whether none is left."""
        self.drop_confirmed()
        return not self.kept

    def is_over(self) -> bool:
        """Return whether all is confirmed, and gone from Redis too.

        A fold that was at work while Redis was emptied confirms what has been sent again since.
        """
        return self.is_confirmed() and self.redis.xlen(redis_keys.events(APPLICATION)) == 0

    def send_again(self) -> None:
        """Send all that is not confirmed, from the oldest on."""
        for batch, events in self.kept.items():
            streams.send(self.redis, events, batch=batch)


@contextmanager
def worker() -> Iterator[subprocess.Popen[str]]:
    """Run a folding process, and kill it at the end."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.controlplane.fold_process", APPLICATION],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "arrester.controlplane.settings"},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def assert_all_once_and_in_order(redis: Redis, spool: Spool) -> None:
    assert streams.events() == spool.sent
    streams.assert_exact()
    assert redis.xlen(redis_keys.events(APPLICATION)) == 0
    before = rebuild.live_rows(APPLICATION)
    rebuild.rebuild(APPLICATION)
    assert rebuild.live_rows(APPLICATION) == before


@pytest.mark.long
def test_killed_workers_fold_exactly_once(redis: Redis, fresh_database: embedded.Urls) -> None:
    spool, in_flight = Spool(redis), 0
    for _ in range(KILLS):
        with worker():
            spool.send(batches=40)
            time.sleep(random.uniform(0, 0.05))
        in_flight += redis.xlen(redis_keys.events(APPLICATION)) > 0
    # Else it would prove nothing.
    assert in_flight > 0
    wait_until_closed()
    fold_stream.fold_stream(APPLICATION, budget_seconds=PATIENCE_SECONDS)
    spool.drop_confirmed()

    assert spool.kept == {}
    assert_all_once_and_in_order(redis, spool)


def test_a_celery_child_killed_within_a_fold_folds_exactly_once(
    redis: Redis, fresh_database: embedded.Urls, tmp_path: Path
) -> None:
    spool = Spool(redis)
    in_a_fold = (
        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'COPY batch %'"
    )
    with (
        process(WAKE, tmp_path / "wake.log"),
        process(WORKER, tmp_path / "worker.log") as parent,
        psycopg.connect(fresh_database.migrate_database) as other,
        psycopg.connect(fresh_database.admin_database, autocommit=True) as admin,
    ):
        # A fold comes as far as the log's last table, with ids and events in its transaction.
        other.execute("LOCK TABLE batch IN SHARE MODE")
        spool.send(batches=20)
        wait_until(lambda: admin.execute(in_a_fold).fetchone() is not None)
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        other.commit()
        assert parent.poll() is None
        wait_until(spool.is_over)
    assert_all_once_and_in_order(redis, spool)


@pytest.mark.long
def test_two_workers_fold_each_batch_once(redis: Redis, fresh_database: embedded.Urls) -> None:
    spool = Spool(redis)
    with worker(), worker():
        for _ in range(10):
            spool.send(batches=20)
            time.sleep(0.05)
        wait_until(lambda: redis.xlen(redis_keys.events(APPLICATION)) == 0)
    spool.drop_confirmed()

    assert spool.kept == {}
    assert_all_once_and_in_order(redis, spool)


@pytest.mark.long
def test_emptying_redis_during_folds_loses_and_doubles_nothing(
    redis: Redis, fresh_database: embedded.Urls
) -> None:
    spool = Spool(redis)
    with worker(), worker():
        for _ in range(4):
            spool.send(batches=30)
            spool.drop_confirmed()
            spool.send(batches=30)
            redis.flushall()
            spool.send_again()
        wait_until(spool.is_over)

    assert_all_once_and_in_order(redis, spool)


@pytest.mark.long
def test_emptying_redis_below_wake_and_celery_loses_and_doubles_nothing(
    redis: Redis, fresh_database: embedded.Urls, tmp_path: Path
) -> None:
    """Empty all of Redis, queues included, while real workers fold."""
    spool, in_flight = Spool(redis), 0
    with process(WAKE, tmp_path / "wake.log"), process(WORKER, tmp_path / "worker.log"):
        for _ in range(4):
            spool.send(batches=60)
            wait_until(lambda: bool(streams.confirmed(redis)))
            spool.send(batches=60)
            in_flight += redis.xlen(redis_keys.events(APPLICATION)) > 0
            redis.flushall()
            spool.send_again()
        wait_until(spool.is_over)

    assert in_flight > 0
    assert_all_once_and_in_order(redis, spool)


@pytest.mark.long
def test_killing_postgresql_during_folds_loses_and_doubles_nothing() -> None:
    """A short `make chaos-fold`, with servers of its own."""
    storm = subprocess.run(
        [sys.executable, "-m", "tests.chaos_fold", "--kills", "3", "--crashes", "1"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert storm.returncode == 0, storm.stderr
    assert "none lost, none doubled, all in order" in storm.stdout
