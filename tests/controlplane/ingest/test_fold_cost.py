"""The cost of a fold is linear in its events of any kind: one application that sends many of
a kind delays no other for longer than as many of another kind.

Work is counted, not timed: calls of Python functions, and rows that PostgreSQL reads and writes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid5

import msgspec
from django.db import connection
from redis import Redis

from arrester.controlplane.ingest import fold_stream
from arrester.domain.events import Event
from arrester.domain.identity import redis_keys
from tests import histories
from tests.controlplane import streams
from tests.domain.test_event_catalogue import SAMPLES
from tests.histories import NOON

FEW, MANY = 20, 100
#: The work for each event of `MANY` to that of `FEW`. What a fold does once makes it less than 1.
MOST = 2
_NAMES = frozenset({"task", "stage", "fingerprint", "pipeline", "checkpoint", "host"})
_IDS = frozenset({"instance", "command", "redrive", "caused_by", "part_of", "id"})
_ROWS = """
SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0) + n_tup_ins + n_tup_upd + n_tup_del)
FROM pg_stat_user_tables
"""


def varied(value: Any, number: int) -> Any:
    """Return an event with other subjects: task, run, instance, command, group."""
    if not isinstance(value, dict):
        return value
    found = {name: varied(part, number) for name, part in value.items()}
    for name, part in found.items():
        if name in _NAMES and isinstance(part, str):
            found[name] = f"{part[:20]}{number:x}"
        elif name in _IDS and isinstance(part, str):
            found[name] = str(uuid5(UUID(part), str(number)))
    return found


def sent(sample: Any, count: int, *, different: bool) -> list[Event]:
    parts = [varied(sample, number if different else 0) for number in range(count)]
    return [msgspec.convert(each, Event, strict=False) for each in parts]


def rows() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(_ROWS)
        return int(cursor.fetchone()[0])


def work(redis: Redis, application: str, events: Sequence[Event]) -> int:
    """Return the work of folding events."""
    streams.send(redis, events, application=application)
    before, calls = rows(), 0

    def count(_frame: object, what: str, _argument: object) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    sys.setprofile(count)
    try:
        fold_stream.fold_stream(application, budget_seconds=60, request_snapshot=lambda _: None)
    finally:
        sys.setprofile(None)
    # Events that only the server may emit are in quarantine.
    assert redis.xlen(redis_keys.events(application)) == 0
    return calls + rows() - before


def with_runs(count: int) -> str:
    """Return an application with so many instances, each with a run."""
    name = f"with-{count}"
    starts = [json.loads(msgspec.json.encode(each)) for each in histories.started()]
    for start in starts:
        events = sent(start, count, different=True)
        streams.append(events, application=name, received_at=NOON)
    return name


def test_the_work_of_a_fold_is_linear_in_its_events(redis: Redis, fresh_database: object) -> None:
    sizes = {count: with_runs(count) for count in (FEW, MANY)}
    too_much = {}
    for path in SAMPLES:
        sample = json.loads(path.read_text())
        for different in (False, True):
            few, many = (
                work(redis, name, sent(sample, count, different=different)) / count
                for count, name in sizes.items()
            )
            if many > MOST * few:
                too_much[path.stem, different] = many / few
    assert too_much == {}
