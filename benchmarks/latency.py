"""Latency from an event in the agent to its commit: real spool, sender, wake and Celery."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from typing import Any
from uuid import UUID

import psycopg
from redis import Redis

from arrester.agents.transport.redis_client import RedisClient
from arrester.agents.transport.sender import Sender
from arrester.agents.transport.spool import Spool
from arrester.controlplane import embedded
from arrester.domain.identity import redis_keys, uuids
from arrester.domain.wire import codec
from benchmarks import servers
from benchmarks.events import batches
from benchmarks.sustained import WAITING_ENTRIES, packed_batches, send_batches
from benchmarks.table import Figure

APPLICATION = "flights"
EVENTS_PER_SECOND = 10_000
EVENTS_PER_PUT = 100
WARM_UP_SECONDS = 2
#: Applications with a backlog beside one with an event now and then: fewer than the processes that
#: fold, and more.
NOISY = (1, 4)
QUIET = "quiet"
SINGLE_EVENTS = 100
TIMEOUT_SECONDS = 60
_CELERY = ("-m", "celery", "-A", "arrester.controlplane", "worker")


def figures(urls: embedded.Urls, *, seconds: int = 10) -> list[Figure]:
    """Return percentiles of the milliseconds from `put` to the commit."""
    servers.roll_log(urls)
    servers.reset(urls)
    with ExitStack() as stack:
        for command in (
            ("manage.py", "wake"),
            (*_CELERY, "--concurrency", "2", "--loglevel", "ERROR"),
        ):
            stack.enter_context(_running(command))
        latencies = _measure(urls, seconds=seconds)
        beside = _beside_backlogs(urls)
    steps = quantiles(latencies, n=100)
    name = f"emission → committed at {EVENTS_PER_SECOND:,} events/s"
    return [
        Figure(name=f"{name}, p50, ms", value=steps[49]),
        Figure(name=f"{name}, p99, ms", value=steps[98], goal="≤ 50"),
        *(
            Figure(
                name=f"the same beside {count} applications with endless backlogs, p99, ms",
                value=quantiles(found, n=100)[98],
                goal="≤ 5,000",
            )
            for count, found in beside.items()
        ),
    ]


def _beside_backlogs(urls: embedded.Urls) -> dict[int, list[float]]:
    """Return the milliseconds of single events, by the number of other applications whose streams
    never become empty; two processes fold."""
    found = {}
    for count in NOISY:
        noisy, end = [f"noisy-{count}-{each}" for each in range(count)], threading.Event()
        feeder = threading.Thread(target=_fill, args=(urls, noisy, end), daemon=True)
        feeder.start()
        try:
            time.sleep(WARM_UP_SECONDS)
            found[count] = _single(urls)
        finally:
            end.set()
            feeder.join()
        with Redis.from_url(urls.redis) as redis:
            redis.delete(*(redis_keys.events(each) for each in noisy))
    return found


def _single(urls: embedded.Urls) -> list[float]:
    latencies = []
    with (
        Redis.from_url(urls.redis) as redis,
        psycopg.connect(urls.database, autocommit=True) as database,
    ):
        database.execute("LISTEN arrester")
        events = codec.encode_batch(next(iter(batches(QUIET, EVENTS_PER_PUT)))[1])
        for _ in range(SINGLE_EVENTS):
            fields: dict[Any, Any] = {
                "batch": str(uuids.uuid7(datetime.now(UTC))),
                "events": events,
            }
            begin = time.perf_counter()
            redis.xadd(redis_keys.events(QUIET), fields | {"spool": str(UUID(int=1))})
            for notification in database.notifies(timeout=TIMEOUT_SECONDS):
                if notification.payload.split()[0] == QUIET:
                    break
            latencies.append((time.perf_counter() - begin) * 1000)
            time.sleep(0.05)
    return latencies


def _fill(urls: embedded.Urls, applications: list[str], end: threading.Event) -> None:
    """Keep entries waiting in each stream."""
    packed = {each: packed_batches(each) for each in applications}
    with Redis.from_url(urls.redis) as redis:
        while not end.wait(0.05):
            for each, batch in packed.items():
                missing = WAITING_ENTRIES - redis.xlen(redis_keys.events(each))
                send_batches(redis, each, cycle(batch), max(missing, 0))


def _measure(urls: embedded.Urls, *, seconds: int) -> list[float]:
    """Emit at a steady rate, and return the latencies; those of the warm-up are left out."""
    prepared = list(batches(APPLICATION, EVENTS_PER_SECOND * (seconds + WARM_UP_SECONDS)))
    emitted: list[float] = []
    committed: list[tuple[float, int]] = []
    listener = threading.Thread(target=_record_commits, args=(urls, committed), daemon=True)
    listener.start()
    with _sending(urls) as spool:
        _, first = prepared.pop()
        spool.put(uuids.uuid7(datetime.now(UTC)), first)
        _wait_for(committed, EVENTS_PER_PUT)
        begin = time.perf_counter()
        for number, (_, events) in enumerate(prepared):
            due = begin + number * EVENTS_PER_PUT / EVENTS_PER_SECOND
            time.sleep(max(0.0, due - time.perf_counter()))
            emitted.append(time.perf_counter())
            spool.put(uuids.uuid7(datetime.now(UTC)), events)
        _wait_for(committed, (len(prepared) + 1) * EVENTS_PER_PUT)
    skipped = WARM_UP_SECONDS * EVENTS_PER_SECOND // EVENTS_PER_PUT
    return _latencies(emitted, committed)[skipped:]


def _wait_for(committed: list[tuple[float, int]], events: int) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not committed or committed[-1][1] < events:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{committed[-1:]} of {events} events are committed")
        time.sleep(0.05)


def _latencies(emitted: list[float], committed: list[tuple[float, int]]) -> list[float]:
    """Return the milliseconds of each put up to the commit of its last event."""
    latencies, notifications = [], iter(committed)
    at, sequence = next(notifications)
    for number, begin in enumerate(emitted, 2):
        while sequence < number * EVENTS_PER_PUT:
            at, sequence = next(notifications)
        latencies.append((at - begin) * 1000)
    return latencies


def _record_commits(urls: embedded.Urls, committed: list[tuple[float, int]]) -> None:
    with (
        suppress(psycopg.OperationalError),  # the end of the server
        psycopg.connect(urls.database, autocommit=True) as database,
    ):
        database.execute("LISTEN arrester")
        for notification in database.notifies():
            _, sequence = notification.payload.split()
            committed.append((time.perf_counter(), int(sequence)))


@contextmanager
def _sending(urls: embedded.Urls) -> Iterator[Spool]:
    instance = UUID(int=7)
    with tempfile.TemporaryDirectory(prefix="arrester-bench-") as folder:
        spool = Spool(Path(folder) / "spool.db", id=instance, limit_bytes=2**30)
        transport = RedisClient(urls.redis, application=APPLICATION, instance=instance)
        sender = Sender(spool, transport, heartbeat=lambda: b"{}")
        sender.start()
        try:
            yield spool
        finally:
            sender.stop(flush_seconds=5)
            spool.close()


@contextmanager
def _running(arguments: tuple[str, ...]) -> Iterator[None]:
    child = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "arrester.controlplane.settings"},
    )
    try:
        yield
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(TIMEOUT_SECONDS)
