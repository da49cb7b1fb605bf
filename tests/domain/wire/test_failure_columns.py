"""Failed records as columns: all that is made of them is what their events give."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from arrester.controlplane.domain.errors import MalformedBatch
from arrester.controlplane.domain.events import Event, Failure, RecordFailed
from arrester.controlplane.domain.state.minute_counts import failures
from arrester.controlplane.domain.state.stream_state import empty, subjects
from arrester.controlplane.domain.wire import codec
from arrester.controlplane.domain.wire.failure_columns import (
    LEAST,
    FailedRecords,
    Kind,
    Stored,
    StoredFailures,
    each_of,
    each_stored,
    in_columns,
    said,
    size,
)
from arrester.controlplane.domain.wire.joined_columns import lasts
from arrester.controlplane.domain.wire.lazy_column import Later
from tests import histories
from tests.histories import APPLICATION, INSTANCE


@given(histories.floods)
def test_columns_say_what_their_events_say(events: list[Event]) -> None:
    heads = [replace(event, body=None) for event in events]
    told = list(in_columns(heads))
    assert list(each_of(told)) == heads
    assert size(told) == len(heads)
    columns = [each for each in told if isinstance(each, FailedRecords)]
    assert all(each.is_whole() and each.size >= LEAST for each in columns)


@given(histories.floods)
def test_columns_are_folded_as_their_events_are_one_by_one(events: list[Event]) -> None:
    told = histories.told(events)
    whole, run_step_by_step = empty(APPLICATION).fold(told), empty(APPLICATION)
    for each in each_stored(told):
        run_step_by_step.fold([each])
    assert whole == run_step_by_step
    assert whole.held_changes == run_step_by_step.held_changes


@given(histories.floods)
def test_what_stays_packed_until_somebody_asks_says_the_same(events: list[Event]) -> None:
    heads = [replace(event, body=None) for event in events]
    packed, told = codec.pack(events).heads, histories.told(events)
    later = iter(codec.decode_told(packed))
    in_log: list[Stored] = [
        replace(each, failed=found)
        if isinstance(each, StoredFailures) and isinstance(found, FailedRecords)
        else each
        for each, found in zip(told, later, strict=True)
    ]
    assert empty(APPLICATION).fold(in_log) == empty(APPLICATION).fold(told)
    assert list(each_of(codec.decode_told(packed))) == heads
    places = range(0, len(heads), 3)
    assert codec.decode_some(packed, places) == {place: heads[place] for place in places}


@pytest.mark.parametrize("different", [1, 3, 240, 3_000, 9_000])
def test_where_values_are_last_is_found_however_far_away_it_is(different: int) -> None:
    column = [*range(different), *range(0, different, 2)] * (9_000 // different)
    assert lasts(column, different=different) == {each: at for at, each in enumerate(column)}


def test_a_column_that_is_none_says_so_when_it_is_unpacked() -> None:
    raw = msgspec.Raw(msgspec.msgpack.encode([1, 2]))
    with pytest.raises(MalformedBatch, match="not a packed column"):
        Later(raw, msgspec.msgpack.Decoder(list[str])).all()


def test_columns_of_as_many_causes_as_events_are_folded_as_these() -> None:
    events = []
    for position in range(2_000):
        event = histories.failed(position)
        data = event.data
        assert isinstance(data, RecordFailed)
        failure = replace(data.failure, fingerprint=f"1-{position % 1_900:016x}", message="m")
        events.append(replace(event, data=replace(data, failure=failure)))
    told = histories.told(events)
    assert len(told) == 1
    assert empty(APPLICATION).fold(told) == empty(APPLICATION).fold(each_stored(told))


@given(histories.floods)
def test_columns_concern_what_their_events_concern(events: list[Event]) -> None:
    told = histories.told(events)
    assert subjects(APPLICATION, map(said, told)) == subjects(APPLICATION, events)


@given(histories.floods)
def test_columns_are_counted_in_the_minutes_of_their_events(events: list[Event]) -> None:
    told = histories.told(events)
    assert counted(told) == counted(list(each_stored(told)))


def counted(told: list[Stored]) -> dict[object, tuple[int, int]]:
    found: dict[object, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for minute, counts in failures(told):
        for cause, (count, sequence) in counts.items():
            before, latest = found[minute, cause]
            found[minute, cause] = (before + count, max(latest, sequence))
    return found


@pytest.mark.parametrize(
    "change",
    [
        {"run": None},
        {"caused_by": INSTANCE},
        {"schema_version": 2},
        # An agent's mistake, which the server keeps aside.
        {"occurred_at": datetime(2026, 11, 20)},
    ],
)
def test_what_columns_cannot_say_stays_an_event(change: dict[str, Any]) -> None:
    plain = [replace(histories.failed(position), body=None) for position in range(LEAST)]
    assert len(list(in_columns(plain))) == 1
    others = [replace(event, **change) for event in plain]
    assert list(in_columns(others)) == others


def test_every_field_of_a_failed_record_is_in_its_columns() -> None:
    """Whoever adds a field to these adds a column, or what it says would be lost."""
    said = {*RecordFailed.__struct_fields__, *Failure.__struct_fields__} - {"failure"}
    shared = {"response", "attempts", "recurrence", "logged"}
    own = {"task", "position", "key", "message"}
    assert said == shared | own | {"fingerprint", "frame"} | set(Kind._fields)
    assert set(Event.__struct_fields__) - {"body", "caused_by", "schema_version"} == {
        "run",
        "instance",
        "occurred_at",
        "data",
    }
