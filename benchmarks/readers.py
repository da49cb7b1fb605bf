"""What readers miss who follow the log while others write: ours by the feed's cursor, and beside
them naive ones, who ask a numbered table for what stands behind the last number that they saw."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from random import Random
from statistics import mean
from typing import TypeVar

import psycopg
from django.db import connection, transaction

from arrester.controlplane import embedded, queries, store
from arrester.controlplane.domain.identity import uuids
from benchmarks import servers
from benchmarks.events import batches
from benchmarks.table import Figure

T = TypeVar("T")
WRITERS = READERS = 4
APPLICATIONS = ("arrivals", "departures", "gains")
#: A transaction may take so long from writing to the commit; one of five is rolled back.
_PAUSES = (0.0, 0.0, 0.001, 0.02)
_UNDONE = 0.2
_MOST_EVENTS = 4
_NAIVE = """
CREATE TABLE numbered (id bigserial PRIMARY KEY);
GRANT ALL ON numbered, numbered_id_seq TO arrester_app;
"""


class _Undone(Exception):
    """A writer changes its mind."""


def figures(urls: embedded.Urls, *, seconds: float) -> list[Figure]:
    """Return how many events readers missed, of those that were written in some seconds."""
    servers.freshen(urls)
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        database.execute(_NAIVE)
    for name in APPLICATIONS:
        store.open_stream(name)
    connection.close()
    written, until = threading.Event(), time.monotonic() + seconds
    with ThreadPoolExecutor(WRITERS + 2 * READERS) as pool:
        ours = [pool.submit(_closing, lambda: _follow(written)) for _ in range(READERS)]
        naive = [pool.submit(_closing, lambda: _poll(written)) for _ in range(READERS)]
        writers = [pool.submit(_closing, _writer(number, until)) for number in range(WRITERS)]
        for each in writers:
            each.result()
        written.set()
        followed, polled = [each.result() for each in ours], [each.result() for each in naive]
    log = {(name, each.sequence) for name in APPLICATIONS for each in store.read(name)}
    numbered = _behind(0)
    connection.close()
    return [
        Figure(name=f"events written in {seconds:.0f} s", value=len(log)),
        Figure(
            name=f"events missed by {READERS} tailing readers beside {WRITERS} writers",
            value=sum(len(log - each) for each in followed),
            goal="0",
        ),
        Figure(
            name="share of them missed by naive readers, `WHERE id > last` of a sequence",
            value=mean(len(numbered - each) / len(numbered) for each in polled),
        ),
    ]


def _closing(work: Callable[[], T]) -> T:
    try:
        return work()
    finally:
        connection.close()


def _writer(number: int, until: float) -> Callable[[], None]:
    """Return what appends in transactions of any length: to the log, and to the table."""
    chance = Random(number)
    ((_, events),) = batches("any", _MOST_EVENTS)

    def work() -> None:
        while time.monotonic() < until:
            some = events[: chance.randint(1, _MOST_EVENTS)]
            now = datetime.now(UTC)
            try:
                with transaction.atomic():
                    stream = store.lock(chance.choice(APPLICATIONS))
                    store.append(
                        stream, [store.Batch(id=uuids.uuid7(now), events=some)], received_at=now
                    )
                    with connection.cursor() as cursor:
                        statement = "INSERT INTO numbered SELECT FROM generate_series(1, %s)"
                        cursor.execute(statement, [len(some)])
                    time.sleep(chance.choice(_PAUSES))
                    if chance.random() < _UNDONE:
                        raise _Undone
            except _Undone:
                pass

    return work


def _follow(written: threading.Event) -> set[tuple[str, int]]:
    """Read the feed until nothing more can come."""
    seen: set[tuple[str, int]] = set()
    cursor = None
    while True:
        over = written.is_set()
        found = queries.feed(cursor=cursor)
        seen |= {(each.application, each.sequence) for each in found.events}
        cursor = found.cursor
        if over and not found.events and not found.more:
            return seen


def _poll(written: threading.Event) -> set[int]:
    seen: set[int] = set()
    while True:
        over = written.is_set()
        found = _behind(max(seen, default=0))
        seen |= found
        if over and not found:
            return seen


def _behind(last: int) -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM numbered WHERE id > %s", [last])
        return {id for (id,) in cursor.fetchall()}
