"""The fold of agents' batches: each event once and in order, after repetition or loss."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import embedded, models, store
from arrester.controlplane.history import rebuild
from arrester.controlplane.ingest import fold_entries, fold_stream
from arrester.controlplane.ingest.fold_entries import Folded, StreamAdvanced, fold
from arrester.controlplane.redis import redis_client
from arrester.controlplane.store import prepared_statements
from arrester.controlplane.store.stream_entry import DecodedEntry, read_entry
from arrester.controlplane.views import projections
from arrester.domain.events import Event, FailuresCounted, FinalResponse
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import TaskStatus
from arrester.domain.state.stream_state import StreamState
from arrester.domain.wire import codec
from arrester.domain.wire.failure_columns import Stored
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, JFK
from tests.patience import PATIENCE_SECONDS


@contextmanager
def held_by_another() -> Iterator[None]:
    """Hold the stream's advisory lock from another connection."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store.try_fold_lock(APPLICATION) as acquired:
            assert acquired
            taken.set()
            done.wait(PATIENCE_SECONDS)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        assert taken.wait(PATIENCE_SECONDS)
        yield
        done.set()
        holding.result(30)


pytestmark = pytest.mark.usefixtures("fresh_database")


def test_events_arrive_in_the_log_and_in_the_views(redis: Redis) -> None:
    events = [*histories.started(), *histories.paused()]
    batch = streams.send(redis, events)

    done = fold_stream.fold_stream(APPLICATION)

    assert done == fold_stream.StreamFold(events=len(events))
    assert streams.events() == events
    state = streams.task(JFK.digest)
    assert (state.status, state.position, state.held) == (TaskStatus.PAUSED, 7, 3)
    assert streams.confirmed(redis) == {batch}
    assert redis.xlen(redis_keys.events(APPLICATION)) == 0
    streams.assert_exact()


def updates() -> Counter[tuple[str, str]]:
    """Return the updates of each table so far, also those of earlier tests: all, and within
    pages."""
    names = ["error_group", "hour_count", "minute_count", "task"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables"
            " WHERE relname = ANY(%s)",
            [names],
        )
        found = cursor.fetchall()
    counts: Counter[tuple[str, str]] = Counter()
    for name, every, within_page in found:
        counts += Counter({(name, "all"): every, (name, "within a page"): within_page})
    return counts


def test_counts_of_a_failing_group_are_updated_within_their_pages(redis: Redis) -> None:
    before = updates()
    for number in range(6):
        again = histories.failed(number)
        moment = again.occurred_at.replace(minute=0, microsecond=number)
        streams.send(redis, [replace(again, occurred_at=moment)])
        fold_stream.fold_stream(APPLICATION)
    # Changed in five folds, and no entry of an index was written for it.
    assert updates() - before == {
        (table, which): 5
        for table in ("error_group", "hour_count", "minute_count", "task")
        for which in ("all", "within a page")
    }


def test_a_batch_delivered_twice_counts_once(redis: Redis) -> None:
    batch = streams.send(redis, [histories.failed(1)])
    streams.send(redis, [histories.failed(1)], batch=batch)
    fold_stream.fold_stream(APPLICATION)
    streams.send(redis, [histories.failed(1)], batch=batch)
    fold_stream.fold_stream(APPLICATION)

    assert len(streams.log()) == 1
    assert streams.confirmed(redis) == {batch}
    assert redis.xlen(redis_keys.events(APPLICATION)) == 0


def test_an_unconfirmed_commit_is_confirmed_by_the_next_fold(redis: Redis) -> None:
    batch = streams.send(redis, [histories.failed(1)])
    ((id, fields),) = redis_client.entries(redis, redis_keys.events(APPLICATION))
    fold_stream.fold_stream(APPLICATION)
    # As after a kill between the commit and the confirmation.
    redis.delete(redis_keys.confirmed(APPLICATION, streams.SPOOL))
    redis.delete(redis_keys.events(APPLICATION))
    streams.put(redis, {name.decode(): value for name, value in fields.items()}, id=id)

    fold_stream.fold_stream(APPLICATION)

    assert len(streams.log()) == 1
    assert streams.confirmed(redis) == {batch}
    assert redis.xlen(redis_keys.events(APPLICATION)) == 0
    assert store.read_stream(APPLICATION).generation == 0


def test_batches_keep_the_order_of_the_stream(redis: Redis) -> None:
    for position in range(1500):
        streams.send(redis, [histories.failed(position)])

    fold_stream.fold_stream(APPLICATION, budget_seconds=60)

    positions = [each.event.data.position for each in streams.log()]  # type: ignore[union-attr]  # all RecordFailed
    assert positions == list(range(1500))
    streams.assert_exact()


