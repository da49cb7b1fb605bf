"""Failed records as columns: equivalent to their events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from arrester.domain.events import Event, Failure, RecordFailed
from arrester.domain.state.stream_state import empty, state_keys
from arrester.domain.wire import codec, received_batch
from arrester.domain.wire.failure_columns import (
    MIN_EVENTS,
    FailedRecords,
    FailureKind,
    element_of,
    expand,
    expand_stored,
    size,
    to_columns,
)
from tests import histories
from tests.histories import APPLICATION, INSTANCE


@given(histories.floods)
def test_columns_contain_all_values_of_their_events(events: list[Event]) -> None:
    heads = [replace(event, body=None) for event in events]
    elements = list(to_columns(heads))
    assert list(expand(elements)) == heads
    assert size(elements) == len(heads)
    columns = [each for each in elements if isinstance(each, FailedRecords)]
    assert all(each.is_consistent() and each.size >= MIN_EVENTS for each in columns)


@given(histories.floods)
def test_folding_columns_equals_folding_their_events(events: list[Event]) -> None:
    elements = histories.stored_elements(events)
    whole, run_step_by_step = empty(APPLICATION).fold(elements), empty(APPLICATION)
    for each in expand_stored(elements):
        run_step_by_step.fold([each])
    assert whole == run_step_by_step
    assert whole.held_changes == run_step_by_step.held_changes


@given(histories.floods)
def test_a_stored_batch_is_decoded_to_its_events(events: list[Event]) -> None:
    heads = [replace(event, body=None) for event in events]
    packed = codec.pack(events).heads
    assert list(expand(codec.decode_elements(packed))) == heads
    places = range(0, len(heads), 3)
    assert codec.decode_events_at(packed, places) == {place: heads[place] for place in places}


def test_columns_of_many_causes_are_folded_as_their_events() -> None:
    events = []
    for position in range(2_000):
        event = histories.failed(position)
        data = event.data
        assert isinstance(data, RecordFailed)
        failure = replace(data.failure, fingerprint=f"1-{position % 1_900:016x}", message="m")
        events.append(replace(event, data=replace(data, failure=failure)))
    elements = histories.stored_elements(events)
    assert len(elements) == 1
    assert empty(APPLICATION).fold(elements) == empty(APPLICATION).fold(expand_stored(elements))


@given(histories.floods)
def test_columns_have_the_state_keys_of_their_events(events: list[Event]) -> None:
    elements = histories.stored_elements(events)
    assert state_keys(APPLICATION, map(element_of, elements)) == state_keys(APPLICATION, events)


@pytest.mark.parametrize(
    "change",
    [
        {"run": None},
        {"caused_by": INSTANCE},
        {"schema_version": 2},
        # An agent's mistake, which the server quarantines.
        {"occurred_at": datetime(2026, 11, 20)},
    ],
)
def test_events_with_values_outside_the_columns_stay_single(change: dict[str, Any]) -> None:
    plain = [replace(histories.failed(position), body=None) for position in range(MIN_EVENTS)]
    assert len(list(to_columns(plain))) == 1
    others = [replace(event, **change) for event in plain]
    assert list(to_columns(others)) == others


def test_columns_of_an_agent_without_causes_are_read() -> None:
    events = [replace(histories.failed(position), body=None) for position in range(MIN_EVENTS)]
    [columns] = to_columns(events)
    assert isinstance(columns, FailedRecords)
    earlier = columns._replace(kinds=[kind[:3] for kind in columns.kinds])  # type: ignore[misc]
    packed = codec.FORMAT + codec.compressed(msgspec.msgpack.encode([earlier]))
    assert list(expand(codec.decode_elements(packed))) == events
    batch = received_batch.read_batch(packed)
    assert batch is not None and list(expand(batch.elements)) == events
    assert received_batch.decode_batch(packed) == events


def test_every_field_of_a_failed_record_is_in_its_columns() -> None:
    """A new field without a column would be lost."""
    fields = {*RecordFailed.__struct_fields__, *Failure.__struct_fields__} - {"failure"}
    # An event with lines of source is never in columns.
    fields -= {"with_source"}
    shared = {"response", "attempts", "recurrence", "logged"}
    own = {"task", "position", "key", "message"}
    assert fields == shared | own | {"fingerprint", "frame"} | set(FailureKind._fields)
    assert set(Event.__struct_fields__) - {"body", "caused_by", "schema_version"} == {
        "run",
        "instance",
        "occurred_at",
        "data",
    }
