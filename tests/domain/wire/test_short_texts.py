"""Agents cut texts of any length, so that the server refuses none of their events."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from arrester.domain.events import Event, RecordFailed
from arrester.domain.wire import codec, limits, received_batch
from tests import histories
from tests.domain.test_event_catalogue import SAMPLES

#: Names and keys: the agent limits them where they are given, or a longer one is another identity.
IDENTITIES = {
    *("pipeline", "checkpoint", "fingerprint", "fingerprints", "task", "above", "through", "type"),
    *("ids", "records", "digest"),
}
LONG = "x" * 100_000


def with_each_text_long(value: Any) -> Iterator[Any]:
    """Yield copies of a JSON value, each with another text made long, but for identities."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name not in IDENTITIES:
                yield from ({**value, name: each} for each in with_each_text_long(part))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            for each in with_each_text_long(part):
                yield [*value[:place], each, *value[place + 1 :]]
    elif isinstance(value, str):
        yield LONG


def long_events() -> Iterator[Event]:
    """Yield events of all kinds, each with one text that is too long."""
    for path in SAMPLES:
        sample = json.loads(path.read_text())
        for data in with_each_text_long(sample["data"]):
            try:
                event = msgspec.json.decode(json.dumps({**sample, "data": data}), type=Event)
            except msgspec.ValidationError:
                continue  # a time, an id, or one of some words
            yield replace(event, body=None)


def read(event: Event) -> Event | received_batch.UnreadableEvent:
    packed = codec.FORMAT + zlib.compress(msgspec.msgpack.encode([event]))
    (found,) = received_batch.decode_batch(packed)
    assert isinstance(found, Event | received_batch.UnreadableEvent)
    return found


def test_events_of_every_kind_are_read_after_their_texts_were_cut() -> None:
    kinds = set()
    for event in long_events():
        assert isinstance(read(event), received_batch.UnreadableEvent), event.type
        short = limits.with_short_texts(event)
        assert read(short) == short
        assert limits.CUT_MARK in json.dumps(msgspec.to_builtins(short.data), ensure_ascii=False)
        kinds.add(event.type)
    assert {"TaskPaused", "RecordFailed", "ThreadDied", "InstanceStarted", "CommandRefused"} < kinds


def test_short_texts_are_unchanged() -> None:
    exact = "x" * limits.TEXT_CHARACTERS
    event = histories.failed(1)
    assert isinstance(event.data, RecordFailed)
    longest = replace(event, data=replace(event.data, key=exact))
    for each in (event, *histories.started(), *histories.paused(), longest):
        assert limits.with_short_texts(each) == each
    assert limits.with_short_texts(event) is event
