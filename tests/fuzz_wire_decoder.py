"""Fuzz the readers of what agents and servers send: `make fuzz` (ARGS=-max_total_time=600).

Any entry of a stream becomes events, or is quarantined with a reason: nothing is raised. Accepted
events are read again from the store. Heartbeats and commands are decoded, or refused.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import atheris

with atheris.instrument_imports():
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "arrester.controlplane.settings"
    django.setup()

    import msgspec

    from arrester.controlplane.redis import redis_client
    from arrester.controlplane.store.stream_entry import read_entry
    from arrester.domain.errors import MalformedBatch
    from arrester.domain.events import CommandIssued, Event
    from arrester.domain.wire import bodies, codec, command_codec
    from tests import histories

SAMPLES = Path(__file__).parent / "domain" / "samples"
SEPARATOR = b"\0\xff\0"
STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 1.5, float("nan"), float("inf"), "",
    "x", "\0", "\u202e", "x" * 30_000, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z",
    b"", b"\xff", [], [[]], {}, {"type": "RecordFailed"}, "RecordFailed", "StateReported",
)  # fmt: skip
BATCH, SPOOL = UUID(int=1), UUID(int=2)


def read_batch(batch: bytes) -> None:
    """Read an entry as the fold does, and what was accepted as pages do."""
    fields = {b"batch": str(BATCH).encode(), b"spool": str(SPOOL).encode(), b"events": batch}
    entry = read_entry("fuzzed", "1-0", fields)
    assert all(each.reason for each in entry.quarantined)
    if entry.packed is None:
        return
    assert codec.decode_elements(entry.packed.heads) == list(entry.events)
    if entry.packed.bodies is not None:
        with suppress(MalformedBatch):
            bodies.decode_body(entry.packed.bodies, 0)


def read_lists(data: bytes) -> None:
    """Read a batch whose lists are compressed here: few random bytes are compressed data."""
    lists = data.split(SEPARATOR, 1)
    read_batch(codec.FORMAT + b"".join(map(codec.compressed, lists)))


def read_heartbeat(data: bytes) -> None:
    redis_client.decode_json(data, codec.Heartbeat)


def read_command(data: bytes) -> None:
    with suppress(ValueError):
        command_codec.decode_command(data)


READERS = (read_batch, read_lists, read_heartbeat, read_command)


def read(data: bytes) -> None:
    """Read the bytes after the first one, which selects the reader."""
    if data:
        READERS[data[0] % len(READERS)](data[1:])


def mutate(data: bytes, limit: int, seed: int) -> bytes:
    """Replace a value in a list of events by a strange one; other data is mutated byte by byte.

    Changed bytes alone hardly ever stay MessagePack.
    """
    chance = random.Random(seed)
    if data[:1] == b"\1" and chance.random() < 0.9:
        heads, *rest = data[1:].split(SEPARATOR, 1)
        with suppress(ValueError, RecursionError):
            changed = msgspec.msgpack.encode(_changed(msgspec.msgpack.decode(heads), chance))
            return SEPARATOR.join([b"\1" + changed, *rest])[:limit]
    return bytes(atheris.Mutate(data, limit))


def _changed(value: Any, chance: random.Random) -> Any:
    """Return the value with one of its parts, or all of it, replaced."""
    if isinstance(value, (dict, list)) and value and chance.random() < 0.95:
        key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if chance.random() < 0.05:
            del value[key]
        else:
            value[key] = _changed(value[key], chance)
        return value
    return chance.choice(STRANGE)


def samples() -> Iterator[bytes]:
    """Yield valid inputs to begin with: each kind of event alone, and columns of failed records."""
    texts = [file.read_bytes() for file in sorted(SAMPLES.glob("*.json"))]
    events = [msgspec.json.decode(text, type=Event) for text in texts]
    failed = [histories.failed(position) for position in range(8)]
    for batch in (*([each] for each in events), failed, [*events, *failed]):
        yield b"\0" + codec.encode_batch(batch)
        heads, rest = codec.inflated(codec.without_format(codec.encode_batch(batch)))
        yield b"\1" + (heads + SEPARATOR + codec.inflated(rest)[0] if rest else heads)
    beat = codec.Heartbeat(at=histories.NOON, status="RUNNING", runs=(histories.RUN,))
    yield b"\2" + msgspec.json.encode(beat)
    for event in events:
        if isinstance(event.data, CommandIssued):
            yield b"\3" + command_codec.encode_command(event.data)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, sample in enumerate(samples()):
            Path(folder, str(number)).write_bytes(sample)
        atheris.Setup([*sys.argv, folder], read, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
