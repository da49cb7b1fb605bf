"""A week of history of many applications: a part folded as ever, the rest made from that part.

The views know of the part only; the log and the counts for charts have it all.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
from redis import Redis

from benchmarks import servers
from benchmarks.events import batches
from controlplane import embedded
from controlplane.domain import ids, keys, wire
from controlplane.domain.events import (
    Event,
    InstanceStarted,
    RecordFailed,
    TaskDied,
    TaskPaused,
    ThreadStarted,
)

DAYS = 7
#: How many events of each application are folded.
FOLDED = 1_000
#: Of each application's tasks, so many stand still.
PAUSED, DEAD = 6, 2
_SPOOL = UUID(int=1)

_EVENTS = """
INSERT INTO event (application, sequence, day, received_at, occurred_at, {rest})
SELECT application, sequence + %(shift)s::bigint, %(at)s::date,
    %(at)s::timestamptz + sequence * %(step)s, %(at)s::timestamptz + sequence * %(step)s, {rest}
FROM event WHERE sequence <= %(folded)s AND count IS NOT NULL ORDER BY application, sequence
"""
_BODIES = """
INSERT INTO event_body (application, sequence, day, {rest})
SELECT application, sequence + %(shift)s::bigint, %(at)s::date, {rest}
FROM event_body WHERE sequence <= %(folded)s ORDER BY application, sequence
"""
_COUNTS = """
INSERT INTO {unit}_count (application, {unit}, {keys}, count, sequence)
SELECT application, date_trunc('{unit}', occurred_at, 'UTC'), {keys}, sum(count), max(sequence)
FROM event WHERE count IS NOT NULL AND sequence > %s GROUP BY application, 2, {keys}
"""
_LENGTHS = """
UPDATE stream SET sequence = found.sequence
FROM (SELECT application, max(sequence) AS sequence FROM event GROUP BY application) AS found
WHERE found.application = stream.application
"""


def seed(urls: embedded.Urls, *, events: int, applications: int) -> list[str]:
    """Make the database anew with about so many events in all; return the applications' names."""
    servers.freshen(urls)
    names = [f"application-{number:03d}" for number in range(applications)]
    for name in names:
        _fold(urls, name)
    copies = max(1, events // (applications * FOLDED))
    with psycopg.connect(urls.migrate_database) as database:
        _multiply(database, copies)
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        database.execute("VACUUM ANALYZE")
    return names


def _fold(urls: embedded.Urls, application: str) -> None:
    from controlplane import ingest

    with Redis.from_url(urls.redis) as redis:
        for batch, events in _story(application):
            redis.xadd(
                keys.events(application),
                {"batch": str(batch), "spool": str(_SPOOL), "events": wire.encode_batch(events)},
            )
    ingest.drain(application, budget_seconds=60)


def _story(application: str) -> Iterator[tuple[UUID, list[Event]]]:
    """Yield FOLDED events: a run begins, records fail, some tasks end up PAUSED or DEAD."""
    found = [events for _, events in batches(application, FOLDED)]
    failed = [each for events in found for each in events if isinstance(each.data, RecordFailed)]
    first = failed[0]
    begin = [_like(first, InstanceStarted(host="driver-1", pid=7)), _like(first, ThreadStarted())]
    ends = []
    for number, each in enumerate(failed[: PAUSED + DEAD]):
        data = each.data
        assert isinstance(data, RecordFailed)
        end = TaskPaused if number < PAUSED else TaskDied
        ends.append(_like(each, end(task=data.task, position=data.position, failure=data.failure)))
    size = FOLDED - len(begin) - len(ends)
    now = datetime.now(UTC)
    for some in (begin, failed[:size], ends):
        for at in range(0, len(some), 100):
            yield ids.uuid7(now), some[at : at + 100]


def _like(event: Event, data: InstanceStarted | ThreadStarted | TaskPaused | TaskDied) -> Event:
    return Event(occurred_at=event.occurred_at, data=data, instance=event.instance, run=event.run)


def _multiply(database: psycopg.Connection, copies: int) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    begin = today - timedelta(days=DAYS)
    database.execute("SELECT arrester_ensure_partitions(%s, %s)", [begin.date(), DAYS + 2])
    span = timedelta(days=DAYS) / copies
    for number in range(1, copies):
        given = {
            "shift": number * FOLDED,
            "folded": FOLDED,
            "at": begin + span * number,
            "step": span / FOLDED,
        }
        for statement, table, own in ((_EVENTS, "event", 5), (_BODIES, "event_body", 3)):
            rest = ", ".join(_columns(database, table)[own:])
            database.execute(statement.format(rest=rest).encode(), given)
    for unit, columns in (("minute", "pipeline, stage, fingerprint"), ("hour", "fingerprint")):
        database.execute(_COUNTS.format(unit=unit, keys=columns).encode(), [FOLDED])
    database.execute(_LENGTHS)


def _columns(database: psycopg.Connection, table: str) -> list[str]:
    """Return the names of a table's columns in their order; the key and its times come first."""
    with database.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} LIMIT 0".encode())
        return [column.name for column in cursor.description or []]