def test_an_emptied_redis_begins_a_new_generation(redis: Redis) -> None:
    first = streams.send(redis, [histories.failed(1)])
    fold_stream.fold_stream(APPLICATION)
    redis.flushall()

    fold_stream.fold_stream(APPLICATION)
    assert store.read_stream(APPLICATION).generation == 1
    # The agent sends again what it has not seen confirmed, then goes on.
    streams.send(redis, [histories.failed(1)], batch=first)
    second = streams.send(redis, [histories.failed(2)])
    fold_stream.fold_stream(APPLICATION)

    assert len(streams.log()) == 2
    assert streams.confirmed(redis) == {first, second}
    streams.assert_exact()


def test_entries_of_a_redis_whose_clock_went_back_are_folded(redis: Redis) -> None:
    streams.send(redis, [histories.failed(1)])
    fold_stream.fold_stream(APPLICATION)
    redis.delete(redis_keys.events(APPLICATION))
    body = codec.encode_batch([histories.failed(2)])
    streams.put(redis, streams.fields(uuid4(), body), id="5-1")

    fold_stream.fold_stream(APPLICATION)

    stream = store.read_stream(APPLICATION)
    assert (stream.generation, stream.cursor, stream.sequence) == (1, "5-1", 2)


def test_an_entry_before_the_cursor_is_folded(redis: Redis) -> None:
    streams.send(redis, [histories.failed(1)])
    fold_stream.fold_stream(APPLICATION)
    cursor = store.read_stream(APPLICATION).cursor
    # A new stream that has grown past our cursor already, and has an older entry too.
    redis.delete(redis_keys.events(APPLICATION))
    for id in ("5-1", f"{int(cursor.partition('-')[0]) + 1000}-0"):
        body = codec.encode_batch([histories.failed(2)])
        streams.put(redis, streams.fields(uuid4(), body), id=id)

    fold_stream.fold_stream(APPLICATION)

    assert store.read_stream(APPLICATION).sequence == 3


