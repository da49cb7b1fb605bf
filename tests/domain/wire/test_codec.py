"""The wire format: batches are decoded unchanged, and invalid input is refused."""

from __future__ import annotations

import zlib
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.domain.errors import MalformedBatch
from arrester.domain.events import (
    CommandIssued,
    Event,
    InstanceStopping,
    RecordFailed,
    TaskPaused,
    ThreadStarted,
)
from arrester.domain.wire import codec, command_codec, received_batch
from arrester.domain.wire.bodies import decode_body
from arrester.domain.wire.codec import BATCH_MAX_BYTES, FORMAT
from arrester.domain.wire.event_count import BATCH_EVENTS_LIMIT
from arrester.domain.wire.failure_columns import FailedRecords, expand, to_columns
from tests import histories
from tests.histories import FAILURE, RUN


def packed(*events: bytes) -> bytes:
    return FORMAT + zlib.compress(msgspec.msgpack.encode([msgspec.Raw(event) for event in events]))


def unreadable(event: Event | bytes) -> str:
    """Return why an event, alone in its batch, is invalid."""
    raw = event if isinstance(event, bytes) else codec.encode_event(event)
    (read,) = received_batch.decode_batch(packed(raw))
    assert isinstance(read, received_batch.UnreadableEvent)
    assert read.raw == raw
    assert received_batch.decode_event(raw) == read
    return read.reason


@given(histories.floods)
def test_a_decoded_batch_equals_the_encoded_one(events: list[Event]) -> None:
    assert received_batch.decode_batch(codec.encode_batch(events)) == events


@given(histories.floods)
def test_heads_and_bodies_are_read_separately(events: list[Event]) -> None:
    packed = codec.encode_batch(events)
    heads = [replace(event, body=None) for event in events]
    found = received_batch.read_batch(packed)
    assert found is not None
    assert found[:2] == (list(to_columns(heads)), codec.pack(events))
    assert list(expand(codec.decode_elements(found[1].heads))) == heads
    assert codec.decode_events_at(found[1].heads, range(len(events))) == dict(enumerate(heads))
    bodies = [event.body for event in events]
    if found[1].bodies is None:
        assert not any(bodies)
    else:
        assert [decode_body(found[1].bodies, at) for at in range(len(events))] == bodies


def test_a_batch_with_bodies_inside_its_events_is_read() -> None:
    event = histories.failed(1)
    whole = packed(codec.encode_event(event))
    assert event.body is not None
    assert received_batch.decode_batch(whole) == [event]
    assert received_batch.read_batch(whole) is None


def test_an_invalid_event_is_stored_with_its_body() -> None:
    good, strange = (
        histories.failed(1),
        replace(histories.failed(2), schema_version=2),
    )
    first, second = received_batch.decode_batch(codec.encode_batch([good, strange]))
    assert first == good
    assert isinstance(second, received_batch.UnreadableEvent)
    assert received_batch.read_batch(codec.encode_batch([good, strange])) is None
    assert msgspec.msgpack.decode(second.raw, type=Event) == strange


def changed(event: Event, **changes: Any) -> Event:
    """Return a failed record with other values in its data or its failure."""
    data = event.data
    assert isinstance(data, RecordFailed)
    failure = {name: value for name, value in changes.items() if hasattr(data.failure, name)}
    rest = {name: value for name, value in changes.items() if name not in failure}
    return replace(event, data=replace(data, failure=replace(data.failure, **failure), **rest))


@pytest.mark.parametrize(
    "changes",
    [
        {"position": 2**63},
        {"fingerprint": "not a token"},
        {"key": 7},
        {"message": None},
        {"message": "m" * 20_001},
        {"frame": "f" * 20_001},
        {"exception_class": "C" * 20_001},
    ],
)
def test_an_invalid_event_among_columns_affects_no_other(changes: dict[str, Any]) -> None:
    events = [histories.failed(position) for position in range(6)]
    strange = changed(events[3], **changes)
    batch = codec.encode_batch([*events[:3], strange, *events[4:]])
    assert received_batch.read_batch(batch) is None
    *before, found, fifth, sixth = received_batch.decode_batch(batch)
    assert [*before, fifth, sixth] == [*events[:3], *events[4:]]
    assert isinstance(found, received_batch.UnreadableEvent)
    # With its body, to be read again once it is understood.
    kept, sent = msgspec.msgpack.decode(found.raw), msgspec.to_builtins(strange)
    assert (kept["data"], kept["body"]) == (sent["data"], sent["body"])


@pytest.mark.parametrize(
    "changes",
    [
        {"tasks": ["JFK"] * 5},
        {"frames": []},
        {"cause": [1] * 6},
        {"cause": [-1] * 6},
        {"kind": [1]},
        {"moments": [2**62] * 6},
        {"moments": ["now"] * 6},
        {"tasks": "AABBCC"},
        {"messages": "AABBCC"},
        {"frames": "F"},
        {"kinds": ["SCX"]},
        {"messages": {str(each): None for each in range(6)}},
        {"cause": [], "moments": [], "tasks": [], "positions": [], "keys": [], "messages": []},
    ],
)
def test_a_batch_with_invalid_columns_is_refused(changes: dict[str, Any]) -> None:
    events = [replace(histories.failed(position), body=None) for position in range(6)]
    (columns,) = to_columns(events)
    assert isinstance(columns, FailedRecords)
    raw = msgspec.msgpack.encode(columns._replace(**changes))
    batch = packed(raw, codec.encode_event(events[0]))
    assert received_batch.read_batch(batch) is None
    # The number of their bodies is unknown, so the events of the others are unknown too.
    with pytest.raises(MalformedBatch, match="columns"):
        received_batch.decode_batch(batch)


