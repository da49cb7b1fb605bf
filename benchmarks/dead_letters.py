"""The index of dead letters: the rate of writing it, and what its pages cost with millions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import repeat
from multiprocessing import get_context
from random import Random
from uuid import UUID

import django
import psycopg
from django.db import transaction
from django.urls import reverse

from arrester.controlplane import embedded, queries, store
from arrester.controlplane.queries import DeadLetterFilter
from arrester.controlplane.views import projections
from arrester.domain.events import (
    Event,
    Failure,
    FailuresCounted,
    FinalResponse,
    RecordsDeadLettered,
    Run,
)
from arrester.domain.identity import uuids
from arrester.domain.wire import dead_letter_columns
from benchmarks import pages, servers
from benchmarks.table import Figure

APPLICATIONS, TASKS, CAUSES = 10, 100, 8
EVENTS_PER_BATCH = 10
_INSTANCE = UUID("0193476e-0000-7000-8000-000000000001")
_STAGES = ("deserialize", "process:plausible", "process:gain", "produce")


def measured(urls: embedded.Urls, *, rows: int, requests: int) -> tuple[Figure, str]:
    """Return the rate of writing the index, and the table of its pages."""
    servers.reset(urls)
    with psycopg.connect(urls.migrate_database) as database:
        today = datetime.now(UTC).date() - timedelta(days=1)
        database.execute("SELECT arrester_ensure_partitions(%s, 3)", [today])
    begin = time.perf_counter()
    # Not with the connections of web processes, whose statements have a short limit.
    with ProcessPoolExecutor(2, get_context("spawn"), django.setup) as pool:
        for _ in pool.map(_fill, range(APPLICATIONS), repeat(rows // APPLICATIONS)):
            pass
    rate = rows / (time.perf_counter() - begin)
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        database.execute("VACUUM ANALYZE")
    client = pages.operator()
    for url in _urls().values():
        client.get(url)
    found = [pages.measured_page(client, name, url, requests) for name, url in _urls().items()]
    return Figure(name="dead letters folded per second", value=rate), pages.table(found)


def _urls() -> dict[str, str]:
    newest = queries.dead_letters(DeadLetterFilter(application="application-003"), limit=500)
    one, cause = newest.rows[0], next(each.group for each in newest.rows if each.group)
    site, rest = reverse("dead-letters"), reverse("api-dead-letters")
    return {
        "dead letters": site,
        "dead letters, a later page": f"{site}?after={newest.next}",
        "dead letters, one application": f"{site}?application=application-005",
        "dead letters, one pipeline": f"{site}?pipeline=arrivals",
        "dead letters, one task": f"{site}?task={one.task.digest}",
        "dead letters, one stage": f"{site}?stage=produce",
        "dead letters, one error group": f"{site}?cause={cause.fingerprint}",
        "dead letters, one status": f"{site}?status=REDRIVEN",
        "dead letters that wait": f"{site}?status=open",
        "dead letters, one hour": f"{site}?range=1h",
        "dead letters by cause": f"{site}?view=causes",
        "dead letters by task": f"{site}?view=tasks",
        "dead letter": reverse("dead-letter", args=[one.application, one.id]),
        "REST dead letters, 500 rows": f"{rest}?limit=500",
    }


def _fill(number: int, rows: int) -> None:
    application, random = f"application-{number:03d}", Random(number)
    store.open_stream(application)
    now = datetime.now(UTC)
    batch: list[Event] = []
    for event in _events(rows, now - timedelta(hours=20), random):
        batch.append(event)
        if len(batch) == EVENTS_PER_BATCH:
            _append(application, batch, now)
            batch = []
    if batch:
        _append(application, batch, now)


def _append(application: str, events: list[Event], now: datetime) -> None:
    with transaction.atomic(durable=True):
        stream = store.lock(application)
        batch = store.NewBatch(id=uuids.uuid7(now), events=events)
        _, stored = store.append(stream, [batch], received_at=now)
        projections.project(application, stored)


def _events(rows: int, begin: datetime, random: Random) -> Iterator[Event]:
    """Yield events of all causes, then of `rows` dead letters: of many and of few at a time."""
    failures = [
        Failure(
            stage=_STAGES[number % len(_STAGES)],
            exception_class=f"checks.Error{number}",
            message=f"the value {number} is not allowed",
            fingerprint=f"1-{number:016x}",
        )
        for number in range(CAUSES)
    ]
    run = Run(pipeline="departures", checkpoint="checkpoint", epoch=1)
    for failure in failures:
        data = FailuresCounted(
            task="task-000",
            failure=failure,
            response=FinalResponse.CONTINUE,
            count=1,
            first_position=0,
            last_position=0,
        )
        yield Event(occurred_at=begin, data=data, instance=_INSTANCE, run=run)
    position = 0
    while rows:
        count = min(rows, random.choice((1, 20, 500, 5_000, 5_000)))
        rows -= count
        begin += timedelta(seconds=5)
        positions = range(position, position + 3 * count, 3)
        position = positions[-1] + 3
        causes = random.choices(range(CAUSES + 1), k=count)
        reported = RecordsDeadLettered(
            task=f"task-{random.randrange(TASKS):03d}",
            count=count,
            place="/data/dead-letters/day=2026-11-26/checkpoint-1",
            format="parquet",
            first_position=positions[0],
            last_position=positions[-1],
            records=dead_letter_columns.pack(
                fingerprints=[each.fingerprint for each in failures],
                causes=causes,
                sizes=[300] * count,
                positions=positions,
            ),
        )
        pipeline = random.choice(("departures", "departures", "arrivals"))
        yield Event(
            occurred_at=begin,
            data=reported,
            instance=_INSTANCE,
            run=Run(pipeline=pipeline, checkpoint="checkpoint", epoch=1),
        )
