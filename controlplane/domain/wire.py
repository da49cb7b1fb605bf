"""How events travel: batches as packed bytes to the server, JSON beside the checkpoint."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from datetime import UTC
from itertools import chain, repeat
from typing import get_args
from uuid import UUID

import msgspec
from msgspec.structs import replace

from controlplane.domain.errors import InvalidValue, MalformedBatch
from controlplane.domain.events import (
    Body,
    CommandIssued,
    Count,
    Data,
    Event,
    EventData,
    Failure,
    InstanceEvent,
    Moment,
    Run,
    StateReported,
    TaskEvent,
    ThreadEvent,
)
from controlplane.domain.names import check_name

#: A batch that unpacks to more than this is foreign; ours are some hundreds of events.
BATCH_MAX_BYTES = 64 * 2**20
#: How many events an agent packs into one batch at most.
BATCH_MAX_EVENTS = 500
#: The newest version of the events that this code understands.
SCHEMA_VERSION = 1
#: Checkpoint ids and fingerprints are keys: anything that could be cut or altered is no key.
TOKEN = re.compile(r"[!-~]{1,200}")

_pack = msgspec.msgpack.Encoder()
#: How "no body" is packed.
_NONE = msgspec.Raw(_pack.encode(None))
_unpack_list = msgspec.msgpack.Decoder(list[msgspec.Raw])
_unpack_event = msgspec.msgpack.Decoder(Event)
_unpack_events = msgspec.msgpack.Decoder(list[Event])
_unpack_bodies = msgspec.msgpack.Decoder(list[Body | None])
_unpack_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_json = msgspec.json.Encoder()
_from_json = msgspec.json.Decoder(Event)
_pack_data = msgspec.msgpack.Encoder()
_unpack_data = msgspec.msgpack.Decoder(EventData)
_command = msgspec.json.Decoder(CommandIssued)


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is not understood: to be kept aside with the reason, never dropped."""

    raw: bytes
    reason: str


class Heartbeat(Data, frozen=True, kw_only=True):
    """What an instance says of itself every 5 s, in a key that dies with it; not an event."""

    at: Moment
    status: str
    runs: tuple[Run, ...] = ()
    #: Events that the server has not confirmed yet.
    spooled: Count = 0
    #: Failed records that it has counted instead of described so far.
    counted_only: Count = 0
    #: How large those events are, packed, and when the oldest of them was made.
    spool_bytes: Count = 0
    spool_since: Moment | None = None
    #: How its tasks that do not run stand, as `drift.standing` has it; None: it does not say.
    standing: str | None = None


def encode_batch(events: Sequence[Event]) -> bytes:
    """Return `events` packed: the bytes are what is sent, spooled and sent again, unchanged.

    Two compressed lists, one after the other: the events without their bodies, and the bodies.
    The fold unpacks the first alone.
    """
    heads = [event if event.body is None else replace(event, body=None) for event in events]
    packed = zlib.compress(_pack.encode(heads), level=1)
    if all(event.body is None for event in events):
        return packed
    return packed + zlib.compress(_pack.encode([event.body for event in events]), level=1)


def decode_heads(packed: bytes) -> list[Event] | None:
    """Return the events of a batch without their bodies, at one go; None: not all are understood.

    Raises MalformedBatch when the bytes are no batch at all.
    """
    heads, _ = _inflated(packed)
    try:
        events = [_in_utc(event) for event in _unpack_events.decode(heads)]
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
        return None
    return None if any(map(_incomplete, events)) else events


def decode_batch(packed: bytes) -> list[Event | Unreadable]:
    """Return the events of a batch, each on its own: one that is not understood spoils no other.

    Raises MalformedBatch when the bytes are no batch at all.
    """
    heads, rest = _inflated(packed)
    try:
        raws = _unpack_list.decode(heads)
        bodies = _unpack_list.decode(_inflated(rest)[0]) if rest else []
        return [_read(raw) for raw in map(_joined, raws, chain(bodies, repeat(_NONE)))]
    except (msgspec.DecodeError, RecursionError) as exc:
        raise MalformedBatch(f"not a packed list of events: {exc}") from exc


def decode_bodies(packed: bytes) -> list[Body | None]:
    """Return the bodies of a batch, in the order of its events; None for one that has none.

    Raises MalformedBatch when they cannot be read.
    """
    heads, rest = _inflated(packed)
    try:
        if rest:
            return _unpack_bodies.decode(_inflated(rest)[0])
        return [event.body for event in _unpack_events.decode(heads)]
    except (msgspec.DecodeError, RecursionError) as exc:
        raise MalformedBatch(f"not a packed list of bodies: {exc}") from exc


def without_body(packed: bytes, index: int) -> bytes:
    """Return a batch with a tombstone in the place of one of its bodies.

    Raises MalformedBatch when not all of it can be read, or when there is no body.
    """
    events = []
    for event in decode_batch(packed):
        if isinstance(event, Unreadable):
            raise MalformedBatch(event.reason)
        events.append(event)
    if events[index].body in (None, Body(erased=True)):
        raise MalformedBatch(f"event {index} of the batch has no body")
    events[index] = replace(events[index], body=Body(erased=True))
    return encode_batch(events)


