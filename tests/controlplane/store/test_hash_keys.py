"""Events are found by numbers, and are still the ones that were meant."""

from __future__ import annotations

import gc
import tracemalloc
from datetime import UTC, date, datetime
from itertools import count

import pytest
from hypothesis import given
from msgspec.structs import replace

from arrester.controlplane import queries
from arrester.controlplane.domain.events import EVENT_TYPES, Event, RecordFailed, StoredEvent
from arrester.controlplane.domain.wire.failure_columns import each_stored
from arrester.controlplane.queries import FailureFilter
from arrester.controlplane.store import copy_rows, hash_keys
from tests import histories
from tests.controlplane import streams


def test_types_have_numbers_of_their_own() -> None:
    assert len({hash_keys.of_text(name) for name in EVENT_TYPES}) == len(EVENT_TYPES)


@given(histories.floods)
def test_columns_are_found_by_the_rows_that_their_events_would_have(events: list[Event]) -> None:
    told = histories.told(events)
    day = date(2026, 11, 20)
    apart = list(each_stored(told))
    assert b"".join(copy_rows.packed(1, day, told)) == b"".join(copy_rows.packed(1, day, apart))


def test_nothing_large_is_remembered_of_a_key() -> None:
    def lay_out(number: int) -> None:
        long = [histories.failed(number, key=f"{number} {'k' * 2**20}")] * 4
        told = histories.told(long)
        for some in (told, list(each_stored(told))):
            assert b"".join(copy_rows.packed(1, date(2026, 11, 20), some))

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
def test_names_that_share_a_number_are_told_apart() -> None:
    seen: dict[int, str] = {}
    for number in count():
        stage = f"process:{number}"
        if (other := seen.setdefault(hash_keys.of_text(stage), stage)) != stage:
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
