"""A week of history of many applications: on the product's own road into the log and the views.

What is left out of that road is Redis, so that the week lies back: what came when is given.
"""

from __future__ import annotations

import gc
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from os import cpu_count

import django
import psycopg

from arrester.controlplane import embedded
from benchmarks import servers
from benchmarks.week import DAYS, Week

#: Of each application but the first, unless more are asked for.
TASKS = 200


def seed(urls: embedded.Urls, *, events: int, applications: int, tasks: int = TASKS) -> list[str]:
    """Make the database anew with about so many events in all; return the applications' names.

    The first application has so many tasks.
    """
    servers.freshen(urls)
    names = [f"application-{number:03d}" for number in range(applications)]
    with psycopg.connect(urls.migrate_database) as database:
        first = datetime.now(UTC) - timedelta(days=DAYS)
        database.execute("SELECT arrester_ensure_partitions(%s, %s)", [first.date(), DAYS + 2])
    weeks = [
        Week(
            application=name,
            events=events // applications,
            tasks=TASKS if number else tasks,
            until=datetime.now(UTC),
        )
        for number, name in enumerate(names)
    ]
    with ProcessPoolExecutor(cpu_count(), get_context("spawn"), _set_up) as pool:
        for _ in pool.map(write, weeks):
            pass
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        database.execute("VACUUM ANALYZE")
    return names


def _set_up() -> None:
    django.setup()
    # Thousands of events hold no cycles.
    gc.disable()


def write(week: Week) -> None:
    """Fold an application's week: each piece at one go, as if it had come when it says."""
    from django.db import transaction

    from arrester.controlplane import store
    from arrester.controlplane.history import state_at_position
    from arrester.controlplane.views import projections

    store.open_stream(week.application)
    for received_at, batches in week.pieces():
        with transaction.atomic(durable=True):
            stream = store.lock(week.application)
            store.record_batches(stream, batches, received_at=received_at)
            _, stored = store.append(stream, batches, received_at=received_at)
            projections.project(week.application, stored)
        state_at_position.keep_if_due(week.application)
