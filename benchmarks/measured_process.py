"""One process of a measurement: prepare, print `ready`, wait for a line, work, print `done`."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

import django
import msgspec

django.setup()

import psycopg  # noqa: E402  # Django has to be ready first
from django.conf import settings  # noqa: E402
from django.db import connection  # noqa: E402

from arrester.controlplane.ingest import fold_stream as stream_folds  # noqa: E402
from benchmarks.events import batches  # noqa: E402

ROWS_PER_COMMIT = stream_folds.EVENTS_PER_READ
Work = Callable[[], None]


def fold(application: str, count: int) -> Work:
    """Fold the events that arrive in the stream until there were `count` of them."""
    connection.ensure_connection()

    def work() -> None:
        folded = 0
        while folded < count:
            done = stream_folds.fold_stream(application)
            folded += done.events
            if not done.events:
                time.sleep(0.001)

    return work


def jsonb(application: str, count: int) -> Work:
    """The jsonb limit: binary COPY of the events as JSON into a table with only a primary key."""
    events = [event for _, some in batches(application, count) for event in some]
    rows = [
        (application, sequence, b"\x01" + msgspec.json.encode(event))
        for sequence, event in enumerate(events, 1)
    ]
    database = psycopg.connect(settings.DATABASE_URL)

    def work() -> None:
        for begin in range(0, len(rows), ROWS_PER_COMMIT):
            statement = "COPY jsonb_event FROM STDIN (FORMAT BINARY)"
            with database.cursor() as cursor, cursor.copy(statement) as into:
                # The bytes are jsonb's binary form already: the client does as little as it can.
                into.set_types(["text", "int8", "bytea"])
                for row in rows[begin : begin + ROWS_PER_COMMIT]:
                    into.write_row(row)
            database.commit()

    return work


WORKS: dict[str, Callable[[str, int], Work]] = {"fold": fold, "jsonb": jsonb}


def main(kind: str, application: str, count: str) -> None:
    """Prepare, and work after a line of input."""
    work = WORKS[kind](application, int(count))
    gc.collect()
    print("ready", flush=True)
    sys.stdin.readline()
    work()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