def test_columns_of_a_newer_agent_are_quarantined() -> None:
    (columns,) = to_columns(replace(histories.failed(each), body=None) for each in range(6))
    assert isinstance(columns, FailedRecords)
    batch = packed(msgspec.msgpack.encode([*columns, "a column that nobody knows yet"]))
    assert received_batch.read_batch(batch) is None
    with pytest.raises(MalformedBatch, match="columns"):
        received_batch.decode_batch(batch)


def test_a_batch_of_another_format_is_refused() -> None:
    batch = codec.encode_batch([histories.failed(1)])
    for other in (batch[1:], b"\x02" + batch[1:]):
        for read in (received_batch.read_batch, received_batch.decode_batch, codec.decode_elements):
            with pytest.raises(MalformedBatch, match="this version reads 01"):
                read(other)


def test_single_events_are_read() -> None:
    events = [replace(histories.failed(position), body=None) for position in range(6)]
    batch = packed(*map(codec.encode_event, events))
    assert received_batch.decode_batch(batch) == events
    assert codec.decode_elements(batch) == events
    assert codec.decode_events_at(batch, [5, 0]) == {0: events[0], 5: events[5]}


def test_truncated_bodies_are_refused() -> None:
    cut = codec.encode_batch([histories.failed(1)])[:-5]
    found = received_batch.read_batch(cut)
    assert found is not None
    heads, packed, _ = found
    assert heads == [replace(histories.failed(1), body=None)]
    assert packed.bodies is not None
    for read in (partial(decode_body, packed.bodies, 0), partial(received_batch.decode_batch, cut)):
        with pytest.raises(MalformedBatch, match="cut off"):
            read()


@given(st.lists(histories.any_event, max_size=5))
def test_the_bytes_of_a_batch_are_always_the_same(events: list[Event]) -> None:
    assert codec.encode_batch(events) == codec.encode_batch(list(events))


@given(histories.any_event)
def test_events_come_back_from_json(event: Event) -> None:
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_read(garbage: bytes) -> None:
    for data in (garbage, FORMAT + zlib.compress(garbage)):
        with suppress(MalformedBatch):
            received_batch.decode_batch(data)
    received_batch.decode_event(garbage)


@given(st.lists(histories.agent_events, min_size=1, max_size=3), st.data())
def test_a_batch_with_a_flipped_byte_is_refused_or_read(
    events: list[Event], data: st.DataObject
) -> None:
    raw = bytearray(msgspec.msgpack.encode(events))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(MalformedBatch):
        received_batch.decode_batch(FORMAT + zlib.compress(bytes(raw)))


def test_an_invalid_event_affects_no_other() -> None:
    good = histories.failed(1)
    plain: dict[str, Any] = msgspec.to_builtins(good)
    plain["data"]["type"] = "RecordVanished"
    strange = msgspec.msgpack.encode(plain)
    first, middle, last = received_batch.decode_batch(
        packed(codec.encode_event(good), strange, codec.encode_event(good))
    )
    assert first == last == good
    assert isinstance(middle, received_batch.UnreadableEvent)


@pytest.mark.parametrize("head", [7, "RecordFailed", [1], {1: 2}, None])
def test_a_head_that_is_not_a_map_affects_no_other(head: object) -> None:
    good = histories.failed(1)
    bare = codec.encode_event(replace(good, body=None))
    heads = packed(bare, msgspec.msgpack.encode(head), bare)
    bodies = zlib.compress(msgspec.msgpack.encode([good.body] * 3))
    first, strange, last = received_batch.decode_batch(heads + bodies)
    assert first == last == good
    assert isinstance(strange, received_batch.UnreadableEvent)
    assert strange.raw == msgspec.msgpack.encode(head)


