"""Hash keys find events, and rows of columns equal those of events."""

from __future__ import annotations

import gc
import tracemalloc
from datetime import UTC, date, datetime
from itertools import count

import pytest
from hypothesis import given
from msgspec.structs import replace

from arrester.controlplane import queries
from arrester.controlplane.queries import FailureFilter
from arrester.controlplane.store import column_values, copy_rows
from arrester.domain.events import EVENT_TYPES, Event, RecordFailed, StoredEvent
from arrester.domain.wire.failure_columns import expand_stored
from tests import histories
from tests.controlplane import streams


def test_hash_keys_of_event_types_differ() -> None:
    assert len({column_values.hash_text(name) for name in EVENT_TYPES}) == len(EVENT_TYPES)


@given(histories.floods)
def test_columns_and_their_events_have_the_same_rows(events: list[Event]) -> None:
    elements = histories.stored_elements(events)
    day = date(2026, 11, 20)
    apart = list(expand_stored(elements))
    assert list(copy_rows.of_events(1, day, elements)) == list(copy_rows.of_events(1, day, apart))


def test_the_caches_contain_no_long_key() -> None:
    def lay_out(number: int) -> None:
        long = [histories.failed(number, key=f"{number} {'k' * 2**20}")] * 4
        elements = histories.stored_elements(long)
        for some in (elements, list(expand_stored(elements))):
            assert list(copy_rows.of_events(1, date(2026, 11, 20), some))

    lay_out(0)
    tracemalloc.start()
    try:
        for number in range(1, 9):
            lay_out(number)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2**20


def of_stage(position: int, stage: str) -> Event:
    event = histories.failed(position)
    data = event.data
    assert isinstance(data, RecordFailed)
    failure = replace(data.failure, stage=stage, fingerprint=f"1-{position:016x}")
    return replace(event, data=replace(data, failure=failure))


@pytest.mark.usefixtures("fresh_database")
def test_names_with_one_hash_key_are_distinguished() -> None:
    seen: dict[int, str] = {}
    for number in count():
        stage = f"process:{number}"
        if (other := seen.setdefault(column_values.hash_text(stage), stage)) != stage:
            break
    # More groups than are looked through one by one, and the other's events among them.
    stages = [(other, stage)[position % 3 == 0] for position in range(180)]
    events = [of_stage(position, name) for position, name in enumerate(stages)]
    streams.append(events, received_at=datetime.now(UTC))

    wanted, cursor = FailureFilter(stage=stage), None
    found: list[StoredEvent] = []
    while True:
        page = queries.failures(wanted, cursor=cursor, limit=7)
        found += page.rows
        if (cursor := page.next) is None:
            break
    positions = [getattr(each.event.data, "position", None) for each in found]
    assert len(positions) == 60
    assert set(positions) == set(range(0, 180, 3))
