"""The toy: one Celery task for each event, which locks the row of the event's task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import cache

import psycopg
from celery import Celery

from benchmarks import servers
from benchmarks.events import batches
from controlplane import embedded
from controlplane.domain import wire
from controlplane.domain.events import RecordFailed

WORKERS = 2
PATIENCE_SECONDS = 120

app = Celery("toy", broker=os.environ.get("TOY_BROKER_URL"))
app.conf.update(
    task_ignore_result=True, task_acks_late=True, broker_connection_retry_on_startup=True
)


@cache
def _connection() -> psycopg.Connection:
    """Return this worker's connection: Celery would close Django's after each task."""
    return psycopg.connect(os.environ["DATABASE_URL"])


@app.task(name="toy.record")
def record(task: str, event: str) -> None:
    """Append one event and count it, under the lock of its task's row, in a transaction."""
    with _connection().transaction(), _connection().cursor() as cursor:
        cursor.execute("INSERT INTO toy_task VALUES (%s, 0) ON CONFLICT DO NOTHING", [task])
        cursor.execute("SELECT failed FROM toy_task WHERE key = %s FOR UPDATE", [task])
        (failed,) = cursor.fetchone() or (0,)
        cursor.execute("INSERT INTO toy_event (task, payload) VALUES (%s, %s)", [task, event])
        cursor.execute(
            "UPDATE toy_task SET failed = %s, last = %s WHERE key = %s", [failed + 1, event, task]
        )


def measure(urls: embedded.Urls, *, events: int) -> float:
    """Return events per second of two workers, once they work; the queue is full before."""
    from controlplane.celery import broker_url

    servers.freshen(urls)
    os.environ["TOY_BROKER_URL"] = broker_url(urls.redis)
    app.conf.update(broker_url=os.environ["TOY_BROKER_URL"])
    for _, some in batches("toy", events):
        for event in some:
            task = event.data.task if isinstance(event.data, RecordFailed) else None
            record.delay(task or "", wire.to_json(event).decode())
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
                "benchmarks.toy",
                "worker",
            ),
            *("--pool", "prefork", "--concurrency", str(WORKERS), "--loglevel", "ERROR"),
        ],
        stdout=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if "DJANGO" not in name},
    )
    try:
        return _rate(urls, events)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(PATIENCE_SECONDS)


def _rate(urls: embedded.Urls, events: int) -> float:
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        begin, before = _reached(database, events // 10)
        end, after = _reached(database, events)
    return (after - before) / (end - begin)


def _reached(database: psycopg.Connection, events: int) -> tuple[float, int]:
    """Wait until that many events are committed; return when that was, and how many there are."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        row = database.execute("SELECT count(*) FROM toy_event").fetchone()
        if row is not None and row[0] >= events:
            return time.perf_counter(), int(row[0])
        time.sleep(0.02)
    raise RuntimeError(f"the toy did not fold {events} events in {PATIENCE_SECONDS} s")