def _inflated(packed: bytes) -> tuple[bytes, bytes]:
    """Return what was compressed first, and the bytes behind it."""
    inflate = zlib.decompressobj()
    try:
        unpacked = inflate.decompress(packed, BATCH_MAX_BYTES)
    except zlib.error as exc:
        raise MalformedBatch(f"not a packed list: {exc}") from exc
    if inflate.unconsumed_tail:
        raise MalformedBatch(f"unpacks to more than {BATCH_MAX_BYTES} bytes")
    if not inflate.eof:
        raise MalformedBatch("not a packed list: it is cut off")
    return unpacked, inflate.unused_data


def _joined(head: msgspec.Raw, body: msgspec.Raw) -> bytes:
    """Return an event as one, whose body has travelled apart."""
    if body == _NONE:
        return bytes(head)
    try:
        return _pack.encode(_unpack_map.decode(head) | {"body": body})
    except msgspec.DecodeError:
        # No map, so no event: whoever reads it says why.
        return bytes(head)


def decode_event(packed: bytes) -> Event | Unreadable:
    """Return one event of a batch; the way back for what was kept aside."""
    return _read(packed)


def encode_event(event: Event) -> bytes:
    """Return one event packed, as it stands in a batch."""
    return _pack.encode(event)


def _read(raw: bytes) -> Event | Unreadable:
    try:
        event = _in_utc(_unpack_event.decode(raw))
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as exc:
        return Unreadable(raw=raw, reason=str(exc))
    missing = _incomplete(event)
    return event if missing is None else Unreadable(raw=raw, reason=missing)


def _in_utc(event: Event) -> Event:
    """Return the event with one spelling of its moment: states must come out alike from the wire
    and from the store."""
    if event.occurred_at.tzinfo is UTC:
        return event
    return replace(event, occurred_at=event.occurred_at.astimezone(UTC))


_NEEDS_RUN = frozenset((*get_args(TaskEvent), *get_args(ThreadEvent), StateReported))
_NEEDS_INSTANCE = frozenset(get_args(InstanceEvent) + get_args(ThreadEvent))


def _incomplete(event: Event) -> str | None:
    """Return what the envelope lacks for its event, if anything."""
    if event.schema_version != SCHEMA_VERSION:
        return f"schema version {event.schema_version}; this server knows {SCHEMA_VERSION}"
    if event.run is None and type(event.data) in _NEEDS_RUN:
        return f"{event.type} without a run"
    if event.instance is None and type(event.data) in _NEEDS_INSTANCE:
        return f"{event.type} without an instance"
    if event.run is not None and (wrong := _wrong_run(event.run)):
        return wrong
    for failure in _failures(event.data):
        if TOKEN.fullmatch(failure.fingerprint) is None:
            return f"fingerprint {failure.fingerprint[:200]!r} is not printable ASCII"
    return None


def _failures(data: EventData) -> list[Failure]:
    if isinstance(data, StateReported):
        return [each.failure for each in data.tasks if each.failure is not None]
    failure = getattr(data, "failure", None)
    return [] if failure is None else [failure]


def _wrong_run(run: Run) -> str | None:
    try:
        check_name("pipeline", run.pipeline)
    except InvalidValue as exc:
        return str(exc)
    if TOKEN.fullmatch(run.checkpoint) is None:
        return f"checkpoint {run.checkpoint[:200]!r} is not printable ASCII"
    return None


def encode_data(data: EventData) -> bytes:
    """Return what an event says, without its envelope and body, packed for the store."""
    return _pack_data.encode(data)


def decode_data(packed: bytes) -> EventData:
    """Return what `encode_data` packed."""
    data: EventData = _unpack_data.decode(packed)
    return data


def to_json(event: Event) -> bytes:
    """Return an event as JSON: for samples, the REST feed and the journal."""
    return _json.encode(event)


def from_json(text: bytes | str) -> Event:
    """Return the event in `text`; raises msgspec.DecodeError where it is not one."""
    return _from_json.decode(text)


def encode_command(command: CommandIssued) -> bytes:
    """Return a command as the relay hands it to agents."""
    return _json.encode(command)


def decode_command(text: bytes) -> CommandIssued:
    """Return the command in `text`; raises msgspec.DecodeError where it is not one."""
    return _command.decode(text)


def parse_uuid(text: bytes | str | None, what: str) -> UUID:
    """Return the UUID in `text`, else raise MalformedBatch naming `what`."""
    try:
        return UUID(text.decode() if isinstance(text, bytes) else text or "")
    except (ValueError, UnicodeDecodeError) as exc:
        raise MalformedBatch(f"{what}: {text!r} is not a UUID") from exc
