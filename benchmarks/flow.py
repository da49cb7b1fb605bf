"""What flows through pipelines: a month of minutes, and what a minute costs on disk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

import psycopg

from arrester.controlplane import embedded
from arrester.controlplane.store import NewBatch
from arrester.domain.durations import Phase, added, key_of, packed
from arrester.domain.events import Event, FlowMeasured, Run
from arrester.domain.identity import uuids
from benchmarks import servers
from benchmarks.sample_history import PIPELINE
from benchmarks.table import Figure

DAYS = 30
#: Micro-batches of a minute: a trigger of ten seconds.
MICRO_BATCHES = 6
#: The usual duration of each phase, in milliseconds.
_USUAL = {Phase.TOTAL: 900, Phase.SOURCE: 60, Phase.EVALUATE: 200, Phase.WRITE: 450}
#: Minutes whose size is measured, of one pipeline.
MINUTES = 5_000
_TABLES = ("batch", "batch_seen", "flow_minute", "flow_hour", "flow_total")
_SIZES = """
SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_class c WHERE c.oid = ANY(%s::regclass[])
UNION ALL
SELECT p.relname, sum(pg_total_relation_size(i.inhrelid)) FROM pg_inherits i
JOIN pg_class p ON p.oid = i.inhparent WHERE i.inhparent = ANY(%s::regclass[]) GROUP BY 1
"""
#: The sums of the first pipeline of each application, as agents that report each minute leave them.
_FILL = """
INSERT INTO {table} (
    application, pipeline, checkpoint, epoch, {time}, micro_batches, records_in, records_out,
    failed, skipped, held, drained, durations, last_batch_at, backlog, backlog_unit, watermark,
    sequence
)
SELECT application, pipeline, checkpoint, 1, at, 6 * {minutes}, 6000 * {minutes},
    5990 * {minutes}, 10 * {minutes}, 10 * {minutes}, 0, 0, %(durations)s::bigint[],
    at + interval '59 seconds', 100, 'records', at, 1
FROM (
    SELECT DISTINCT application, pipeline, checkpoint FROM task WHERE pipeline = %(pipeline)s
) AS run, generate_series(
        date_trunc('{time}', now() - %(days)s * interval '1 day'), now(), interval '1 {time}'
    ) AS at
"""
_FILL_TOTAL = """
INSERT INTO flow_total (
    application, pipeline, checkpoint, micro_batches, records_in, records_out, failed, skipped,
    held, drained, durations, last_batch_at, backlog, backlog_unit, watermark, sequence
)
SELECT application, pipeline, checkpoint, sum(micro_batches), sum(records_in), sum(records_out),
    sum(failed), sum(skipped), 0, 0, %(durations)s::bigint[], max(last_batch_at), 100, 'records',
    max(watermark), 1
FROM flow_hour GROUP BY 1, 2, 3
"""


def seed_month(urls: embedded.Urls) -> None:
    """Add a month of flow to the first pipeline of each application of a seeded database."""
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        for statement in fill_statements():
            database.execute(statement, fill_values())
        database.execute("VACUUM ANALYZE")


def fill_statements() -> list[str]:
    """Return the statements that add the flow, in order, for `fill_values`."""
    by_time = [
        _FILL.format(table=f"flow_{time}", time=time, minutes=minutes)
        for time, minutes in (("minute", 1), ("hour", 60))
    ]
    return [*by_time, _FILL_TOTAL]


def fill_values(days: int = DAYS) -> dict[str, list[int] | str | int]:
    """Return the parameters of the statements."""
    return {"durations": packed(_durations(Random(1))), "pipeline": PIPELINE, "days": days}


def disk_usage(urls: embedded.Urls) -> list[Figure]:
    """Return the bytes of PostgreSQL for one minute of one pipeline: of a driver with one pipeline,
    and of one with three, whose events are one batch."""
    alone, together = _bytes(urls, pipelines=1), _bytes(urls, pipelines=3)
    title = "bytes for a minute of a pipeline"
    return [
        Figure(name=title, value=sum(alone.values()), goal="≤ 1,000"),
        *(Figure(name=f"of it `{name}`", value=value) for name, value in alone.items() if value),
        Figure(name=f"{title}, one of three in a driver", value=sum(together.values())),
    ]


def _bytes(urls: embedded.Urls, *, pipelines: int) -> dict[str, float]:
    """Return the bytes of each table for a minute of one of a driver's pipelines."""
    from django.db import connection, transaction

    from arrester.controlplane import store
    from arrester.controlplane.views import projections

    connection.close()
    servers.reset(urls)
    store.open_stream("flights")
    random, now = Random(2), datetime.now(UTC).replace(second=0, microsecond=0)
    runs = [
        Run(pipeline=f"{PIPELINE}-{number}", checkpoint=str(UUID(int=number, version=4)), epoch=1)
        for number in range(pipelines)
    ]
    instance = UUID(int=random.getrandbits(128), version=4)
    before = _sizes(urls)
    for number in range(MINUTES):
        minute = now - timedelta(minutes=MINUTES - number)
        events = [
            Event(occurred_at=minute, data=_measured(minute, random), instance=instance, run=run)
            for run in runs
        ]
        batches = [NewBatch(id=uuids.uuid7(minute), events=events)]
        with transaction.atomic(durable=True):
            stream = store.lock("flights")
            store.record_batches(stream, batches, received_at=now)
            _, stored = store.append(stream, batches, received_at=now)
            projections.project("flights", stored)
    after = _sizes(urls)
    return {name: (after[name] - before[name]) / (MINUTES * pipelines) for name in _TABLES}


def _measured(minute: datetime, random: Random) -> FlowMeasured:
    records = random.randrange(3_000, 9_000)
    return FlowMeasured(
        minute=minute,
        micro_batches=MICRO_BATCHES,
        records_in=records,
        records_out=records,
        durations=_durations(random),
        last_batch_at=minute + timedelta(seconds=random.randrange(50, 60)),
        backlog=random.randrange(500),
        backlog_unit="records",
        watermark=minute,
    )


def _durations(random: Random) -> dict[str, int]:
    """Return the histogram of a minute whose micro-batches take about as long as usual."""
    return added(
        {key_of(phase, random.lognormvariate(0, 0.2) * usual): 1}
        for phase, usual in _USUAL.items()
        for _ in range(MICRO_BATCHES)
    )


def _sizes(urls: embedded.Urls) -> dict[str, int]:
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        database.execute("VACUUM FULL")
        found = database.execute(_SIZES, [[*_TABLES], [*_TABLES]]).fetchall()
    sizes = dict.fromkeys(_TABLES, 0)
    for name, size in found:
        sizes[name] += int(size)
    return sizes
