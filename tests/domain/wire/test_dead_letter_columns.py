"""Dead letters as packed columns."""

from __future__ import annotations

import hashlib
import zlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.domain.events import Event, RecordsDeadLettered
from arrester.domain.wire import codec, received_batch
from arrester.domain.wire.dead_letter_columns import (
    MAX_RECORDS,
    dead_letters_of,
    pack,
)
from tests import histories
from tests.histories import APPLICATION, RUN, dead_lettered

_positions = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20).map(sorted)


def data_of(event: Event) -> RecordsDeadLettered:
    assert isinstance(event.data, RecordsDeadLettered)
    return event.data


def packed(numbers: list[int]) -> bytes:
    return zlib.compress(array("Q", numbers).tobytes())


@given(_positions)
def test_ids_are_computed_from_positions(positions: list[int]) -> None:
    found = dead_letters_of(APPLICATION, RUN, data_of(dead_lettered(positions)))
    assert list(found.positions) == positions
    assert list(found.sizes) == [100] * len(positions)
    assert found.fingerprints == [histories.FAILURE.fingerprint] * len(positions)
    texts = [f"flights/delays/cp-1/=JFK/{position}" for position in positions]
    assert found.ids == [hashlib.sha256(text.encode()).digest()[:16] for text in texts]


def test_the_global_task_has_an_empty_key_in_its_ids() -> None:
    found = dead_letters_of(APPLICATION, RUN, data_of(dead_lettered([7], key=None)))
    assert found.ids == [hashlib.sha256(b"flights/delays/cp-1//7").digest()[:16]]


def test_dead_letters_without_positions_have_their_ids() -> None:
    ids = ["00" * 16, "ff" * 16]
    records = pack(fingerprints=[], causes=[0, 0], sizes=[1, 2], positions=None, ids=ids)
    data = replace(data_of(dead_lettered([1, 2])), records=records)
    found = dead_letters_of(APPLICATION, RUN, data)
    assert [each.hex() for each in found.ids] == ids
    assert found.positions == found.fingerprints == [None, None]


def test_of_an_older_event_the_first_ids_are_known() -> None:
    data = replace(data_of(dead_lettered([3])), records=None, ids=("0a" * 16, "no id"))
    found = dead_letters_of(APPLICATION, RUN, data)
    assert [each.hex() for each in found.ids] == ["0a" * 16]
    assert (found.positions, found.sizes) == ([3], [None])


def test_five_thousand_take_some_kilobytes() -> None:
    event = dead_lettered(range(0, 3 * MAX_RECORDS, 3), sizes=[300 + n % 20 for n in range(5000)])
    assert len(codec.encode_batch([event])) < 8_000


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"causes": packed([2, 1])}, "error group 2 of 1"),
        ({"causes": packed([1])}, "does not have the numbers of 2 dead letters"),
        ({"sizes": packed([1, 2, 3])}, "does not have the numbers of 2 dead letters"),
        ({"sizes": packed([1, 2**31])}, "a record of 2,147,483,648 bytes"),
        ({"sizes": b"no column"}, "not a packed column"),
        # Damaged after its numbers: one bit of `packed([1, 2])`.
        ({"sizes": bytes.fromhex("78016364800226280d0000300004")}, "not a packed column"),
        ({"positions": packed([2**64 - 1, 1])}, "position 9223372036854775808 is too large"),
        ({"positions": None}, "0 bytes of ids for 2 dead letters"),
        ({"positions": None, "ids": b"short"}, "5 bytes of ids for 2 dead letters"),
        ({"fingerprints": ("no\nfingerprint",)}, "is not printable ASCII"),
    ],
)
def test_invalid_columns_are_quarantined(change: dict[str, object], reason: str) -> None:
    event = dead_lettered([1, 2])
    records = data_of(event).records
    assert records is not None
    data = replace(data_of(event), records=replace(records, **change))
    unreadable = received_batch.decode_event(codec.encode_event(replace(event, data=data)))
    assert isinstance(unreadable, received_batch.UnreadableEvent)
    assert reason in unreadable.reason


def test_too_many_in_one_event_are_quarantined() -> None:
    unreadable = received_batch.decode_event(
        codec.encode_event(dead_lettered(range(MAX_RECORDS + 1)))
    )
    assert isinstance(unreadable, received_batch.UnreadableEvent)
    assert "5,001 dead letters in one event" in unreadable.reason
