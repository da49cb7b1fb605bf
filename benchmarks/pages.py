"""What a page costs: the time that the server takes for each, over a long and wide history.

Requests go through Django's own client in this process: middleware, session, queries of
PostgreSQL and Redis, templates. What the network and the browser take is theirs.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.urls import reverse

from arrester.controlplane import embedded, models, queries
from arrester.controlplane.queries import GroupFilter, TaskFilter
from arrester.dashboard.rest.authentication import Throttle
from benchmarks import flow, seed
from benchmarks.sample_history import PIPELINE

Execute = Callable[[str, Any, bool, Any], Any]
GOAL_MS = 100
_SIGHTINGS = ("redis", "wake", "worker", "housekeeper", "housekeeper")


class PageCost(NamedTuple):
    """The figures of one page."""

    name: str
    p95_ms: float
    median_ms: float
    #: CPU of this process and of its PostgreSQL backend.
    cpu_p95_ms: float
    cpu_median_ms: float
    #: The part of this process, at the median.
    own_ms: float
    statements: int
    kilobytes: float


class Took(NamedTuple):
    """The milliseconds of one request."""

    wall: float
    cpu: float
    own: float


def figures(
    urls: embedded.Urls, *, events: int, applications: int, tasks: int, requests: int
) -> list[PageCost]:
    """Return the figures of each page, and of each list over REST."""
    names = seed.seed(urls, events=events, applications=applications, tasks=tasks)
    flow.seed_month(urls)
    return measured(names, requests=requests)


def measured(names: Sequence[str], *, requests: int) -> list[PageCost]:
    """Return the figures of each page of a seeded database."""
    client = operator()
    wanted = pages(names[0], names[1]) | lists(names[1])
    # As in a web process: templates are loaded, and objects of seeding are not collected.
    for url in wanted.values():
        client.get(url)
    gc.collect()
    gc.freeze()
    return [measured_page(client, name, url, requests) for name, url in wanted.items()]


def operator() -> Client:
    """Return the client of an operator whose requests are not limited."""
    Throttle.rate = "1000000/min"
    user, _ = User.objects.get_or_create(username="ana")
    user.groups.set([Group.objects.get_or_create(name="operator")[0]])
    soon = datetime.now(UTC) + timedelta(hours=1)
    for name in _SIGHTINGS:
        models.Sighting.objects.update_or_create(name=name, defaults={"at": soon})
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    return client


def pages(wide: str, other: str) -> dict[str, str]:
    """Return the URL of every kind of page, by name."""
    group = queries.groups(GroupFilter(application=other), limit=1).rows[0]
    task = queries.tasks(TaskFilter(application=other, status="PAUSED"), limit=1).rows[0]
    application = reverse("application", args=[wide])
    of_task = reverse("task", args=[task.id.digest])
    history = reverse("task-history", args=[task.id.digest])
    pipeline = reverse("pipeline", args=[other, PIPELINE])
    return {
        "overview": reverse("overview"),
        "overview, 30 days": reverse("overview") + "?range=30d",
        "pipelines": reverse("pipelines"),
        "pipeline": pipeline,
        "pipeline, 24 hours": f"{pipeline}?range=24h",
        "pipeline, 30 days": f"{pipeline}?range=30d",
        "applications": reverse("applications"),
        "application, 10,000 tasks": application,
        "application, page 20 of its tasks": f"{application}?pipeline=departures&page=20",
        "application, tasks by key": f"{application}?pipeline=departures&key=T0077",
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


def lists(application: str) -> dict[str, str]:
    """Return the URL of the lists over REST."""
    cause = queries.groups(GroupFilter(application=application), limit=1).rows[0]
    failures = reverse("api-failures")
    series = reverse("api-pipeline-series", args=[application, PIPELINE])
    return {
        "metrics": reverse("metrics"),
        "REST pipelines": reverse("api-pipelines"),
        "REST pipeline, one hour": series,
        "REST applications": reverse("api-applications"),
        "REST tasks": reverse("api-tasks"),
        "REST errors": reverse("api-errors"),
        "REST errors, by message": reverse("api-errors") + "?text=more than 7",
        "REST failures, all applications": failures,
        "REST failures, one application": f"{failures}?application={application}",
        "REST failures, one cause": f"{failures}?application={application}"
        f"&fingerprint={cause.fingerprint}",
        "REST commands": reverse("api-commands"),
        "REST audit": reverse("api-audit"),
        "REST dead letters": reverse("api-dead-letters"),
        "REST held": reverse("api-held"),
        "REST instances": reverse("api-every-instance"),
        "REST feed": reverse("api-feed"),
    }


def measured_page(client: Client, name: str, url: str, requests: int) -> PageCost:
    """Return the figures of one page."""
    statements: list[str] = []

    def count(execute: Execute, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        statements.append(sql)
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(count):
        first = client.get(url)
    assert first.status_code == 200, (name, first.status_code)
    took = [timed(client, url) for _ in range(requests)]
    walls, cpus, owns = map(sorted, zip(*took, strict=True))
    return PageCost(
        name=name,
        p95_ms=quantiles(walls, n=20)[-1],
        median_ms=walls[requests // 2],
        cpu_p95_ms=quantiles(cpus, n=20)[-1],
        cpu_median_ms=cpus[requests // 2],
        own_ms=owns[requests // 2],
        statements=len(statements),
        kilobytes=len(first.content) / 1000,
    )


def timed(client: Client, url: str) -> Took:
    # As in a web process, each request takes a connection from the pool, perhaps the same one.
    before = {connection.connection.info.backend_pid: backend_ms()} if connection.connection else {}
    connection.close()
    begin, own = time.perf_counter(), time.thread_time()
    status = client.get(url).status_code
    wall, own = (time.perf_counter() - begin) * 1000, (time.thread_time() - own) * 1000
    cpu_ms = backend_ms() - before.get(connection.connection.info.backend_pid, 0.0)
    if status != HTTPStatus.OK:
        raise RuntimeError(f"{url}: status {status}")
    return Took(wall, own + cpu_ms, own)


def backend_ms(pid: int | None = None) -> float:
    """Return the CPU milliseconds of a PostgreSQL backend, by default of our connection; 0 if
    unknown."""
    if pid is None:
        connection.ensure_connection()
        pid = connection.connection.info.backend_pid
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6
    except OSError:
        return 0.0


def table(found: Sequence[PageCost]) -> str:
    """Return the figures as a table in Markdown."""
    lines = [
        f"| {each.name} | {each.p95_ms:.0f} | {each.median_ms:.0f} | {each.cpu_p95_ms:.0f} |"
        f" {each.cpu_median_ms:.0f} | {each.own_ms:.0f} | {each.statements} |"
        f" {each.kilobytes:.0f} |"
        for each in found
    ]
    head = (
        f"| page | p95, ms (goal: ≤ {GOAL_MS}) | median, ms | CPU p95, ms | CPU median, ms |"
        " of it Python's, ms | SQL statements | KB |"
    )
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|---:|---:|", *lines])
