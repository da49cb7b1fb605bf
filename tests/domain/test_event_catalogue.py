"""The catalogue: each event has a permanent sample, a heading in the reference, and tests."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import Phase, find, settings
from hypothesis.errors import NoSuchExample

from arrester.domain.events import EVENT_TYPES, Event
from arrester.domain.wire import codec, received_batch
from tests import histories
from tests.services import REPOSITORY

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.json"))
#: Any one will do, not the smallest.
ANY = settings(phases=[Phase.generate], max_examples=5000, database=None)
PAGE = REPOSITORY / "docs" / "reference" / "events.md"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_every_released_event_is_still_read(sample: Path) -> None:
    text = sample.read_text()
    event = msgspec.json.decode(text, type=Event)
    assert event.type == sample.stem.partition("-")[0]
    assert json.loads(msgspec.json.encode(event)) == json.loads(text)
    assert received_batch.decode_event(codec.encode_event(event)) == event


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_every_event_has_a_sample(name: str) -> None:
    assert name in {sample.stem for sample in SAMPLES}


def test_the_reference_page_lists_exactly_the_events() -> None:
    assert sorted(re.findall(r"^## (\w+)$", PAGE.read_text(), re.M)) == sorted(EVENT_TYPES)


def test_every_event_is_in_the_generated_histories() -> None:
    missing = set(EVENT_TYPES)

    def is_last(event: Event) -> bool:
        missing.discard(event.type)
        return not missing

    with suppress(NoSuchExample):
        find(histories.any_event, is_last, settings=ANY)
    assert missing == set()
