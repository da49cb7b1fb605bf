"""Quarantine: invalid entries are stored with their bytes, block nothing, and can be requeued."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, models, queries, store
from arrester.controlplane.actions import quarantine
from arrester.controlplane.history import retention
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.store import copy_rows, stream_entry
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.events import (
    ApplicationLatched,
    ApplicationOpened,
    Event,
    QuarantineDismissed,
    QuarantineRequeued,
    RecordFailed,
    ResumeHow,
    StoredEvent,
    TaskResumed,
    ThreadStarted,
)
from arrester.domain.identity import redis_keys, uuids
from arrester.domain.state.states import ApplicationStatus
from arrester.domain.wire import codec
from arrester.domain.wire.codec import BATCH_MAX_BYTES, FORMAT
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION

pytestmark = pytest.mark.usefixtures("fresh_database")
GOOD: dict[str, str | bytes] = {"batch": str(uuid4()), "spool": str(streams.SPOOL)}


@pytest.mark.parametrize(
    "fields",
    [
        {"hello": "world"},
        GOOD | {"events": b"not packed"},
        GOOD | {"events": b""},
        {"batch": "7", "spool": str(streams.SPOOL), "events": codec.encode_batch([])},
        {"batch": str(uuid4()), "events": codec.encode_batch([])},
        {"batch": str(uuid4()), "spool": b"\xff\x00", "events": codec.encode_batch([])},
    ],
    ids=["foreign", "garbage", "empty", "wrong batch", "no spool", "wrong spool"],
)
def test_invalid_entries_are_quarantined(redis: Redis, fields: dict[str, str | bytes]) -> None:
    streams.send(redis, [histories.failed(1)])
    streams.put(redis, fields)
    streams.send(redis, [histories.failed(2)])

    fold_stream.fold_stream(APPLICATION)

    assert len(streams.log()) == 2
    assert redis.xlen(redis_keys.events(APPLICATION)) == 0
    (entry,) = queries.quarantine(APPLICATION).rows
    assert entry.index is None
    raw = msgspec.msgpack.decode(entry.raw, type=dict[bytes, bytes])
    assert raw == {
        name.encode(): value if isinstance(value, bytes) else value.encode()
        for name, value in fields.items()
    }
    assert queries.lag(APPLICATION).quarantined == 1


def test_a_garbled_batch_is_confirmed_so_that_its_sender_can_delete_it(redis: Redis) -> None:
    batch = uuid4()
    for _ in range(2):
        streams.put(redis, streams.fields(batch, b"garbled"))
        fold_stream.fold_stream(APPLICATION)

    assert streams.confirmed(redis) == {batch}
    assert len(queries.quarantine().rows) == 1


def newer(event: Event) -> bytes:
    """Return `event` as a newer agent may encode it: with an unknown field."""
    plain: dict[str, Any] = msgspec.to_builtins(event, enc_hook=str)
    plain["data"]["mood"] = "bad"
    return msgspec.msgpack.encode(plain)


def packed(*events: bytes) -> bytes:
    return FORMAT + zlib.compress(msgspec.msgpack.encode([msgspec.Raw(event) for event in events]))


def test_an_invalid_event_does_not_affect_other_events_of_its_batch(redis: Redis) -> None:
    strange = newer(histories.failed(2))
    first, last = (codec.encode_event(histories.failed(position)) for position in (1, 3))
    batch = uuid4()
    streams.put(redis, streams.fields(batch, packed(first, strange, last)))

    fold_stream.fold_stream(APPLICATION)

    assert [each.event.data.position for each in streams.log()] == [1, 3]  # type: ignore[union-attr]  # all RecordFailed
    (entry,) = queries.quarantine().rows
    assert (entry.batch, entry.index, entry.raw) == (batch, 1, strange)
    assert "mood" in entry.reason
    streams.assert_exact()


def test_bodies_are_found_if_a_part_of_their_batch_is_quarantined(redis: Redis) -> None:
    opened = histories.event(ApplicationOpened(), run=None)
    first, second, third = (
        histories.failed(1),
        histories.event(ThreadStarted()),
        histories.failed(3),
    )
    streams.send(redis, [first, opened, second, third])
    streams.send(redis, [second])
    streams.send(redis, [third])
    fold_stream.fold_stream(APPLICATION)

    assert streams.events() == [first, second, third, second, third]
    assert models.Batch.objects.exclude(bodies=None).count() == 2


def test_an_event_whose_batch_has_too_few_bodies_has_none(redis: Redis) -> None:
    events = [histories.failed(position) for position in (1, 2)]
    heads = packed(*(codec.encode_event(replace(each, body=None)) for each in events))
    bodies = zlib.compress(msgspec.msgpack.encode([events[0].body]))
    streams.put(redis, streams.fields(uuid4(), heads + bodies))
    fold_stream.fold_stream(APPLICATION)
    assert [each.body for each in streams.events()] == [events[0].body, None]


def test_a_batch_with_an_impossible_year_is_folded_and_blocks_no_other(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    beyond = UUID(int=(2**48 - 1) << 80 | 7 << 76 | 2 << 62)
    streams.send(redis, [histories.failed(1)], batch=beyond)
    streams.send(redis, [histories.failed(2)])
    fold_stream.fold_stream(APPLICATION)
    assert len(streams.log()) == 2
    assert queries.quarantine().rows == ()
    # A value that breaks the fold is checked once; then it is quarantined, with any id.
    moments = uuids.uuid7(datetime(2020, 1, 1, tzinfo=UTC))
    streams.send(redis, [histories.failed(3)], batch=moments)
    with monkeypatch.context() as patch:
        patch.setattr(uuids, "moment", int)
        fold_stream.fold_stream(APPLICATION)
    (entry,) = queries.quarantine().rows
    assert "breaks the fold" in entry.reason
    assert redis.xlen(redis_keys.events(APPLICATION)) == 0


def test_an_agent_cannot_send_events_of_the_server(redis: Redis) -> None:
    streams.send(redis, [histories.event(ApplicationOpened(), run=None)])
    fold_stream.fold_stream(APPLICATION)

    assert streams.log() == []
    (entry,) = queries.quarantine().rows
    assert entry.reason == "only the server may report ApplicationOpened"


@pytest.mark.parametrize("error", [ValueError, MemoryError])
def test_a_value_that_breaks_the_fold_affects_only_its_own_entry(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def break_on_two(
        stream: int, day: date, stored: list[StoredEvent]
    ) -> Iterator[copy_rows.LogRow]:
        if any(getattr(each.event.data, "position", None) == 2 for each in stored):
            raise error("two")
        return rows_of_events(stream, day, stored)

    rows_of_events = copy_rows.of_events
    for position in (1, 2, 3):
        streams.send(redis, [histories.failed(position)])
    with monkeypatch.context() as patch:
        patch.setattr(copy_rows, "of_events", break_on_two)
        fold_stream.fold_stream(APPLICATION)

    assert [each.event.data.position for each in streams.log()] == [1, 3]  # type: ignore[union-attr]  # all RecordFailed
    (entry,) = queries.quarantine().rows
    assert "two" in entry.reason

    # The cause is repaired: the entry is requeued, after newer ones.
    assert actions.requeue(APPLICATION, actor="ana") == actions.Requeued(requeued=1, invalid=0)
    *failed, act = streams.log()
    assert [each.event.data.position for each in failed] == [1, 3, 2]  # type: ignore[union-attr]  # all RecordFailed
    assert act.event.data == QuarantineRequeued(count=1, actor="ana")
    assert streams.events()[-2].body == histories.failed(2).body
    streams.assert_exact()
    assert actions.requeue(APPLICATION, actor="ana") == actions.Requeued(requeued=0, invalid=0)
    assert queries.lag(APPLICATION).quarantined == 0


def test_requeue_leaves_entries_that_are_still_invalid(redis: Redis) -> None:
    streams.put(redis, {"hello": "world"})
    fold_stream.fold_stream(APPLICATION)
    out = StringIO()

    call_command("requeue", stdout=out)

    assert out.getvalue() == "flights: 0 requeued, 1 still invalid\n"
    assert queries.quarantine().rows[0].requeued_at is None


def test_entries_can_be_dismissed(redis: Redis) -> None:
    for batch in (uuid4(), uuid4()):
        streams.put(redis, streams.fields(batch, b"garbled"))
    fold_stream.fold_stream(APPLICATION)
    assert queries.lag(APPLICATION).quarantined == 2
    out = StringIO()
    with pytest.raises(CommandError, match="--dismiss needs applications"):
        call_command("requeue", "--dismiss")
    call_command("requeue", "--dismiss", "--batch", str(batch), stdout=out)
    assert queries.lag(APPLICATION).quarantined == 1
    with pytest.raises(CommandError, match=f"--batch {batch}: no quarantined entries"):
        call_command("requeue", "--batch", str(batch), stdout=StringIO())
    call_command("requeue", APPLICATION, "--dismiss", stdout=out)
    assert out.getvalue() == "flights: 1 dismissed\n" * 2
    assert queries.lag(APPLICATION).quarantined == 0
    assert all(each.dismissed_at for each in queries.quarantine().rows)
    assert [each.event.data for each in streams.log()] == [
        QuarantineDismissed(count=1, actor="arrester")
    ] * 2
    assert actions.requeue(APPLICATION, actor="ana") == actions.Requeued(requeued=0, invalid=0)


def test_one_entry_is_requeued_or_dismissed_once(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for name in ("SERVER_ONLY", "CHECKED_EVENTS"):
            patch.setattr(stream_entry, name, frozenset({RecordFailed}))
        streams.send(redis, [histories.failed(1)])
        streams.put(redis, {"hello": "world"})
        fold_stream.fold_stream(APPLICATION)
    garbled, failed = queries.quarantine().rows
    act, other = uuid4(), uuid4()
    assert not actions.requeue_one(garbled.id, actor="ana", id=act)
    for _ in range(2):
        actions.requeue_one(failed.id, actor="ana", id=act)
        actions.dismiss_one(garbled.id, actor="ben", reason="a foreign client", id=other)
    assert [each.event.data for each in streams.log()[1:]] == [
        QuarantineRequeued(count=1, actor="ana", entry=failed.entry),
        QuarantineDismissed(count=1, actor="ben", reason="a foreign client", entry=garbled.entry),
    ]
    with pytest.raises(InvalidValue, match="reason"):
        actions.dismiss_one(failed.id, actor="ben", reason=" ", id=uuid4())
    with pytest.raises(NotFound):
        actions.requeue_one(4711, actor="ben", id=uuid4())


def test_many_entries_are_requeued_in_portions(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for name in ("SERVER_ONLY", "CHECKED_EVENTS"):
            patch.setattr(stream_entry, name, frozenset({RecordFailed}))
        for position in range(5):
            streams.send(redis, [histories.failed(position)])
        fold_stream.fold_stream(APPLICATION)
    monkeypatch.setattr(quarantine, "PORTION", 2)
    mark = store.mark_requeued

    def die_in_the_second(some: Sequence[int], *, at: datetime) -> None:
        if models.Quarantine.objects.exclude(requeued_at=None).exists():
            raise OSError("the disk is full")
        mark(some, at=at)

    with monkeypatch.context() as patch:
        patch.setattr(store, "mark_requeued", die_in_the_second)
        with pytest.raises(OSError, match="full"):
            actions.requeue(APPLICATION, actor="ana")
    assert len(streams.log()) == 3
    # A fold runs in between, and a repeated requeue continues where it ended.
    streams.send(redis, [histories.failed(5)])
    fold_stream.fold_stream(APPLICATION)
    assert actions.requeue(APPLICATION, actor="ben") == actions.Requeued(requeued=3, invalid=0)
    logged = [each.event.data for each in streams.log()]
    assert [each.position for each in logged if isinstance(each, RecordFailed)] == [
        0,
        1,
        5,
        2,
        3,
        4,
    ]
    assert [each for each in logged if isinstance(each, QuarantineRequeued)] == [
        QuarantineRequeued(count=2, actor="ana"),
        QuarantineRequeued(count=2, actor="ben"),
        QuarantineRequeued(count=1, actor="ben"),
    ]
    streams.assert_exact()


def test_a_batch_that_unpacks_to_too_many_bytes_is_quarantined(redis: Redis) -> None:
    bomb = FORMAT + zlib.compress(b"\0" * (BATCH_MAX_BYTES + 1))
    streams.put(redis, GOOD | {"events": bomb})
    fold_stream.fold_stream(APPLICATION)
    assert "unpacks to more than" in queries.quarantine().rows[0].reason


def test_a_batch_of_too_many_events_is_quarantined(redis: Redis) -> None:
    event = replace(histories.failed(1), body=None)
    flood = codec.encode_batch([event] * 100_000)
    assert len(flood) < 30_000
    batch = uuid4()
    streams.put(redis, streams.fields(batch, flood))
    streams.send(redis, [event])
    fold_stream.fold_stream(APPLICATION)
    (entry,) = queries.quarantine().rows
    assert entry.reason == "a batch of more than 10000 events"
    assert msgspec.msgpack.decode(entry.raw, type=dict[bytes, bytes])[b"events"] == flood
    assert streams.events() == [event]
    assert batch in streams.confirmed(redis)


def test_events_of_people_from_an_agent_are_quarantined(redis: Redis) -> None:
    latched = ApplicationLatched(reason="because", actor="ceo")
    resumed = TaskResumed(task="JFK", how=ResumeHow.RETRY, actor="ana")
    sent = [
        histories.event(latched, run=None),
        replace(histories.event(resumed), instance=None),
        # By hand, at the driver: it is logged as an event of the instance.
        histories.event(resumed),
        # The effect of a command is reported with the command.
        replace(histories.event(resumed), instance=None, caused_by=uuid4()),
    ]
    streams.send(redis, sent)
    fold_stream.fold_stream(APPLICATION)
    assert [each.event.type for each in streams.log()] == ["TaskResumed"] * 2
    reasons = [each.reason for each in queries.quarantine(APPLICATION).rows]
    assert reasons == [
        "TaskResumed names a person, and no instance that reports it",
        "only the server may report ApplicationLatched",
    ]
    (act,) = queries.audit(queries.AuditFilter()).rows
    assert act.event is not None and act.event.event.instance is not None
    assert queries.application(APPLICATION).state.status is ApplicationStatus.OPEN


def test_counting_waiting_entries_reads_no_handled_ones() -> None:
    now = datetime.now(UTC)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO quarantine"
            " (application, entry, reason, raw, digest, received_at, requeued_at, too_old)"
            " SELECT 'flights', number::text, 'garbled', '', '',"
            " now() - interval '40 days', CASE WHEN number % 2 = 0 THEN now() END, number > 9"
            " FROM generate_series(1, 5000) AS number"
        )
        cursor.execute("ANALYZE quarantine")
    with CaptureQueriesContext(connection) as captured:
        counted = store.count_waiting_entries(old_since=now - timedelta(days=1))
    assert counted == {"flights": store.WaitingEntries(invalid=5, too_old=0)}
    (query,) = captured.captured_queries
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {query['sql']}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "not_understood" in plan and "too_old_lately" in plan
    assert "Seq Scan on quarantine" not in plan


def quarantined(number: int, raw: bytes, **values: Any) -> store.QuarantinedEntry:
    return store.QuarantinedEntry(
        application=APPLICATION,
        entry=f"{number}-0",
        batch=None,
        index=None,
        reason="test",
        raw=raw,
        **values,
    )


def add(*entries: store.QuarantinedEntry) -> None:
    store.add_to_quarantine(entries, received_at=datetime.now(UTC))


def shown() -> list[str]:
    return [each.entry for each in queries.quarantine(APPLICATION).rows]


@pytest.mark.parametrize("limit", ["ENTRIES", "BYTES"])
def test_the_oldest_entries_beyond_a_limit_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(store.quarantine, limit, 3 if limit == "ENTRIES" else 35)
    store.open_stream(APPLICATION)
    for number in range(4):
        add(quarantined(number, bytes(10)))
    assert shown() == ["3-0", "2-0", "1-0"]
    add(quarantined(4, bytes(10)), quarantined(5, bytes(10)))
    assert shown() == ["5-0", "4-0", "3-0"]
    (reached,) = queries.limits_reached(APPLICATION)
    assert (reached.limit, reached.count) == (store.Limit.QUARANTINE, 3)
    # A handled one is dropped first, and is not counted.
    actions.dismiss_one(
        queries.quarantine(APPLICATION).rows[0].id, actor="ana", reason="old", id=uuid4()
    )
    add(quarantined(6, bytes(10)))
    assert shown() == ["6-0", "4-0", "3-0"]
    assert queries.limits_reached(APPLICATION) == (reached,)


def test_a_large_entry_is_stored_in_part_and_cannot_be_requeued() -> None:
    store.open_stream(APPLICATION)
    size = store.quarantine.ENTRY_BYTES + 1
    add(quarantined(1, bytes(size)))
    (entry,) = queries.quarantine(APPLICATION).rows
    assert (len(entry.raw), entry.cut_from) == (size - 1, size)
    assert actions.requeue(APPLICATION, actor="ana") == actions.Requeued(requeued=0, invalid=0)
    with pytest.raises(InvalidValue, match=f"1,048,576 bytes are of {size:,}"):
        actions.requeue_one(entry.id, actor="ana", id=uuid4())
    assert actions.dismiss(APPLICATION, actor="ana") == 1


def test_a_page_of_large_entries_ends_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.quarantine, "PAGE_BYTES", 25)
    store.open_stream(APPLICATION)
    add(*(quarantined(number, bytes(10)) for number in range(5)))
    found, cursor = [], None
    while True:
        page = queries.quarantine(APPLICATION, cursor=cursor)
        found.append([each.entry for each in page.rows])
        cursor = page.next
        if cursor is None:
            break
    assert found == [["4-0", "3-0"], ["2-0", "1-0"], ["0-0"]]


def test_retention_drops_and_counts_entries_that_still_wait() -> None:
    store.open_stream(APPLICATION)
    now = datetime.now(UTC)
    store.add_to_quarantine([quarantined(1, b"x")], received_at=now - timedelta(days=31))
    store.add_to_quarantine([quarantined(2, b"x")], received_at=now - timedelta(days=29))
    retention.retain(days=30, replay_days=30)
    assert shown() == ["2-0"]
    (reached,) = queries.limits_reached(APPLICATION)
    assert reached.count == 1
