"""One process of a measurement: prepares, says `ready`, waits for a line, works, says `done`."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from uuid import NAMESPACE_URL, uuid5

import django

django.setup()

import psycopg  # noqa: E402  # Django has to be ready first
from django.conf import settings  # noqa: E402
from django.db import connection, transaction  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from psycopg.conninfo import conninfo_to_dict  # noqa: E402

from arrester.controlplane import store  # noqa: E402
from arrester.controlplane.domain.wire import codec  # noqa: E402
from arrester.controlplane.ingest import drain as stream_drain  # noqa: E402
from arrester.controlplane.store.appending import Layout, copying, lay_out_rows  # noqa: E402
from benchmarks.events import EVENTS_PER_BATCH, batches  # noqa: E402

ROWS_PER_COMMIT = stream_drain.EVENTS_PER_READ
Work = Callable[[], None]


def drain(application: str, count: int) -> Work:
    """The product: fold all that waits in the stream."""
    connection.ensure_connection()

    def work() -> None:
        folded = 0
        while (done := stream_drain.drain(application)).more:
            folded += done.events
        assert folded + done.events == count, f"{folded + done.events} of {count} events"

    return work


def keep_pace(application: str, count: int) -> Work:
    """The product again: fold until that many events have come and are folded."""
    connection.ensure_connection()

    def work() -> None:
        folded = 0
        while folded < count:
            done = stream_drain.drain(application)
            folded += done.events
            if not done.events:
                time.sleep(0.001)

    return work


def jsonb(application: str, count: int) -> Work:
    """The jsonb limit: binary COPY of the events as JSON into a table with only a primary key."""
    events = [event for _, some in batches(application, count) for event in some]
    rows = [
        (application, sequence, b"\x01" + codec.to_json(event))
        for sequence, event in enumerate(events, 1)
    ]
    database = psycopg.connect(settings.DATABASE_URL)

    def work() -> None:
        for begin in range(0, len(rows), ROWS_PER_COMMIT):
            statement = "COPY jsonb_event FROM STDIN (FORMAT BINARY)"
            with database.cursor() as cursor, cursor.copy(statement) as into:
                # Bytes that are jsonb's binary form already: the client does as little as it can.
                into.set_types(["text", "int8", "bytea"])
                for row in rows[begin : begin + ROWS_PER_COMMIT]:
                    into.write_row(row)
            database.commit()

    return work


def recorder(application: str, count: int) -> Work:
    """pyeventsourcing's recorder, in batches of 1,000: versions are unique, nothing is folded.

    Its states are JSON, as that library stores them unless it is told to compress.
    """
    from eventsourcing.persistence import StoredEvent
    from eventsourcing.postgres import PostgresAggregateRecorder, PostgresDatastore

    found = conninfo_to_dict(os.environ["MIGRATE_DATABASE_URL"])
    datastore = PostgresDatastore(
        dbname=str(found["dbname"]),
        host=str(found["host"]),
        port=str(found.get("port", "")),
        user=str(found["user"]),
        password=str(found["password"]),
    )
    table = PostgresAggregateRecorder(datastore, events_table_name="recorded_event")
    table.create_table()
    originator = uuid5(NAMESPACE_URL, application)
    events = [
        StoredEvent(originator, version, "RecordFailed", codec.to_json(event))
        for version, event in enumerate(
            event for _, some in batches(application, count) for event in some
        )
    ]

    def work() -> None:
        for begin in range(0, len(events), 1_000):
            table.insert_events(events[begin : begin + 1_000])

    return work


def ceiling(application: str, count: int) -> Work:
    """Our own ceiling: COPY alone, of rows that are ready in memory, into our very tables."""
    store.open_stream(application)
    layouts = list(_layouts(application, count))

    def work() -> None:
        for layout in layouts:
            with transaction.atomic(durable=True):
                store.lock(application)
                with copying(layout):
                    pass

    return work


def _layouts(application: str, count: int) -> Iterator[Layout]:
    stream, now = store.read_stream(application), datetime.now(UTC)
    found = (
        store.Batch(id=id, events=events, packed=codec.pack(events))
        for id, events in batches(application, count)
    )
    while some := list(islice(found, ROWS_PER_COMMIT // EVENTS_PER_BATCH)):
        layout = lay_out_rows(stream, some, received_at=now)
        stream = replace(stream, sequence=layout.stored[-1].sequence)
        yield layout


WORKS: dict[str, Callable[[str, int], Work]] = {
    "drain": drain,
    "keep_pace": keep_pace,
    "jsonb": jsonb,
    "recorder": recorder,
    "ceiling": ceiling,
}


def main(kind: str, application: str, count: str) -> None:
    """Get ready, and work when told."""
    work = WORKS[kind](application, int(count))
    gc.collect()
    print("ready", flush=True)
    sys.stdin.readline()
    work()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
