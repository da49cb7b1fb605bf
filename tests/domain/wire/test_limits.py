"""Limits of what agents send: what exceeds one is refused with the limit, and the rest is read."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from arrester.domain.errors import MalformedBatch
from arrester.domain.events import (
    Body,
    DeadLetterIds,
    Event,
    EventData,
    FlowMeasured,
    InstanceStarted,
    InstanceStopping,
    RecordsRedriven,
    StateReported,
    TaskPaused,
    TaskReported,
)
from arrester.domain.wire import bodies, codec, limits, received_batch
from tests import histories
from tests.histories import FAILURE

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
GOOD = histories.failed(1)


def lists(heads: list[Any], records: list[Any] | None = None) -> bytes:
    """Return a batch as any sender may pack it."""
    packed = [heads] if records is None else [heads, records]
    return codec.FORMAT + b"".join(zlib.compress(msgspec.msgpack.encode(each)) for each in packed)


def reason(event: Event | dict[str, Any]) -> str:
    """Return why an event is refused, between two others that are read."""
    batch = lists([GOOD, event, GOOD])
    assert received_batch.read_batch(batch) is None
    first, refused, last = received_batch.decode_batch(batch)
    assert (first, last) == (GOOD, GOOD)
    assert isinstance(refused, received_batch.UnreadableEvent)
    return refused.reason


def text(size: int) -> EventData:
    return InstanceStopping(reason="x" * size)


def versions(size: int) -> EventData:
    return InstanceStarted(host="h", pid=1, versions={"spark": "x" * size})


def message(size: int) -> EventData:
    return TaskPaused(task="A", position=1, failure=replace(FAILURE, message="x" * size))


def key(size: int) -> EventData:
    return TaskPaused(task="x" * size, position=1)


def reported_key(size: int) -> EventData:
    return StateReported(tasks=(TaskReported(task="x" * size, status="DEAD"),))


def names(size: int) -> EventData:
    durations = {f"x:{number}": 1 for number in range(size)}
    return FlowMeasured(minute=NOON, durations=durations)


def tasks(size: int) -> EventData:
    return StateReported(tasks=(TaskReported(task="A", status="DEAD"),) * size)


@pytest.mark.parametrize(
    ("data", "most"),
    [
        (text, limits.TEXT_CHARACTERS),
        (versions, limits.TEXT_CHARACTERS),
        (message, limits.TEXT_CHARACTERS),
        (key, limits.TEXT_CHARACTERS),
        (reported_key, limits.TEXT_CHARACTERS),
        (names, limits.LIST_ITEMS),
        (tasks, limits.LIST_ITEMS),
    ],
)
def test_a_text_or_list_above_its_limit_refuses_its_event(
    data: Callable[[int], EventData], most: int
) -> None:
    largest = histories.event(data(most))
    found = received_batch.read_batch(lists([largest]))
    assert found is not None
    assert found.elements == [largest]
    assert f"{most:,}" in reason(histories.event(data(most + 1)))


def test_texts_of_columns_have_the_same_limits() -> None:
    for size, is_read in ((limits.TEXT_CHARACTERS, True), (limits.TEXT_CHARACTERS + 1, False)):
        events = [histories.failed(each, key="x" * size) for each in range(6)]
        batch = codec.encode_batch([replace(each, body=None) for each in events])
        assert (received_batch.read_batch(batch) is not None) == is_read
    decoded = received_batch.decode_batch(batch)
    assert all(isinstance(each, received_batch.UnreadableEvent) for each in decoded)


def test_an_event_of_too_many_bytes_is_refused_before_it_is_decoded() -> None:
    data = {"type": "InstanceStopping", "reason": "x" * limits.EVENT_BYTES}
    assert "at most 4,194,304" in reason({"occurred_at": NOON, "data": data})


def test_a_body_within_an_event_has_a_limit() -> None:
    large = replace(GOOD, body=Body(stack="x" * limits.BODY_BYTES))
    assert "the body of the event has 262,1" in reason(large)


def test_a_batch_of_too_many_bytes_is_refused_as_a_whole() -> None:
    event = histories.event(text(limits.TEXT_CHARACTERS))
    number = limits.BATCH_BYTES // limits.TEXT_CHARACTERS
    assert received_batch.read_batch(lists([event] * (number - 10))) is not None
    for read in (received_batch.read_batch, received_batch.decode_batch):
        with pytest.raises(MalformedBatch, match="at most 12,582,912"):
            read(lists([event] * (number + 1)))
    with pytest.raises(MalformedBatch, match="at most 12,582,912"):
        codec.encode_batch([event] * (number + 1))


def test_the_ids_of_dead_letters_do_not_count_to_the_bytes_of_a_batch() -> None:
    count = 5_000
    data = RecordsRedriven(
        task="A",
        count=count,
        first_position=None,
        last_position=None,
        records=DeadLetterIds(ids=bytes(16 * count)),
    )
    events = [histories.event(data)] * 200
    found = received_batch.read_batch(codec.encode_batch(events))
    assert found is not None
    assert found.size > limits.BATCH_BYTES
    assert found.elements == events


def test_a_batch_of_too_many_values_in_lists_is_refused_as_a_whole() -> None:
    events = [histories.event(names(limits.LIST_ITEMS))]
    assert received_batch.read_batch(lists(events * 5)) is not None
    for read in (received_batch.read_batch, received_batch.decode_batch):
        with pytest.raises(MalformedBatch, match="more than 100,000 values"):
            read(lists(events * 7))


def test_large_columns_with_an_invalid_value_are_refused_as_a_whole() -> None:
    many: list[Any] = [[]] * limits.AT_ONCE_BYTES
    columns = [*[None] * 6, [], [], [], [], [0], [0], [many], [1], [None], ["x"]]
    with pytest.raises(MalformedBatch, match="bytes with an invalid value"):
        received_batch.decode_batch(lists([columns]))


def test_bodies_are_read_one_by_one_up_to_a_limit() -> None:
    stacks = [{"stack": "x" * 200_000}] * 11
    strange = {"occurred_at": NOON, "data": {"type": "Unknown"}}
    decoded = received_batch.decode_batch(lists([GOOD, strange], stacks[:2]))
    assert isinstance(decoded[0], Event)
    with pytest.raises(MalformedBatch, match="at most 2,097,152 are read one by one"):
        received_batch.decode_batch(lists([GOOD, strange], stacks))


def nested(levels: int) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for _ in range(levels - 1):
        record = {"a": record}
    return record


def test_a_body_that_is_too_large_or_too_deep_is_not_decoded() -> None:
    def packed(*records: Any) -> bytes:
        return zlib.compress(msgspec.msgpack.encode(list(records)))

    deepest = nested(limits.BODY_DEPTH)
    assert bodies.decode_body(packed({"record": deepest}), 0) == Body(record=deepest)
    for part in ("record", "columns"):
        with pytest.raises(MalformedBatch, match="nested deeper than 100 levels"):
            bodies.decode_body(packed({part: {"a": deepest}}), 0)
    strange = {"a": [float("inf"), b"\xff"]}
    body = Body(record={"a": ["inf", "base64:/w=="]}, columns={"a": ["inf", "base64:/w=="]})
    assert bodies.decode_body(packed({"record": strange, "columns": strange}), 0) == body
    with pytest.raises(MalformedBatch, match="at most 262,144 are read"):
        bodies.decode_body(packed({"stack": "x" * limits.BODY_BYTES}), 0)
    deep = zlib.compress(b"\x91" + b"\x81\xa6record" + b"\x81\xa1a" * 100_000 + b"\x01")
    with pytest.raises(MalformedBatch):
        bodies.decode_body(deep, 0)


def test_bodies_within_events_have_the_same_limit_together() -> None:
    inner = [replace(GOOD, body=Body(stack="x" * 200_000))]
    assert received_batch.decode_batch(lists(inner * 10)) == inner * 10
    for read in (received_batch.read_batch, received_batch.decode_batch):
        with pytest.raises(MalformedBatch, match="at most 2,097,152 are read one by one"):
            read(lists(inner * 11))


@pytest.mark.parametrize("share", [float("inf"), float("nan"), -0.1, 1.1])
def test_a_share_that_is_none_refuses_its_event(share: float) -> None:
    policy = replace(histories.POLICY, outage_share=share)
    assert "an outage share of" in reason(histories.event(policy))
