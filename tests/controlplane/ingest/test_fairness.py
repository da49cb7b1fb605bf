"""Many applications: a noisy one starves no other, and no fold is requested needlessly."""

from __future__ import annotations

import math
import threading
from collections import Counter
from pathlib import Path

import pytest
from django.db import connection, transaction
from redis import Redis

from arrester.controlplane import embedded, queries, store, tasks
from arrester.controlplane.celery import STREAM_FOLDS
from arrester.controlplane.celery_workers import FOLDS, HOUSEKEEPING
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.management.commands import wake
from arrester.controlplane.management.commands.wake import Waker
from arrester.domain.identity import redis_keys, uuids
from arrester.domain.wire import codec
from tests import histories
from tests.controlplane import streams
from tests.controlplane.ingest.test_wake import WAKE, process
from tests.histories import APPLICATION, NOON
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.usefixtures("fresh_database")
ONE_WORKER = ["-m", "celery", "-A", "tests.controlplane.short_folds", "worker", "--pool", "solo"]
NOISY_BATCHES = 640
#: The batches of a read in `short_folds`, and the reads that the noisy application needs at least
#: after the quiet one has sent.
READ_BATCHES, READS = 32, 4
POLLS = 3


def length(application: str) -> int:
    return queries.log_positions().get(application, 0)


def wait_for(application: str, events: int) -> None:
    wait_until(lambda: length(application) >= events)


@pytest.mark.chaos
def test_a_noisy_application_does_not_starve_a_quiet_one(
    redis: Redis, fresh_database: embedded.Urls, tmp_path: Path
) -> None:
    log, noisy = tmp_path / "worker.log", 0
    with process(WAKE, tmp_path / "wake.log"), process([*ONE_WORKER, "-l", "WARNING"], log):
        streams.send(redis, [histories.failed(1)], application="quiet")
        wait_until(lambda: length("quiet") == 1)
        packed = codec.encode_batch([histories.failed(number) for number in range(10)])
        for quiet, batches in enumerate((NOISY_BATCHES, 4 * NOISY_BATCHES, 16 * NOISY_BATCHES), 2):
            before, noisy = noisy, noisy + 10 * batches
            with redis.pipeline(transaction=True) as pipe:
                for _ in range(batches):
                    fields = streams.fields(uuids.uuid7(NOON), packed)
                    pipe.xadd(redis_keys.events("noisy"), dict(fields))  # type: ignore[arg-type]  # as put does
                pipe.execute()
            wait_for("noisy", before + 1)
            streams.send(redis, [histories.failed(quiet)], application="quiet")
            reads_left = (noisy - length("noisy")) // (10 * READ_BATCHES)
            wait_for("noisy", noisy)
            wait_for("quiet", quiet)
            # On a busy machine it may be sent too late to prove anything.
            if reads_left >= READS:
                break
    # It waited for a turn of the noisy one's, not for all of them.
    assert streams.log("quiet")[-1].received_at < streams.log("noisy")[-1].received_at


def messages(redis: Redis) -> int:
    """Return the number of requested folds."""
    return redis.llen(STREAM_FOLDS)


