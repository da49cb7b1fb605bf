"""Bytes per event on disk and in Redis, and the rate at which the views are derived again."""

from __future__ import annotations

import time
from statistics import median

import msgspec
import psycopg
from redis import Redis

from arrester.controlplane import embedded
from arrester.domain.identity import redis_keys
from benchmarks import fold, servers
from benchmarks.events import batches
from benchmarks.processes import timed
from benchmarks.table import Figure

APPLICATION = fold.APPLICATIONS[0]
ROUNDS = 3
_LOG_TABLES = ("event", "batch", "batch_seen")
_SIZE = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE oid = ANY(%s::regclass[])
    OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = ANY(%s::regclass[]))
"""
#: The counts of a rebuild, as PostgreSQL itself would make them.
_AGGREGATE = """
SELECT task, cause, date_trunc('minute', occurred_at, 'UTC'), sum(count), max(sequence)
FROM event WHERE stream = (SELECT id FROM stream WHERE application = %s)
GROUP BY GROUPING SETS ((1), (2), (2, 3))
"""


def figures(urls: embedded.Urls, *, events: int) -> list[Figure]:
    """Return sizes ÷ those of the plainest layouts, and the rate of a rebuild."""
    servers.reset(urls)
    timed(("jsonb", APPLICATION, str(events)))
    as_jsonb = _size(urls, ["jsonb_event"])
    with Redis.from_url(urls.redis) as redis:
        as_json = _json_entries(redis, events)
        servers.reset(urls)
        fold.fill(redis, APPLICATION, events)
        packed = int(redis.memory_usage(redis_keys.events(APPLICATION), samples=0) or 0)
    timed(("fold", APPLICATION, str(events)))
    size = _size(urls, list(_LOG_TABLES))
    return [
        Figure(name="bytes per event on disk", value=size / events),
        Figure(name="bytes on disk ÷ `jsonb` layout", value=size / as_jsonb, goal="≤ 0.35"),
        Figure(name="bytes per event in Redis", value=packed / events),
        Figure(name="bytes in Redis ÷ one JSON entry each", value=packed / as_json, goal="≤ 0.25"),
        _derived(urls),
    ]


def _size(urls: embedded.Urls, tables: list[str]) -> int:
    with psycopg.connect(urls.migrate_database) as database:
        row = database.execute(_SIZE, [tables, tables]).fetchone()
    assert row is not None
    return int(row[0])


def _json_entries(redis: Redis, count: int) -> int:
    """Return the size of the same events as one entry of JSON each."""
    with redis.pipeline(transaction=False) as pipeline:
        for _, events in batches(APPLICATION, count):
            for event in events:
                pipeline.xadd("json", {"event": msgspec.json.encode(event)})
        pipeline.execute()
    return int(redis.memory_usage("json", samples=0) or 0)


def _derived(urls: embedded.Urls) -> Figure:
    """Return the time of PostgreSQL's aggregate ÷ the time to read and fold the log."""
    from arrester.controlplane import store
    from arrester.controlplane.history import rebuild

    until = store.read_stream(APPLICATION).sequence
    ratios = []
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        database.execute("VACUUM ANALYZE")
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            database.execute(_AGGREGATE, [APPLICATION]).fetchall()
            between = time.perf_counter()
            rebuild.derive(APPLICATION, until=until)
            ratios.append((between - begin) / (time.perf_counter() - between))
    name = "deriving the views, events/s ÷ one SQL aggregate over the log"
    return Figure(name=name, value=median(ratios), goal="≥ 0.3")
