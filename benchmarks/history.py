"""Times of reading a long history (pages, search, chart) and of dropping a day."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from random import Random
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

import psycopg
from django.db import connection
from django.test import Client
from django.urls import reverse

from arrester.controlplane import embedded, queries, store
from arrester.controlplane.history import retention
from arrester.controlplane.queries import GroupFilter, RecordFilter
from benchmarks import sample_history, seed
from benchmarks.pages import backend_ms, operator, timed
from benchmarks.sample_history import DAYS
from benchmarks.table import Figure

REQUESTS = 200
#: The days of the longest series.
_MONTH = 30
#: Requests that are not counted.
WARM_UP = REQUESTS // 10
_RAW_CHART = """
SELECT date_trunc('hour', occurred_at, 'UTC'), stream, sum(count) FROM event
WHERE count IS NOT NULL AND occurred_at >= %s AND occurred_at < %s GROUP BY 1, 2
"""
#: The tables of the log that retention drops; the ids of batches are kept for longer.
_LOG = ("event", "batch")
#: Days ago, oldest first. The first day of the week is a partial one.
_DROPPED = (DAYS - 1, DAYS - 2, DAYS - 3)


def figures(urls: embedded.Urls, *, events: int, applications: int = 20) -> list[Figure]:
    """Return the times of pages, a search, a chart and a dropped day."""
    names = seed.seed(urls, events=events, applications=applications)
    random = Random(1)
    client = operator()
    found = [
        _requests(client, f"history page, {name}", address)
        for name, address in _pages(names, random).items()
    ]
    found += [_search(random), *_record_search(urls, random, events=events), _chart(random)]
    found.append(_requests(client, "failures with words in the message", _words(random), goal=100))
    _copy_counts(urls)
    found += [
        _requests(client, f"series of {days} days, {name}", address)
        for days in (DAYS, _MONTH)
        for name, address in _series(names, random, days).items()
    ]
    connection.close()
    return [*found, _dropped(urls)]


def _copy_counts(urls: embedded.Urls) -> None:
    """Copy the counts of the week to the weeks before, of which the log has nothing."""
    tables = {"hour_count": "fingerprint", "hour_stage": "pipeline, stage", "hour_total": ""}
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        for table, names in tables.items():
            columns = ", ".join(filter(None, (names, "application, count, sequence")))
            database.execute(
                f"INSERT INTO {table} (hour, {columns})"
                f" SELECT hour - week * interval '{DAYS} days', {columns}"
                f" FROM {table}, generate_series(1, {_MONTH // DAYS}) AS week"
                " ON CONFLICT DO NOTHING".encode()
            )
            database.execute(f"VACUUM ANALYZE {table}".encode())
        # An error group has at least the sum of its hours.
        database.execute("UPDATE error_group SET count = count * %s", [1 + _MONTH // DAYS])
        database.execute("VACUUM ANALYZE error_group")


def _series(names: list[str], random: Random, days: int) -> dict[str, Callable[[], str]]:
    """Return addresses of series by name."""
    since = (datetime.now(UTC) - timedelta(days=days)).isoformat()

    def series(by: str, **wanted: Any) -> str:
        parameters = {"by": by, "since": since} | wanted
        return f"{reverse('api-failure-series')}?{urlencode(parameters)}"

    found: dict[str, Callable[[], str]] = {"by application": partial(series, "application")}
    for by in ("fingerprint", "stage", "pipeline"):
        found[f"by {by} of an application"] = lambda by=by: series(  # type: ignore[misc]  # as above
            by, application=random.choice(names)
        )
    return found


def _words(random: Random) -> Callable[[], str]:
    """Return addresses of failures that have words in their message."""

    def address() -> str:
        text = f"left {900 + 37 * random.randrange(200)} minutes late"
        return f"{reverse('api-failures')}?{urlencode({'text': text})}"

    return address


def _pages(names: list[str], random: Random) -> dict[str, Callable[[], str]]:
    """Return addresses of one page each, at a random depth of the sample_history."""
    states = [
        each
        for name in names[:3]
        for each in queries.groups(GroupFilter(application=name), limit=50).rows
    ]
    tasks = [each.id.digest for each in queries.tasks(queries.TaskFilter(), limit=50).rows]

    def until() -> datetime:
        return datetime.now(UTC) - timedelta(seconds=random.uniform(0, DAYS * 86400))

    def page(**wanted: Any) -> str:
        return f"{reverse('api-failures')}?{urlencode({'until': until().isoformat()} | wanted)}"

    def one(**wanted: Any) -> Callable[[], str]:
        return lambda: page(application=random.choice(names), **wanted)

    def of_task(**wanted: Any) -> Callable[[], str]:
        return lambda: page(task=random.choice(tasks), **wanted)

    frequent_class, *_, rare_class = sample_history.CLASSES
    frequent_stage, *_, rare_stage = sample_history.STAGES
    *_, rare_pipeline = sample_history.PIPELINES
    return {
        "all applications": page,
        "one application": one(),
        "class and stage": one(exception_class=frequent_class, stage=frequent_stage),
        "rare class": one(exception_class=rare_class),
        "missing class": one(exception_class="nothing.HasIt"),
        "rare stage": one(stage=rare_stage),
        "rare stage, all applications": lambda: page(stage=rare_stage),
        "missing class, all applications": lambda: page(exception_class="nothing.HasIt"),
        "pipeline": one(pipeline=sample_history.PIPELINE),
        "rare pipeline": one(pipeline=rare_pipeline),
        "missing pipeline": one(pipeline="nothing has it"),
        "rare pipeline and class": one(pipeline=rare_pipeline, exception_class=rare_class),
        "rare pipeline, all applications": lambda: page(pipeline=rare_pipeline),
        "group, all applications": lambda: page(fingerprint=random.choice(states).fingerprint),
        "group": lambda: page(
            application=(state := random.choice(states)).application,
            fingerprint=state.fingerprint,
        ),
        "group and rare pipeline": lambda: page(
            application=(state := random.choice(states)).application,
            fingerprint=state.fingerprint,
            pipeline=rare_pipeline,
        ),
        "task": of_task(),
        "task and stage": of_task(stage=frequent_stage),
        "task and rare stage": of_task(stage=rare_stage),
        "task and missing stage": of_task(stage="nothing has it"),
        "task and group": lambda: page(
            task=random.choice(tasks), fingerprint=random.choice(states).fingerprint
        ),
        "task's history": lambda: reverse("task-history", args=[random.choice(tasks)]),
        "one hour": lambda: page(
            application=random.choice(names),
            since=(datetime.now(UTC) - timedelta(days=9)).isoformat(),
        ),
    }


def _requests(client: Client, name: str, address: Callable[[], str], *, goal: int = 40) -> Figure:
    """Return the 95th percentile of the milliseconds of requests."""
    took = [timed(client, address()).wall for _ in range(REQUESTS)][WARM_UP:]
    return Figure(
        name=f"{name}: p95 through HTTP, ms", value=quantiles(took, n=20)[-1], goal=f"≤ {goal}"
    )


def _search(random: Random) -> Figure:
    """Return the 95th percentile of the milliseconds that PostgreSQL computes for a search."""
    took = []
    connection.ensure_connection()
    for _ in range(REQUESTS):
        begin = backend_ms()
        queries.groups(GroupFilter(text=f"left {random.randrange(900, 9999)} min"))
        took.append(backend_ms() - begin)
    return Figure(
        name="search in messages: p95 of PostgreSQL's CPU, ms",
        value=quantiles(took[WARM_UP:], n=20)[-1],
        goal="≤ 50",
    )


def _record_search(urls: embedded.Urls, random: Random, *, events: int) -> list[Figure]:
    """Return the rate and size of the index of failed records, and the times of searches in it."""
    began = time.monotonic()
    for stream in store.all_streams():
        while store.index_records(stream):
            pass
    indexed = time.monotonic() - began
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        database.execute("VACUUM ANALYZE record_block, record_group")
        row = database.execute(
            "SELECT pg_total_relation_size('record_block') + pg_total_relation_size('record_group')"
        ).fetchone()
    assert row is not None
    value = next(iter(sample_history.records())).record or {}
    name, text = next(iter(value.items()))
    searches = {
        "key": lambda: f"key:B6{random.randrange(events // 20)}",
        "field value": lambda: f"{name}:{text}",
        "missing field value": lambda: f"{name}:missing{random.randrange(10**9)}",
        "words": lambda: f'"left {900 + 37 * random.randrange(200)} minutes late"',
        "missing words": lambda: f"minutes missing{random.randrange(10**9)}",
    }
    goals = {"words": "≤ 500", "missing words": "≤ 500"}
    return [
        Figure(name="failed records indexed per second", value=events / indexed),
        Figure(name="bytes of their index per event", value=row[0] / events),
        *(
            Figure(
                name=f"record search, {kind}: p95, ms",
                value=_p95(lambda make=make: queries.find_records(RecordFilter(q=make()))),  # type: ignore[misc]  # mypy infers no type for the default
                goal=goals.get(kind, "≤ 150"),
            )
            for kind, make in searches.items()
        ),
    ]


def _p95(act: Callable[[], object], *, times: int = 60) -> float:
    """Return the 95th percentile of the milliseconds of a call."""
    took = [_seconds(act) for _ in range(times)]
    return 1000 * quantiles(took[times // 10 :], n=20)[-1]


def _chart(random: Random) -> Figure:
    """Return the time of the overview's chart of a day from hourly totals ÷ from all events."""
    counted, raw = [], []
    for _ in range(10):
        until = datetime.now(UTC) - timedelta(days=random.uniform(1, DAYS - 1))
        until = until.replace(minute=0, second=0, microsecond=0)
        since, step = until - timedelta(days=1), timedelta(hours=1)
        chart = partial(queries.failed_by_application, since=since, until=until, step=step)
        counted.append(_seconds(chart))
        with connection.cursor() as cursor:
            raw.append(_seconds(partial(cursor.execute, _RAW_CHART, [since, until])))
    name = "24 h chart of all applications, hourly totals ÷ raw events"
    return Figure(name=name, value=median(counted) / median(raw), goal="≤ 0.05")