def test_a_running_fold_is_not_requested_again(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    waker, looks = Waker(), []

    def something_comes(*_: object) -> None:
        """All is folded, the stream is still ours; twice, one more batch comes."""
        looks.append(redis.exists(redis_keys.pending_fold(APPLICATION)))
        if len(looks) < 3:
            streams.send(redis, [histories.failed(1 + len(looks))])
            waker.poll()

    streams.send(redis, [histories.failed(1)])
    waker.poll()
    assert messages(redis) == 1
    monkeypatch.setattr(fold_stream, "_relay_if_needed", something_comes)
    assert fold_stream.fold_stream(APPLICATION, budget_seconds=PATIENCE_SECONDS).events == 3
    # It was requested once, before; later entries are not lost.
    assert looks == [1, 1, 1] and messages(redis) == 1
    # From here on it has to be requested again.
    streams.send(redis, [histories.failed(4)])
    waker.poll()
    assert messages(redis) == 2
    streams.assert_exact()


def test_housekeeping_and_folds_do_not_wait_for_each_other(redis: Redis) -> None:
    tasks.housekeeping.delay()
    tasks.fold_stream.delay(APPLICATION)
    assert (redis.llen(HOUSEKEEPING), redis.llen(STREAM_FOLDS), redis.llen(FOLDS)) == (1, 1, 0)


def test_an_idle_wake_sends_few_commands_to_redis(redis: Redis) -> None:
    def commands() -> Counter[str]:
        found = redis.info("commandstats")
        calls = Counter(
            {name.removeprefix("cmdstat_"): each["calls"] for name, each in found.items()}
        )
        # Each look for entries is a script with one other command, since there is one stream.
        calls["xlen"] -= calls["evalsha"]
        return calls

    # A stream that is empty, as it is when all is folded.
    id = redis.xadd(redis_keys.events("quiet"), {"batch": "", "events": ""})
    redis.xdel(redis_keys.events("quiet"), id)
    # As a worker does.
    tasks.watch()
    waker = Waker()
    waker.poll()
    before, queued = commands(), redis.llen(FOLDS)
    for _ in range(POLLS):
        waker.next_discovery, waker.next_sweep = 0.0, math.inf
        waker.poll()
    requested = commands() - before
    # Each turn looks once for new streams, and for entries during a second.
    assert requested.pop("evalsha") <= POLLS * (wake.POLL_SECONDS / wake.LOOK_SECONDS + 1)
    assert requested["scan"] == POLLS
    assert requested.total() <= 8 * POLLS
    assert redis.llen(FOLDS) == queued
    before = commands()
    waker.next_discovery = waker.next_sweep = 0.0
    waker.poll()
    # Once in five seconds it sweeps.
    requested = commands() - before
    del requested["evalsha"]
    assert requested.total() <= 60
    assert redis.llen(FOLDS) - queued <= 3 and not messages(redis)


def test_a_redis_with_many_foreign_keys_is_scanned_in_steps(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scans() -> int:
        return int(redis.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"])

    def look() -> None:
        waker.next_discovery, waker.next_sweep = 0.0, math.inf
        waker.poll()

    redis.mset({f"another's {number}": 1 for number in range(10_000)})
    streams.send(redis, [histories.failed(1)])
    monkeypatch.setattr(wake, "STEPS_PER_SCAN", 2)
    monkeypatch.setattr(wake, "POLL_SECONDS", 0.01)
    waker, before, looks = Waker(), scans(), 0
    # Also while no worker has recorded yet that this Redis is known.
    while not (waker.streams and not waker.scan_cursor):
        look()
        looks += 1
        assert scans() - before <= 2 * looks
    assert 4 < looks < 20
    assert set(waker.streams) == {redis_keys.events(APPLICATION)}

    look()
    redis.flushall()
    streams.send(redis, [histories.failed(1)], application="another")
    look()
    look()
    assert redis_keys.events("another") in waker.streams


def test_each_stream_is_requested_once_for_many_entries(
    redis: Redis,
) -> None:
    for name in ("alpha", "beta"):
        streams.send(redis, [histories.failed(1)], application=name)
    waker = Waker()
    waker.poll()
    waker.poll()
    assert messages(redis) == 2


def test_two_streams_are_folded_in_parallel(redis: Redis) -> None:
    for name in ("alpha", "beta"):
        streams.send(redis, [histories.failed(1)], application=name)
        store.open_stream(name)
    held, let_go = threading.Event(), threading.Event()

    def at_work() -> None:
        with transaction.atomic():
            store.lock("alpha")
            held.set()
            let_go.wait(PATIENCE_SECONDS)
        connection.close()

    other = threading.Thread(target=at_work)
    other.start()
    try:
        assert held.wait(PATIENCE_SECONDS)
        with connection.cursor() as cursor:
            # A process that waits for the other nevertheless ends here.
            cursor.execute("SET lock_timeout = '5s'")
        assert fold_stream.fold_stream("beta").events == 1
        assert (length("alpha"), length("beta")) == (0, 1)
    finally:
        let_go.set()
        other.join()
    assert fold_stream.fold_stream("alpha").events == 1
