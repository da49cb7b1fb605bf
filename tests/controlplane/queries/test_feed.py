"""The feed: no event ever appears before a position already read, with any number of writers."""

from __future__ import annotations

import base64
import random
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection, transaction
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.controlplane import queries, store
from arrester.controlplane.queries import event_feed
from arrester.controlplane.store.column_values import MAX_BIGINT
from arrester.domain.errors import BeforeHistory, InvalidValue
from arrester.domain.events import Event, StoredEvent
from arrester.domain.wire import codec
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("fresh_database")
NAMES = ["alpha", "beta", "gamma"]
WRITERS = READERS = 4
TRANSACTIONS = 25


class Undone(Exception):
    """A writer rolls back."""


def some(count: int) -> list[Event]:
    return [histories.failed(number) for number in range(count)]


def append(name: str, count: int = 1) -> None:
    with streams.locked(name) as stream:
        batch = store.NewBatch(
            id=uuid4(), events=[histories.failed(number) for number in range(count)]
        )
        store.append(stream, [batch], received_at=datetime.now(UTC))


def write(seed: int) -> None:
    """Append in transactions of any length, some of which are rolled back."""
    chance = random.Random(seed)
    for _ in range(TRANSACTIONS):
        try:
            with transaction.atomic():
                append(chance.choice(NAMES), chance.randint(1, 4))
                time.sleep(chance.choice((0, 0, 0.001, 0.02)))
                if chance.random() < 0.2:
                    raise Undone
        except Undone:
            pass
    connection.close()


def follow(written: threading.Event) -> list[StoredEvent]:
    """Read the feed until nothing more can come."""
    seen: list[StoredEvent] = []
    cursor = None
    while True:
        over = written.is_set()
        found = queries.feed(cursor=cursor, limit=random.choice((1, 7, 100)))
        seen += found.events
        cursor = found.next
        if over and not found.events and not found.more:
            connection.close()
            return seen


def test_four_readers_beside_four_writers_miss_nothing() -> None:
    for name in NAMES:
        store.open_stream(name)
    written = threading.Event()
    with ThreadPoolExecutor(WRITERS + READERS) as pool:
        readers = [pool.submit(follow, written) for _ in range(READERS)]
        for writer in [pool.submit(write, seed) for seed in range(WRITERS)]:
            writer.result(120)
        written.set()
        seen = [reader.result(120) for reader in readers]
    logs = {name: streams.log(name) for name in NAMES}
    assert sum(map(len, logs.values())) > WRITERS * TRANSACTIONS
    for events in seen:
        for name, log in logs.items():
            assert [each for each in events if each.application == name] == log


def test_a_reader_by_time_would_miss_late_commits() -> None:
    for name in NAMES[:2]:
        store.open_stream(name)
    began, committed = threading.Event(), threading.Event()

    def slow() -> None:
        with transaction.atomic():
            append("alpha")
            began.set()
            assert committed.wait(PATIENCE_SECONDS)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(slow)
        assert began.wait(PATIENCE_SECONDS)
        append("beta")
        first = queries.feed()
        last = max(each.received_at for name in NAMES[:2] for each in store.read(name))
        committed.set()
        writing.result(30)

    late = [each for each in store.read("alpha") if each.received_at > last]
    assert late == []  # The reader by time has missed it,
    (event,) = queries.feed(cursor=first.next).events
    assert event.application == "alpha"  # and the cursor finds it.


def test_a_quiet_log_has_its_share_beside_a_noisy_one() -> None:
    streams.append(
        [histories.failed(number) for number in range(50)], received_at=datetime.now(UTC)
    )
    streams.append([histories.failed(1)], received_at=datetime.now(UTC), application="quiet")
    found = queries.feed(limit=10)
    assert [each.application for each in found.events].count("quiet") == 1
    assert found.more
    one = queries.feed(APPLICATION, cursor=found.next, limit=500)
    assert len(one.events) == 45
    assert not one.more
    assert queries.feed(cursor=one.next).events == ()


def test_a_cursor_of_dropped_or_missing_events_is_refused() -> None:
    now = datetime.now(UTC)
    streams.append(some(5), received_at=now)
    begin = queries.feed(limit=1)
    store.save_base(APPLICATION, 3, [], received_at=now - timedelta(days=1), now=now)
    with pytest.raises(BeforeHistory):
        queries.feed(cursor=begin.next)
    assert [each.sequence for each in queries.feed().events] == [4, 5]
    wrongs = [{store.read_stream(APPLICATION).id: 9}, {1: 2**63}]
    for wrong in (
        *map(event_feed.pack_cursor, wrongs),
        "what is that?",
        "e30x",
        bomb(),
        begin.next[:-2],
    ):
        with pytest.raises(InvalidValue, match="cursor"):
            queries.feed(cursor=wrong)


def bomb() -> str:
    """A cursor of a few thousand characters that unpacks to gigabytes."""
    return base64.urlsafe_b64encode(zlib.compress(bytes(2**24), 9)).decode()


@given(st.dictionaries(st.integers(1, 2**31), st.integers(0, MAX_BIGINT), max_size=50))
def test_a_cursor_contains_its_positions(given_positions: dict[int, int]) -> None:
    assert event_feed.unpack_cursor(event_feed.pack_cursor(given_positions)) == given_positions


def test_a_cursor_of_two_thousand_logs_fits_into_a_url() -> None:
    chance = random.Random(1)
    cursor = event_feed.pack_cursor({1 + id: chance.randrange(2_000_000) for id in range(2_000)})
    assert len(cursor) < 8_100  # nginx takes a line of 8 KB, uvicorn one of 16.


def test_events_dropped_while_the_feed_is_read_are_refused_not_skipped() -> None:
    streams.append_late(5)
    cursor = queries.feed(limit=2).next
    with streams.retaining_before("LATERAL"), pytest.raises(BeforeHistory):
        queries.feed(cursor=cursor)
    assert [each.sequence for each in queries.feed().events] == [6, 7, 8, 9, 10]


def test_a_page_of_the_feed_ends_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    (event,) = some(1)
    size = len(codec.encode_event(replace(event, body=None)))
    monkeypatch.setattr(store.log, "FOLLOWING_BYTES", 2 * size + 1)
    streams.append([event] * 7, received_at=datetime.now(UTC))
    numbers, found = [], queries.feed()
    while found.events:
        numbers.append(len(found.events))
        assert found.more == (sum(numbers) < 7)
        found = queries.feed(cursor=found.next)
    assert numbers == [3, 3, 1]
    # One event is always returned.
    monkeypatch.setattr(store.log, "FOLLOWING_BYTES", 1)
    assert [each.sequence for each in queries.feed(last=2).events] == [6]