@pytest.mark.parametrize("field", ["mood", "schema_versions"])
def test_an_event_with_an_unknown_field_is_quarantined(field: str) -> None:
    plain: dict[str, Any] = msgspec.to_builtins(histories.failed(1))
    plain[field] = 1
    assert field in unreadable(msgspec.msgpack.encode(plain))


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (histories.event(ThreadStarted(), run=None), "ThreadStarted without a run"),
        (
            histories.event(ThreadStarted(), instance=None),
            "ThreadStarted without an instance",
        ),
        (
            histories.event(InstanceStopping(reason="x"), instance=None, run=None),
            "InstanceStopping without an instance",
        ),
        (
            replace(histories.failed(1), run=replace(RUN, pipeline="De lays")),
            "pipeline: 'De lays'",
        ),
        (replace(histories.failed(1), run=replace(RUN, checkpoint="a\0")), "checkpoint 'a"),
        (
            replace(histories.failed(1), run=replace(RUN, checkpoint="c" * 201)),
            "checkpoint 'c",
        ),
        (replace(histories.failed(1), schema_version=2), "schema version 2"),
        (
            histories.event(
                TaskPaused(task="JFK", position=1, failure=replace(FAILURE, fingerprint=""))
            ),
            "fingerprint ''",
        ),
        (
            histories.event(
                TaskPaused(task="JFK", position=1, failure=replace(FAILURE, message="m" * 20_001))
            ),
            "a failure has a text of 20,001 characters; at most 20,000 are allowed",
        ),
    ],
)
def test_an_incomplete_event_is_quarantined(event: Event, reason: str) -> None:
    assert unreadable(event).startswith(reason)


def test_an_event_with_an_impossible_time_is_quarantined() -> None:
    plain: dict[str, Any] = msgspec.to_builtins(histories.failed(1))
    plain["occurred_at"] = "0001-01-01T00:00:00+14:00"
    assert "out of range" in unreadable(msgspec.msgpack.encode(plain))


def test_times_are_decoded_in_utc() -> None:
    east = datetime(2026, 11, 20, 13, tzinfo=timezone(timedelta(hours=1)))
    event = received_batch.decode_event(
        codec.encode_event(replace(histories.failed(1), occurred_at=east))
    )
    assert isinstance(event, Event)
    assert event.occurred_at == east
    assert event.occurred_at.tzinfo is UTC


@pytest.mark.parametrize(
    "batch",
    [b"", b"{}", zlib.compress(b""), zlib.compress(msgspec.msgpack.encode({})), b"\x78\x9c"],
)
def test_bytes_that_are_not_a_batch_are_refused(batch: bytes) -> None:
    for each in (batch, FORMAT + batch):
        with pytest.raises(MalformedBatch):
            received_batch.decode_batch(each)


def test_the_unpacked_size_of_a_batch_is_limited() -> None:
    with pytest.raises(MalformedBatch, match="unpacks to more"):
        received_batch.decode_batch(FORMAT + zlib.compress(b"\0" * (BATCH_MAX_BYTES + 1)))


_PLAIN = replace(histories.failed(1), body=None)
_OTHER = histories.event(ThreadStarted())


@pytest.mark.parametrize(
    "batch",
    [
        codec.encode_batch([_PLAIN] * (BATCH_EVENTS_LIMIT + 1)),
        codec.encode_batch([*[_PLAIN] * 6000, _OTHER, *[_PLAIN] * 6000]),
        # A third of a million, and each column is short.
        packed(*[msgspec.msgpack.encode(next(to_columns([_PLAIN] * 9000)))] * 37),
        codec.encode_batch([_PLAIN, _OTHER] * 6000),
        FORMAT + zlib.compress(msgspec.msgpack.encode([None] * (BATCH_EVENTS_LIMIT + 1))),
        FORMAT + zlib.compress(b"\xdd\0\x98\x96\x80" + bytes(10_000_000)),
    ],
    ids=["columns", "two columns", "many columns", "events", "small", "ten million"],
)
def test_a_batch_of_too_many_events_is_refused(batch: bytes) -> None:
    assert len(batch) < 200_000
    with pytest.raises(MalformedBatch, match="more than 10000 events"):
        if received_batch.read_batch(batch) is None:
            received_batch.decode_batch(batch)
    with pytest.raises(MalformedBatch, match="more than 10000 events"):
        received_batch.decode_batch(batch)


def test_a_batch_of_the_most_allowed_events_is_read() -> None:
    events = [_PLAIN] * BATCH_EVENTS_LIMIT
    found = received_batch.read_batch(codec.encode_batch(events))
    assert found is not None
    assert list(expand(found[0])) == events


def test_a_batch_of_too_many_bodies_is_refused() -> None:
    strange = packed(codec.encode_event(replace(_PLAIN, schema_version=2)))
    bodies = zlib.compress(msgspec.msgpack.encode([None] * (BATCH_EVENTS_LIMIT + 1)))
    with pytest.raises(MalformedBatch, match="more than 10000"):
        received_batch.decode_batch(strange + bodies)


def test_a_too_deeply_nested_record_is_quarantined() -> None:
    with pytest.raises(MalformedBatch):
        received_batch.decode_batch(packed(b"\x81\xa1a" * 100_000 + b"\x01"))
    assert isinstance(
        received_batch.decode_event(b"\x81\xa1a" * 100_000 + b"\x01"),
        received_batch.UnreadableEvent,
    )


@given(histories.issued_commands)
def test_a_decoded_command_equals_the_encoded_one(command: CommandIssued) -> None:
    assert command_codec.decode_command(command_codec.encode_command(command)) == command


@pytest.mark.parametrize("text", [None, "", "7", b"\xff", b"no uuid"])
def test_an_invalid_uuid_is_refused_with_its_name(text: bytes | str | None) -> None:
    with pytest.raises(MalformedBatch, match="batch"):
        codec.parse_uuid(text, "batch")
