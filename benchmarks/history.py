"""Reading a long history: pages, searches, charts, and what it costs to give a day up."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from random import Random
from statistics import median, quantiles

import psycopg
from django.db import connection

from benchmarks import seed
from benchmarks.pages import backend_ms
from benchmarks.table import Figure
from benchmarks.week import DAYS
from controlplane import embedded, queries
from controlplane.queries import FailureFilter, GroupFilter

REQUESTS = 200
_RAW_CHART = """
SELECT date_trunc('hour', occurred_at, 'UTC'), stream, sum(count) FROM event
WHERE count IS NOT NULL AND occurred_at >= %s AND occurred_at < %s GROUP BY 1, 2
"""
#: The tables of the log. The ids of batches are kept for longer, and dropped by their own day.
_LOG = ("event", "batch")
#: Days ago.
_DROPPED = (2, 3, 4)


def figures(urls: embedded.Urls, *, events: int, applications: int = 20) -> list[Figure]:
    """Return what pages, searches, a chart and a dropped day take."""
    names = seed.seed(urls, events=events, applications=applications)
    return measured(urls, names)


def measured(urls: embedded.Urls, names: list[str]) -> list[Figure]:
    """Return the figures of a database that is seeded already; they drop days of it."""
    random = Random(1)
    found: list[Figure] = []
    pages = _pages(names, random)
    for name, request in pages.items():
        name = f"history page, {name}: p95 of PostgreSQL's CPU, ms"
        found.append(Figure(name=name, value=_p95(request), goal="≤ 3"))
    searches = _p95(
        lambda: queries.groups(GroupFilter(text=f"left {random.randrange(900, 9999)} min"))
    )
    chart = _chart(random)
    connection.close()
    return [
        *found,
        Figure(name="search in messages: p95 of PostgreSQL's CPU, ms", value=searches, goal="≤ 50"),
        Figure(
            name="24 h chart of all applications, totals by hour ÷ raw events",
            value=chart,
            goal="≤ 0.05",
        ),
        Figure(name="a day dropped ÷ DELETE and VACUUM", value=_dropped(urls), goal="≤ 0.1"),
    ]


def _pages(names: list[str], random: Random) -> dict[str, Callable[[], object]]:
    """Return requests for one page each, at a random depth of the week."""
    states = [
        each
        for name in names[:3]
        for each in queries.groups(GroupFilter(application=name), limit=50).rows
    ]
    tasks = [each.id.digest for each in queries.tasks(queries.TaskFilter(), limit=50).rows]

    def until() -> datetime:
        return datetime.now(UTC) - timedelta(seconds=random.uniform(0, DAYS * 86400))

    def page(**wanted: str | datetime) -> object:
        return queries.failures(FailureFilter(until=until(), **wanted))  # type: ignore[arg-type]

    return {
        "all applications": lambda: page(),
        "one application": lambda: page(application=random.choice(names)),
        "class and stage": lambda: page(
            application=random.choice(names),
            exception_class=states[0].exception_class,
            stage=states[0].stage,
        ),
        "group": lambda: page(
            application=(state := random.choice(states)).application,
            fingerprint=state.fingerprint,
        ),
        "task": lambda: page(task=random.choice(tasks)),
        "task's history": lambda: queries.task_history(random.choice(tasks)),
        "one hour": lambda: page(
            application=random.choice(names), since=datetime.now(UTC) - timedelta(days=9)
        ),
    }


def _p95(request: Callable[[], object]) -> float:
    """Return the 95th percentile of the milliseconds that PostgreSQL computes for requests."""
    spent: list[float] = []
    for _ in range(REQUESTS):
        begin = backend_ms()
        request()
        spent.append(backend_ms() - begin)
    return quantiles(spent[REQUESTS // 10 :], n=20)[-1]


def _chart(random: Random) -> float:
    """Return the time of the overview's chart of a day from totals by hour, ÷ from all events."""
    counted, raw = [], []
    for _ in range(10):
        until = datetime.now(UTC) - timedelta(days=random.uniform(1, DAYS - 1))
        until = until.replace(minute=0, second=0, microsecond=0)
        since, step = until - timedelta(days=1), timedelta(hours=1)
        chart = partial(queries.failed_by_application, since=since, until=until, step=step)
        counted.append(_seconds(chart))
        with connection.cursor() as cursor:
            raw.append(_seconds(partial(cursor.execute, _RAW_CHART, [since, until])))
    return median(counted) / median(raw)


def _dropped(urls: embedded.Urls) -> float:
    """Return the time of dropping a day's partitions, in one transaction as retention does ÷ that
    of deleting the same rows, and vacuuming, where all days are in one table: the median day."""
    today = datetime.now(UTC).date()
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        for table in _LOG:
            _copy_whole(database, table)
        with psycopg.connect(urls.admin_database, autocommit=True) as admin:
            # What was just written is not written while we measure: neither side's, nor the copies.
            admin.execute("CHECKPOINT")
        return median(_day_dropped(database, today - timedelta(days=ago)) for ago in _DROPPED)


def _day_dropped(database: psycopg.Connection, day: date) -> float:
    deleted = 0.0
    for table in _LOG:
        delete = f"DELETE FROM whole_{table} WHERE day = %s"
        deleted += _seconds(partial(database.execute, delete.encode(), [day]))
        deleted += _seconds(partial(database.execute, f"VACUUM whole_{table}".encode()))
    partitions = ", ".join(f"{table}_{day:%Y%m%d}" for table in _LOG)
    return _seconds(partial(database.execute, f"DROP TABLE {partitions}".encode())) / deleted


def _copy_whole(database: psycopg.Connection, table: str) -> None:
    """Make a copy of a table with its indexes, in one piece."""
    database.execute(f"CREATE TABLE whole_{table} (LIKE {table} INCLUDING STORAGE)".encode())
    database.execute(f"INSERT INTO whole_{table} SELECT * FROM {table}".encode())
    indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename = %s"
    for (made,) in database.execute(indexes, [table]).fetchall():
        again = re.sub(r"INDEX \w+ ON ONLY public\.\w+", f"INDEX ON whole_{table}", made)
        database.execute(again.encode())
    database.execute(f"VACUUM ANALYZE whole_{table}".encode())


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
