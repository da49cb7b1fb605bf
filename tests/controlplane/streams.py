"""What an agent does to a stream, and what the tests of the server look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from operator import add
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import models, store
from arrester.controlplane.history import rebuild, retention
from arrester.controlplane.views import projections, row_mapping
from arrester.controlplane.views.failure_totals import COUNTS, LAST
from arrester.domain.events import Event, StoredEvent
from arrester.domain.identity import redis_keys, uuids
from arrester.domain.state.states import TaskState
from arrester.domain.state.stream_state import StreamState, empty
from arrester.domain.wire import codec
from tests import histories
from tests.histories import APPLICATION

SPOOL = UUID("0193476e-0000-7000-8000-0000000000aa")


def put(
    redis: Redis,
    fields: Mapping[str, str | bytes],
    *,
    id: str = "*",
    application: str = APPLICATION,
) -> None:
    """Put any entry into a stream."""
    entry: dict[Any, Any] = dict(fields)
    redis.xadd(redis_keys.events(application), entry, id=id)


def send(
    redis: Redis,
    events: Sequence[Event],
    *,
    batch: UUID | None = None,
    application: str = APPLICATION,
) -> UUID:
    """Send a batch as an agent does; return its id."""
    batch = batch or uuids.uuid7(datetime.now(UTC))
    put(redis, fields(batch, codec.encode_batch(events)), application=application)
    return batch


def fields(batch: UUID, events: bytes) -> dict[str, str | bytes]:
    """Return the fields of an agent's entry."""
    return {"batch": str(batch), "spool": str(SPOOL), "events": events}


def append(
    events: Sequence[Event], *, received_at: datetime, application: str = APPLICATION
) -> None:
    """Append events to the log as if they had come at a time."""
    store.open_stream(application)
    with locked(application) as stream:
        batch = store.NewBatch(id=uuids.uuid7(received_at), events=events)
        _, stored = store.append(stream, [batch], received_at=received_at)
        projections.project(application, stored)


def confirmed(redis: Redis, application: str = APPLICATION) -> set[UUID]:
    """Return the batches that the server has confirmed."""
    members = redis.smembers(redis_keys.confirmed(application, SPOOL))
    return {codec.parse_uuid(member, "batch") for member in members}


def log(application: str = APPLICATION) -> list[StoredEvent]:
    """Return the whole log."""
    return list(store.read(application))


def events(application: str = APPLICATION) -> list[Event]:
    """Return what the log has, with bodies, as it was sent."""
    return [store.read_one(application, each.sequence).event for each in log(application)]


def task(digest: str) -> TaskState:
    """Return a task's row."""
    (state,) = row_mapping.TASKS.load("digest = %s", [UUID(digest)])
    return state


def reference(application: str = APPLICATION) -> StreamState:
    """Return what the pure fold makes of the log."""
    return empty(application).fold(store.read(application))


def failure_totals(state: StreamState) -> dict[str, list[Any]]:
    """Return the sums of the counters of all tasks of each pipeline, and the last failure."""
    found: dict[str, list[Any]] = {}
    for task in state.tasks.values():
        counts = [task.failed, *(getattr(task.counters, name) for name in COUNTS)]
        *sums, last = found.get(task.id.pipeline, [*([0] * len(counts)), None])
        times = filter(None, (last, task.counters.last_failure_timestamp))
        found[task.id.pipeline] = [*map(add, sums, counts), max(times, default=None)]
    return _below_limit(found)


def stored_failure_totals(application: str = APPLICATION) -> dict[str, list[Any]]:
    """Return the counters of pipelines with any."""
    rows = models.FailureTotal.objects.filter(application=application)
    names = ("failed", *COUNTS, LAST)
    return _below_limit({row.pipeline: [getattr(row, name) for name in names] for row in rows})


def _below_limit(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Columns are saturated at each fold, so numbers near their limit are equal."""
    limited = {
        name: [*(max(-(2**62), min(each, 2**62)) for each in counts), last]
        for name, (*counts, last) in found.items()
    }
    return {name: row for name, row in limited.items() if any(row[:-1])}


def assert_exact(application: str = APPLICATION) -> None:
    """The log has no gap and no batch twice; the views are what the pure fold gives."""
    whole = log(application)
    assert [each.sequence for each in whole] == list(range(1, len(whole) + 1))
    seen = models.BatchSeen.objects.filter(application=application)
    assert sum(each.count for each in seen) <= len(whole)
    assert rebuild.differences(application) == []
    pure = reference(application)
    assert stored_failure_totals(application) == failure_totals(pure)
    assert {
        each.id.digest: each for each in row_mapping.TASKS.load("application = %s", [application])
    } == (pure.tasks)
    assert row_mapping.APPLICATIONS.load("name = %s", [application]) == (
        [pure.application] if whole else []
    )


@contextmanager
def locked(application: str) -> Iterator[store.LogStream]:
    """Hold a stream's lock in a transaction, as an append does."""
    with transaction.atomic():
        yield store.lock(application)


def without_body(stored: StoredEvent) -> StoredEvent:
    """Return an event as a list of them has it."""
    return replace(stored, event=replace(stored.event, body=None))


def append_late(number: int) -> None:
    """Append as many events as if they had come 40 days ago, and as many as of now."""
    now = datetime.now(UTC)
    old = now - timedelta(days=40)
    store.ensure_partitions(old.date(), days=1)
    for moment in (old, now):
        append([histories.failed(each) for each in range(number)], received_at=moment)


@contextmanager
def retaining_before(word: str) -> Iterator[None]:
    """Let retention drop what is old just before the first statement with a word in it."""
    waiting = [None]

    def hook(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if waiting and word in sql:
            waiting.clear()
            retention.retain(days=30, replay_days=30)
        return execute(sql, *rest)

    with connection.execute_wrapper(hook):
        yield
    assert not waiting
