"""What a page costs: the time that the server takes for each, over a long and wide history.

Requests go through Django's own client in this process: middleware, session, queries of
PostgreSQL and Redis, templates. What the network and the browser take is theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from statistics import quantiles
from typing import Any, NamedTuple

import psycopg
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.urls import reverse
from msgspec.structs import replace

from benchmarks import seed
from controlplane import embedded, models, queries, rows
from controlplane.domain.states import TaskState
from controlplane.queries import GroupFilter, TaskFilter

Execute = Callable[[str, Any, bool, Any], Any]
GOAL_MS = 100
#: One of so many tasks stands still.
STANDS = 100
_SIGHTINGS = ("redis", "wake", "worker")


class PageCost(NamedTuple):
    """What was measured of one page."""

    name: str
    p95_ms: float
    median_ms: float
    #: Of it, what this process computed; the rest is PostgreSQL, Redis and waiting for a core.
    own_ms: float
    statements: int
    kilobytes: float


def figures(
    urls: embedded.Urls, *, events: int, applications: int, tasks: int, requests: int
) -> list[PageCost]:
    """Return the figures of each page."""
    names = seed.seed(urls, events=events, applications=applications)
    with psycopg.connect(urls.migrate_database) as database:
        _widen(database, names[0], tasks)
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        database.execute("VACUUM ANALYZE task, error_group, hour_count, minute_count, thread")
    client = _operator()
    return [
        _measured(client, name, url, requests) for name, url in pages(names[0], names[1]).items()
    ]


def _widen(database: psycopg.Connection, application: str, tasks: int) -> None:
    """Give one application so many tasks more, as rows of the view: no fold is measured here."""
    known = {
        status: rows.TASKS.load("application = %s AND status = %s LIMIT 1", [application, status])
        for status in ("RUNNING", "PAUSED")
    }
    made = [
        _like(known["PAUSED" if number % STANDS == 0 else "RUNNING"][0], f"wide-{number:05d}")
        for number in range(tasks)
    ]
    columns = [*made[0]]
    copy = f"COPY task ({', '.join(columns)}) FROM STDIN"
    with database.cursor() as cursor, cursor.copy(copy.encode()) as into:
        for row in made:
            into.write_row([row[column] for column in columns])


def _like(state: TaskState, key: str) -> dict[str, Any]:
    return rows.TASKS.row(replace(state, id=replace(state.id, key=key)))


def _operator() -> Client:
    user = User.objects.create_user("ana", password="a password for benchmarks")
    user.groups.set([Group.objects.get_or_create(name="operator")[0]])
    soon = datetime.now(UTC) + timedelta(hours=1)
    for name in _SIGHTINGS:
        models.Sighting.objects.update_or_create(name=name, defaults={"at": soon})
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    return client


def pages(wide: str, other: str) -> dict[str, str]:
    """Return the URL of every kind of page, by what it is called."""
    group = queries.groups(GroupFilter(application=other), limit=1).rows[0]
    task = queries.tasks(TaskFilter(application=other, state="PAUSED"), limit=1).rows[0]
    application = reverse("application", args=[wide])
    of_task = reverse("task", args=[task.id.digest])
    history = reverse("task-history", args=[task.id.digest])
    return {
        "overview": reverse("overview"),
        "overview, 30 days": reverse("overview") + "?range=30d",
        "applications": reverse("applications"),
        "application, 10,000 tasks": application,
        "application, page 20 of its tasks": f"{application}?pipeline=departures&page=20",
        "application, tasks by key": f"{application}?pipeline=departures&key=wide-77",
        "application, errors": f"{application}?tab=errors&range=7d",
        "application, timeline": f"{application}?tab=timeline",
        "application, commands": f"{application}?tab=commands",
        "application, instances": f"{application}?tab=instances",
        "tasks": reverse("tasks"),
        "tasks, PAUSED": reverse("tasks") + "?state=PAUSED",
        "task": of_task,
        "task, history in full": f"{history}?view=full",
        "errors": reverse("errors"),
        "error": reverse("error", args=[group.application, group.fingerprint]),
        "commands": reverse("commands"),
        "dead letters": reverse("dead-letters"),
        "held": reverse("held"),
        "instances": reverse("instances"),
        "audit": reverse("audit"),
        "quarantine": reverse("quarantine"),
    }


def _measured(client: Client, name: str, url: str, requests: int) -> PageCost:
    statements: list[str] = []

    def count(execute: Execute, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        statements.append(sql)
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(count):
        first = client.get(url)
    assert first.status_code == 200, (name, first.status_code)
    took = sorted(_timed(client, url) for _ in range(requests))
    own = sorted(cpu for _, cpu in took)
    return PageCost(
        name=name,
        p95_ms=quantiles([each for each, _ in took], n=20)[-1],
        median_ms=took[len(took) // 2][0],
        own_ms=own[len(own) // 2],
        statements=len(statements),
        kilobytes=len(first.content) / 1000,
    )


def _timed(client: Client, url: str) -> tuple[float, float]:
    begin, own = time.perf_counter(), time.thread_time()
    client.get(url)
    return (time.perf_counter() - begin) * 1000, (time.thread_time() - own) * 1000


def table(found: Sequence[PageCost]) -> str:
    """Return the figures as a table in Markdown."""
    lines = [
        f"| {each.name} | {each.p95_ms:.0f} | {each.median_ms:.0f} | {each.own_ms:.0f} |"
        f" {each.statements} | {each.kilobytes:.0f} |"
        for each in found
    ]
    head = (
        f"| page | p95, ms (goal: ≤ {GOAL_MS}) | median, ms | own CPU, ms | SQL statements |"
        " KB of HTML |"
    )
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|", *lines])
