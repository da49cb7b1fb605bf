"""What a longer log costs: pages, fold, retention, rebuild and backup at several sizes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from statistics import median

import psycopg
from django.db import connection
from redis import Redis

from arrester.controlplane import embedded
from arrester.controlplane.embedded import postgres
from arrester.domain.identity import redis_keys
from benchmarks import fold, pages, seed
from benchmarks.processes import timed
from benchmarks.sample_history import DAYS

_APPLICATIONS = 20
_REQUESTS = 7
_FOLDED = 100_000
_FOLD_ROUNDS = 3
_READ_BYTES = 1 << 20


def table(urls: embedded.Urls, *, sizes: Sequence[int], report: Callable[[str], None]) -> str:
    """Measure each size in a database of its own; return all figures by name."""
    columns = []
    for events in sizes:
        columns.append(_measured(urls, events))
        report(f"{events:,} events: {columns[-1]}")
    names = dict.fromkeys(name for column in columns for name in column)
    lines = [
        f"| {name} | {' | '.join(f'{column[name]:,.4g}' for column in columns)} |" for name in names
    ]
    head = " | ".join(f"{events:,}" for events in sizes)
    return "\n".join([f"| events | {head} |", "|---|" + "---:|" * len(sizes), *lines])


def _measured(urls: embedded.Urls, events: int) -> dict[str, float]:
    began = time.perf_counter()
    names = seed.seed(urls, events=events, applications=_APPLICATIONS)
    found = {"written events/s": events / (time.perf_counter() - began)}
    found["disk, bytes per event"] = _database_bytes(urls) / events
    costs = pages.measured(names, requests=_REQUESTS)
    found |= {f"{each.name}, median ms": each.median_ms for each in costs}
    connection.close()
    found["fold, events/s"] = _fold_rate(urls)
    found["rebuild of one application, events/s"] = _rebuild_rate(names[-1])
    seconds, size = _dumped(urls)
    found |= {"pg_dump, s": seconds, "pg_dump, bytes per event": size / events}
    found |= _retained()
    return found


def _database_bytes(urls: embedded.Urls) -> int:
    with psycopg.connect(urls.migrate_database) as database:
        row = database.execute("SELECT pg_database_size(current_database())").fetchone()
    return 0 if row is None else int(row[0])


def _fold_rate(urls: embedded.Urls) -> float:
    """Return the median rate of the fold into logs of their own, beside the long ones."""
    rates = []
    for _ in range(_FOLD_ROUNDS):
        with Redis.from_url(urls.redis) as redis:
            for application in fold.APPLICATIONS:
                redis.delete(redis_keys.events(application))
                fold.fill(redis, application, _FOLDED)
        seconds = timed(*(("fold", each, str(_FOLDED)) for each in fold.APPLICATIONS))
        rates.append(_FOLDED * len(fold.APPLICATIONS) / seconds)
    return median(rates)


def _rebuild_rate(application: str) -> float:
    from arrester.controlplane import store
    from arrester.controlplane.history import rebuild

    until = store.read_stream(application).sequence
    began = time.perf_counter()
    rebuild.derive(application, until=until)
    return until / (time.perf_counter() - began)


def _dumped(urls: embedded.Urls) -> tuple[float, int]:
    """Return the seconds and bytes of a backup in PostgreSQL's compressed format."""
    program = postgres.installation() / "bin" / "pg_dump"
    name = urls.admin_database.rpartition("/postgres?")
    url = f"{name[0]}/arrester_test?{name[2]}"
    began, size = time.perf_counter(), 0
    with subprocess.Popen(
        [program, "--format", "custom", "--dbname", url], stdout=subprocess.PIPE
    ) as dump:
        assert dump.stdout is not None
        while part := dump.stdout.read(_READ_BYTES):
            size += len(part)
    if dump.returncode:
        raise RuntimeError("pg_dump failed")
    return time.perf_counter() - began, size


def _retained() -> dict[str, float]:
    """Return the seconds in which retention makes and verifies its bases, and drops two days."""
    from arrester.controlplane.history import retention

    began = time.perf_counter()
    retention.retain(days=DAYS - 2, replay_days=DAYS)
    connection.close()
    return {"retention that drops two days, s": time.perf_counter() - began}
