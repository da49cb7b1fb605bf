"""Reading a long history: pages, searches, charts, and what it costs to give a day up."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from random import Random
from statistics import median, quantiles
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import urlencode

import psycopg
from django.db import connection
from django.test import Client
from django.urls import reverse

from arrester.controlplane import embedded, queries, store
from arrester.controlplane.history import retention
from arrester.controlplane.queries import GroupFilter
from benchmarks import seed, week
from benchmarks.pages import backend_ms, operator, timed
from benchmarks.table import Figure
from benchmarks.week import DAYS

REQUESTS = 200
_RAW_CHART = """
SELECT date_trunc('hour', occurred_at, 'UTC'), stream, sum(count) FROM event
WHERE count IS NOT NULL AND occurred_at >= %s AND occurred_at < %s GROUP BY 1, 2
"""
#: The tables of the log. The ids of batches are kept for longer, and dropped by their own day.
_LOG = ("event", "batch")
#: Days ago; retention drops the oldest first, and the first one of the week is a part of a day.
_DROPPED = (DAYS - 1, DAYS - 2, DAYS - 3)


def figures(urls: embedded.Urls, *, events: int, applications: int = 20) -> list[Figure]:
    """Return what pages, searches, a chart and a dropped day take."""
    names = seed.seed(urls, events=events, applications=applications)
    return measured(urls, names)


def measured(urls: embedded.Urls, names: list[str]) -> list[Figure]:
    """Return the figures of a database that is seeded already; they drop days of it."""
    random = Random(1)
    found: list[Figure] = []
    client = operator()
    for name, address in _pages(names, random).items():
        found += _requests(client, f"history page, {name}", address)
    found += _p95(
        "search in messages",
        lambda: queries.groups(GroupFilter(text=f"left {random.randrange(900, 9999)} min")),
        goal="≤ 50",
    )
    chart = _chart(random)
    connection.close()
    return [
        *found,
        Figure(
            name="24 h chart of all applications, totals by hour ÷ raw events",
            value=chart,
            goal="≤ 0.05",
        ),
        *_dropped(urls),
    ]


def _pages(names: list[str], random: Random) -> dict[str, Callable[[], str]]:
    """Return addresses of one page each, at a random depth of the week."""
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

    frequent_class, *_, rare_class = week.CLASSES
    frequent_stage, *_, rare_stage = week.STAGES
    *_, rare_pipeline = week.PIPELINES
    return {
        "all applications": page,
        "one application": one(),
        "class and stage": one(exception_class=frequent_class, stage=frequent_stage),
        "rare class": one(exception_class=rare_class),
        "missing class": one(exception_class="nothing.HasIt"),
        "rare stage": one(stage=rare_stage),
        "rare stage, all applications": lambda: page(stage=rare_stage),
        "missing class, all applications": lambda: page(exception_class="nothing.HasIt"),
        "pipeline": one(pipeline=week.PIPELINE),
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


def _requests(client: Client, name: str, address: Callable[[], str]) -> list[Figure]:
    """Return 95th percentiles of the milliseconds of requests: by the clock, and of the CPU."""
    took = [timed(client, address()) for _ in range(REQUESTS)][REQUESTS // 10 :]
    walls, cpus, _ = zip(*took, strict=True)
    return [
        Figure(name=f"{name}: p95 through HTTP, ms", value=quantiles(walls, n=20)[-1], goal="≤ 40"),
        Figure(name=f"{name}: p95 of the CPU, ms", value=quantiles(cpus, n=20)[-1]),
    ]


def _p95(name: str, request: Callable[[], object], *, goal: str) -> list[Figure]:
    """Return 95th percentiles of the milliseconds of requests: that PostgreSQL computed, and that
    passed until its statements had answered."""
    spent: list[float] = []
    passed: list[float] = []
    connection.ensure_connection()
    for _ in range(REQUESTS):
        begin, waited = backend_ms(), _Waited(connection.connection.wait)
        with patch.object(connection.connection, "wait", waited):
            request()
        spent.append(backend_ms() - begin)
        passed.append(waited.milliseconds)
    cpu, clock = (quantiles(each[REQUESTS // 10 :], n=20)[-1] for each in (spent, passed))
    return [
        Figure(name=f"{name}: p95 of PostgreSQL's CPU, ms", value=cpu, goal=goal),
        Figure(name=f"{name}: p95 by the clock, in SQL, ms", value=clock),
    ]


class _Waited:
    """Adds up how long answers of PostgreSQL are waited for."""

    def __init__(self, wait: Callable[..., Any]) -> None:
        self._wait = wait
        self.milliseconds = 0.0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        try:
            return self._wait(*arguments, **named)
        finally:
            self.milliseconds += (time.perf_counter() - begin) * 1000


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


def _dropped(urls: embedded.Urls) -> list[Figure]:
    """Return the time of dropping a day as retention does (its locks and checks, the partitions,
    the commit), and with what it does behind that, ÷ that of deleting the same rows, and vacuuming,
    where all days are in one table: the median day."""
    today = datetime.now(UTC).date()
    with (
        psycopg.connect(urls.migrate_database, autocommit=True) as database,
        psycopg.connect(urls.admin_database, autocommit=True) as admin,
    ):
        for table in _LOG:
            _copy_whole(database, table)

        def checkpoint() -> None:
            # What was just written is not written while we measure: neither side's, nor the copies.
            admin.execute("CHECKPOINT")

        _retained(DAYS - 1, checkpoint)
        ratios = []
        for ago in _DROPPED:
            checkpoint()
            deleted = _deleted(database, today - timedelta(days=ago))
            dropped, whole = _retained(ago - 1, checkpoint)
            ratios.append(
                (
                    dropped.seconds / deleted.seconds,
                    dropped.cpu_ms / (deleted.cpu_ms or 1),
                    whole.seconds / deleted.seconds,
                )
            )
    names = {
        "a day dropped ÷ DELETE and VACUUM": "≤ 0.1",
        "the same of PostgreSQL's CPU": "",
        "a day dropped, and old states forgotten behind it, ÷ DELETE and VACUUM": "",
    }
    return [
        Figure(name=name, value=median(each), goal=goal)
        for (name, goal), each in zip(names.items(), zip(*ratios, strict=True), strict=True)
    ]


class _Took(NamedTuple):
    """What something has taken: of time, and of the CPU of its process of PostgreSQL."""

    seconds: float
    cpu_ms: float

    @classmethod
    def by_now(cls, pid: int | None = None) -> _Took:
        """Return what will be taken off in the end."""
        return cls(time.perf_counter(), backend_ms(pid))

    def since(self, begin: _Took) -> _Took:
        return _Took(self.seconds - begin.seconds, self.cpu_ms - begin.cpu_ms)


def _deleted(database: psycopg.Connection, day: date) -> _Took:
    pid = database.info.backend_pid
    begin = _Took.by_now(pid)
    for table in _LOG:
        database.execute(f"DELETE FROM whole_{table} WHERE day = %s".encode(), [day])
        database.execute(f"VACUUM whole_{table}".encode())
    return _Took.by_now(pid).since(begin)


def _retained(days: int, checkpoint: Callable[[], None]) -> tuple[_Took, _Took]:
    """Keep so many days; return what it takes from when all bases are there to the commit that
    drops the others, and to the end."""
    times: list[_Took] = []
    drop, forget = store.drop_days, store.delete_old_states

    def dropping(*arguments: Any, **named: Any) -> store.Dropped:
        checkpoint()
        times.append(_Took.by_now())
        return drop(*arguments, **named)

    def forgetting() -> None:
        times.append(_Took.by_now())
        forget()

    with (
        patch.object(store, "drop_days", dropping),
        patch.object(store, "delete_old_states", forgetting),
    ):
        found = retention.retain(days=days, replay_days=2 * DAYS)
    began, committed = times
    assert found.dropped.partitions == len(_LOG), found
    return committed.since(began), _Took.by_now().since(began)


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
