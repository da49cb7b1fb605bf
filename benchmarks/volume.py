"""How much room an event takes, on disk and in Redis, and how fast the views are derived again."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import psycopg
from redis import Redis

from arrester.controlplane import embedded
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.domain.wire import codec
from benchmarks import fold, servers
from benchmarks.children import timed
from benchmarks.events import batches
from benchmarks.table import Figure

APPLICATION = fold.APPLICATIONS[0]
ROUNDS = 3
_OURS = ("event", "batch", "batch_seen")
_SIZE = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE oid = ANY(%s::regclass[])
    OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = ANY(%s::regclass[]))
"""
#: What a rebuild counts, as PostgreSQL itself would count it.
_ONE_STATEMENT = """
SELECT task, cause, date_trunc('minute', occurred_at, 'UTC'), sum(count), max(sequence)
FROM event WHERE stream = (SELECT id FROM stream WHERE application = %s)
GROUP BY GROUPING SETS ((1), (2), (2, 3))
"""


def figures(urls: embedded.Urls, *, events: int) -> list[Figure]:
    """Return sizes beside those of the plainest layouts, and the rate of a rebuild."""
    servers.freshen(urls)
    timed(("jsonb", APPLICATION, str(events)))
    as_json = _size(urls, ["jsonb_event"])
    with Redis.from_url(urls.redis) as redis:
        entries = _entries(redis, events)
        servers.freshen(urls)
        fold.fill(redis, APPLICATION, events)
        packed = int(redis.memory_usage(redis_keys.events(APPLICATION), samples=0) or 0)
    timed(("drain", APPLICATION, str(events)))
    ours = _size(urls, list(_OURS))
    return [
        Figure(name="bytes for an event on disk", value=ours / events),
        Figure(name="bytes on disk ÷ `jsonb` layout", value=ours / as_json, goal="≤ 0.35"),
        Figure(name="bytes for an event in Redis", value=packed / events),
        Figure(name="bytes in Redis ÷ one JSON entry each", value=packed / entries, goal="≤ 0.25"),
        *_rebuilt(urls),
    ]


def _size(urls: embedded.Urls, tables: list[str]) -> int:
    with psycopg.connect(urls.migrate_database) as database:
        row = database.execute(_SIZE, [tables, tables]).fetchone()
    assert row is not None
    return int(row[0])


def _entries(redis: Redis, count: int) -> int:
    """Return the room that the same events take as one entry of JSON each."""
    with redis.pipeline(transaction=False) as pipeline:
        for _, events in batches(APPLICATION, count):
            for event in events:
                pipeline.xadd("json", {"event": codec.to_json(event)})
        pipeline.execute()
    return int(redis.memory_usage("json", samples=0) or 0)


def _rebuilt(urls: embedded.Urls) -> list[Figure]:
    """Return how long PostgreSQL takes to count, ÷ how long it takes us to read and fold the log,
    and to do that, keep its snapshots, and put the views in the place of the live ones."""
    from arrester.controlplane import store
    from arrester.controlplane.history import rebuild

    until = store.read_stream(APPLICATION).sequence
    works: dict[str, Callable[[], object]] = {
        "deriving the views in memory": partial(rebuild.derive, APPLICATION, until=until),
        "the whole rebuild, as `arrester rebuild`": partial(rebuild.rebuild, APPLICATION),
    }
    ratios: dict[str, list[float]] = {name: [] for name in works}
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        database.execute("VACUUM ANALYZE")
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            database.execute(_ONE_STATEMENT, [APPLICATION]).fetchall()
            counted = time.perf_counter() - begin
            for name, work in works.items():
                begin = time.perf_counter()
                work()
                ratios[name].append(counted / (time.perf_counter() - begin))
    return [
        Figure(
            name=f"{name}, events/s ÷ one SQL statement that counts the same",
            value=median(each),
            goal="≥ 0.6",
        )
        for name, each in ratios.items()
    ]
