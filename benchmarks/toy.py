"""The toy: one Celery task per event, which locks the row of the event's task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import msgspec
import psycopg
from celery import Celery

from arrester.controlplane import embedded
from arrester.domain.events import RecordFailed
from benchmarks import servers
from benchmarks.events import batches

WORKERS = 2
TIMEOUT_SECONDS = 120


def measure(urls: embedded.Urls, *, events: int) -> float:
    """Return events per second of two workers; the queue is filled before they start."""
    from arrester.controlplane.redis import redis_urls

    servers.reset(urls)
    os.environ["TOY_BROKER_URL"] = redis_urls.for_celery(urls.redis)
    app = Celery("toy", broker=os.environ["TOY_BROKER_URL"])
    for _, some in batches("toy", events):
        for event in some:
            task = event.data.task if isinstance(event.data, RecordFailed) else None
            app.send_task("toy.record", [task or "", msgspec.json.encode(event).decode()])
    worker = subprocess.Popen(
        [
            *(
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "celery",
                "--quiet",
                "--app",
                "benchmarks.toy_worker",
                "worker",
            ),
            *("--pool", "prefork", "--concurrency", str(WORKERS), "--loglevel", "ERROR"),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        return _rate(urls, events)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(TIMEOUT_SECONDS)


def _rate(urls: embedded.Urls, events: int) -> float:
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        begin, before = _wait_for_events(database, events // 10)
        end, after = _wait_for_events(database, events)
    return (after - before) / (end - begin)


def _wait_for_events(database: psycopg.Connection, events: int) -> tuple[float, int]:
    """Wait until that many events are committed; return when that was, and how many there are."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        row = database.execute("SELECT count(*) FROM toy_event").fetchone()
        if row is not None and row[0] >= events:
            return time.perf_counter(), int(row[0])
        time.sleep(0.02)
    raise RuntimeError(f"the toy did not fold {events} events in {TIMEOUT_SECONDS} s")