def test_an_entry_with_the_id_of_a_folded_one_is_folded_after_a_loss(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids are milliseconds and a number: a Redis emptied within one millisecond repeats them."""
    before, after = ([histories.failed(each)] for each in range(2))
    again = [(uuid4(), before), (uuid4(), after)]

    def flushall(*given: Any) -> Folded:
        folded = fold(*given)
        if again:
            redis.flushall()
            # Another order than before: only what the first entry had is known to the log.
            for number, (batch, events) in enumerate(reversed(again)):
                fields = streams.fields(batch, codec.encode_batch(events))
                streams.put(redis, fields, id=f"7-{number}")
            again.clear()
        return folded

    streams.put(redis, streams.fields(again[0][0], codec.encode_batch(before)), id="7-0")
    monkeypatch.setattr(fold_stream, "fold", flushall)
    fold_stream.fold_stream(APPLICATION)

    assert streams.events() == before + after
    assert redis.xlen(redis_keys.events(APPLICATION)) == 0


@pytest.mark.parametrize("twice", ["x", "batch"])
def test_an_entry_with_a_repeated_field_is_deleted_from_the_stream(
    redis: Redis, twice: str
) -> None:
    xadd = "redis.call('XADD', KEYS[1], '*', ARGV[1], 'one', ARGV[1], 'two')"
    redis.eval(xadd, 1, redis_keys.events(APPLICATION), twice)
    batch = streams.send(redis, [histories.failed(1)])

    assert fold_stream.fold_stream(APPLICATION) == fold_stream.StreamFold(events=1)
    assert redis.xlen(redis_keys.events(APPLICATION)) == 0
    assert streams.confirmed(redis) == {batch}


def test_a_second_worker_skips_a_busy_stream(redis: Redis) -> None:
    store.open_stream(APPLICATION)
    streams.send(redis, [histories.failed(1)])
    with held_by_another():
        assert fold_stream.fold_stream(APPLICATION).busy
    assert fold_stream.fold_stream(APPLICATION) == fold_stream.StreamFold(events=1)


def test_a_locked_stream_is_left_for_its_next_turn(
    redis: Redis, fresh_database: embedded.Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that waits for it would fold no other application."""
    monkeypatch.setattr(fold_stream, "LOCK_SECONDS", 0.05)
    store.open_stream(APPLICATION)
    streams.send(redis, [histories.failed(1)])
    with psycopg.connect(fresh_database.database) as other:
        other.execute("SELECT FROM stream FOR UPDATE")
        assert fold_stream.fold_stream(APPLICATION) == fold_stream.StreamFold(more=True)
    assert fold_stream.fold_stream(APPLICATION) == fold_stream.StreamFold(events=1)
    streams.assert_exact()


def test_a_slow_statement_is_repeated_for_a_part_of_the_entries(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fold_entries, "STATEMENT_SECONDS", 0.5)
    write = projections.write_states

    def write_slowly(state: StreamState, stored: Sequence[Stored], *before: Any) -> None:
        with prepared_statements.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(%s)", [0.2 * len(stored)])
        write(state, stored, *before)

    monkeypatch.setattr(projections, "write_states", write_slowly)
    for number in range(4):
        streams.send(redis, [histories.failed(number)])
    assert fold_stream.fold_stream(APPLICATION, budget_seconds=PATIENCE_SECONDS).events == 4
    assert "folding 4 entries is slow: in two parts" in caplog.text
    streams.assert_exact()


def test_a_slow_fold_is_followed_by_smaller_ones(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def folded(seen: store.LogStream, entries: Sequence[DecodedEntry]) -> Folded:
        sizes.append(len(entries))
        return fold(seen, entries)

    monkeypatch.setattr(fold_stream, "fold", folded)
    monkeypatch.setattr(fold_stream, "FIRST_ENTRIES", 8)
    monkeypatch.setattr(fold_stream, "FOLD_SECONDS", 1e-9)
    for number in range(11):
        streams.send(redis, [histories.failed(number)])
    assert fold_stream.fold_stream(APPLICATION, budget_seconds=PATIENCE_SECONDS).events == 11
    assert sizes == [8, 1, 1, 1]


@pytest.mark.parametrize("by", ["another fold", "a new generation"])
def test_entries_read_before_the_stream_advanced_are_not_folded(redis: Redis, by: str) -> None:
    streams.send(redis, [histories.failed(1)])
    fold_stream.fold_stream(APPLICATION)
    streams.send(redis, [histories.failed(2)])
    seen = store.read_stream(APPLICATION)
    found = redis_client.entries(redis, redis_keys.events(APPLICATION))
    read = [read_entry(APPLICATION, id, fields) for id, fields in found]
    if by == "another fold":
        fold(seen, read)
    else:
        with streams.locked(APPLICATION) as stream:
            store.reset_cursor(stream)
    now, log = store.read_stream(APPLICATION), streams.log()

    with pytest.raises(StreamAdvanced):
        fold(seen, read)

    assert store.read_stream(APPLICATION) == now
    assert streams.log() == log
    # What it has read was not lost: the fold reads again.
    fold_stream.fold_stream(APPLICATION)
    assert len(streams.log()) == 2
    streams.assert_exact()


def test_a_fold_keeps_what_it_has_read_and_reports_remaining_entries_at_its_deadline(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_stream, "FIRST_ENTRIES", 1)
    monkeypatch.setattr(fold_stream, "MAX_ENTRIES", 1)
    for number in (1, 2):
        streams.send(redis, [histories.failed(number)])
    # A read may take longer than the time: each fold has to fold something nevertheless.
    assert fold_stream.fold_stream(APPLICATION, budget_seconds=0) == fold_stream.StreamFold(
        events=1, more=True
    )
    assert fold_stream.fold_stream(APPLICATION, budget_seconds=0).events == 1


def test_a_count_above_the_column_limit_is_folded(redis: Redis) -> None:
    most = 2**63 - 1
    huge = FailuresCounted(
        task="JFK",
        failure=histories.FAILURE,
        response=FinalResponse.CONTINUE,
        count=most,
        first_position=0,
        last_position=most,
    )
    streams.send(redis, [histories.event(huge), histories.event(huge)])
    fold_stream.fold_stream(APPLICATION)
    streams.send(redis, [histories.event(huge)])
    fold_stream.fold_stream(APPLICATION)

    assert streams.task(JFK.digest).failed == 3 * most
    assert models.Task.objects.get().failed == most
    assert models.MinuteCount.objects.get().count == most
    streams.assert_exact()


def is_believed(event: Event) -> bool:
    """Return whether an agent may send the event."""
    fields = streams.fields(uuid4(), codec.encode_batch([event]))
    packed = {name.encode(): str(value).encode() for name, value in fields.items()}
    packed[b"events"] = codec.encode_batch([event])
    return bool(read_entry(APPLICATION, "1-0", packed).events)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.lists(histories.agent_events, max_size=8), max_size=6), st.randoms())
def test_live_rows_equal_rebuilt_rows_and_the_pure_fold(
    redis: Redis, batches: list[list[Event]], random: Random
) -> None:
    application = f"a{uuid4().hex}"
    sent = [(uuid4(), events) for events in batches]
    for batch, events in sent:
        streams.send(redis, events, batch=batch, application=application)
        if random.random() < 0.3:
            streams.send(redis, events, batch=batch, application=application)
        if random.random() < 0.5:
            fold_stream.fold_stream(application)
    fold_stream.fold_stream(application)

    # The server's own events about it are in between.
    logged = [
        store.read_one(application, each.sequence).event
        for each in streams.log(application)
        if each.batch in dict(sent)
    ]
    assert logged == [event for _, events in sent for event in events if is_believed(event)]
    streams.assert_exact(application)
    before = rebuild.live_rows(application)
    rebuild.rebuild(application)
    assert rebuild.live_rows(application) == before