def _dropped(urls: embedded.Urls) -> Figure:
    """Return the time to drop a day, as retention does, ÷ the time to delete and vacuum the same
    rows in a table without partitions: the median day."""
    today = datetime.now(UTC).date()
    with (
        psycopg.connect(urls.migrate_database, autocommit=True) as database,
        psycopg.connect(urls.admin_database, autocommit=True) as admin,
    ):
        for table in _LOG:
            _copy_unpartitioned(database, table)

        def checkpoint() -> None:
            # Earlier writes must not be flushed during the measurement.
            admin.execute("CHECKPOINT")

        _retain(DAYS - 1, checkpoint)
        ratios = []
        for ago in _DROPPED:
            checkpoint()
            deleted = _delete(database, today - timedelta(days=ago))
            ratios.append(_retain(ago - 1, checkpoint) / deleted)
    return Figure(name="a day dropped ÷ DELETE and VACUUM", value=median(ratios), goal="≤ 0.1")


def _delete(database: psycopg.Connection, day: date) -> float:
    begin = time.perf_counter()
    for table in _LOG:
        database.execute(f"DELETE FROM whole_{table} WHERE day = %s".encode(), [day])
        database.execute(f"VACUUM whole_{table}".encode())
    return time.perf_counter() - begin


def _retain(days: int, checkpoint: Callable[[], None]) -> float:
    """Keep some days; return the seconds from the moment when all bases are made to the commit
    that drops the other days."""
    times: list[float] = []
    drop_days, delete_old_states = store.drop_days, store.delete_old_states

    def dropping(*arguments: Any, **named: Any) -> store.Dropped:
        checkpoint()
        times.append(time.perf_counter())
        return drop_days(*arguments, **named)

    def deleting() -> None:
        times.append(time.perf_counter())
        delete_old_states()

    with (
        patch.object(store, "drop_days", dropping),
        patch.object(store, "delete_old_states", deleting),
    ):
        found = retention.retain(days=days, replay_days=2 * DAYS)
    assert found.dropped.partitions == len(_LOG), found
    begin, committed = times
    return committed - begin


def _copy_unpartitioned(database: psycopg.Connection, table: str) -> None:
    """Copy a table with its indexes, without partitions."""
    database.execute(f"CREATE TABLE whole_{table} (LIKE {table} INCLUDING STORAGE)".encode())
    database.execute(f"INSERT INTO whole_{table} SELECT * FROM {table}".encode())
    indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename = %s"
    for (definition,) in database.execute(indexes, [table]).fetchall():
        index = re.sub(r"INDEX \w+ ON ONLY public\.\w+", f"INDEX ON whole_{table}", definition)
        database.execute(index.encode())
    database.execute(f"VACUUM ANALYZE whole_{table}".encode())


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
