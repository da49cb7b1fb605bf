"""Seed the database with a week of history of many applications.

The product's own code writes the log and the views. Redis is left out, so that the times of receipt
can be in the past.
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
from benchmarks.sample_history import DAYS, Week

#: Tasks of each application except the first.
TASKS = 200


def seed(urls: embedded.Urls, *, events: int, applications: int, tasks: int = TASKS) -> list[str]:
    """Create a new database with about `events` events; return the applications' names.

    The first application has `tasks` tasks.
    """
    servers.reset(urls)
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
    # Events have no reference cycles.
    gc.disable()


def write(week: Week) -> None:
    """Fold an application's week: each piece in one transaction, received at its time."""
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
        state_at_position.make_snapshot_if_due(week.application)
