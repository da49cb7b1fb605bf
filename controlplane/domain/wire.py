"""How events travel: batches as packed bytes to the server, JSON beside the checkpoint."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from datetime import UTC
from functools import lru_cache
from itertools import chain, repeat
from typing import NamedTuple, get_args
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
#: What is longer is no token, and not remembered whole.
_CUT = 300

_pack = msgspec.msgpack.Encoder()
#: How "no body" is packed.
_NONE = msgspec.Raw(_pack.encode(None))
#: What stands in the place of a body that was erased.
_ERASED = msgspec.Raw(_pack.encode(Body(erased=True)))
_unpack_list = msgspec.msgpack.Decoder(list[msgspec.Raw])
_unpack_event = msgspec.msgpack.Decoder(Event)
_unpack_events = msgspec.msgpack.Decoder(list[Event])
_unpack_body = msgspec.msgpack.Decoder(Body | None)
_unpack_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_json = msgspec.json.Encoder()
_from_json = msgspec.json.Decoder(Event)
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


class Packed(NamedTuple):
    """A batch as it travels and as it is kept: its events without their bodies, and the bodies."""

    heads: bytes
    #: None: no event has one.
    bodies: bytes | None


def pack(events: Sequence[Event]) -> Packed:
    """Return `events` packed, as two compressed lists: who reads the first need not unpack both."""
    heads, bodies = _lists(events)
    return Packed(
        heads=zlib.compress(heads, level=1),
        bodies=None if bodies is None else zlib.compress(bodies, level=1),
    )


def encode_batch(events: Sequence[Event]) -> bytes:
    """Return `events` packed: the bytes are what is sent, spooled and sent again, unchanged.

    The bodies follow the heads. Raises MalformedBatch for what nobody would unpack.
    """
    lists = [each for each in _lists(events) if each is not None]
    if max(map(len, lists)) > BATCH_MAX_BYTES:
        raise MalformedBatch(f"unpacks to more than {BATCH_MAX_BYTES} bytes")
    return b"".join(zlib.compress(each, level=1) for each in lists)


def _lists(events: Sequence[Event]) -> tuple[bytes, bytes | None]:
    heads = [event if event.body is None else replace(event, body=None) for event in events]
    bodies = [event.body for event in events]
    return _pack.encode(heads), _pack.encode(bodies) if any(bodies) else None


def read_batch(batch: bytes) -> tuple[list[Event], Packed] | None:
    """Return the events of a batch without their bodies, and its parts as they came.

    None where not all is understood, or where a body is not in its place. Raises MalformedBatch
    when the bytes are no batch at all.
    """
    unpacked, bodies = _inflated(batch)
    try:
        events = [_in_utc(event) for event in _unpack_events.decode(unpacked)]
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
        return None
    if any(map(_incomplete, events)) or any(event.body is not None for event in events):
        return None
    return events, Packed(heads=batch[: len(batch) - len(bodies)], bodies=bodies or None)


def decode_heads(heads: bytes) -> list[Event]:
    """Return the events of a batch that was understood when it came, without their bodies.

    Raises MalformedBatch when they cannot be read.
    """
    try:
        return [_in_utc(event) for event in _unpack_events.decode(_inflated(heads)[0])]
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as exc:
        raise MalformedBatch(f"not a packed list of events: {exc}") from exc


def decode_some(heads: bytes, places: Iterable[int]) -> dict[int, Event]:
    """Return the events at some places of a batch, as `decode_heads` does."""
    try:
        raws = _unpack_list.decode(_inflated(heads)[0])
        return {place: _in_utc(_unpack_event.decode(raws[place])) for place in places}
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError, IndexError) as exc:
        raise MalformedBatch(f"not a packed list of events: {exc}") from exc


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


def decode_body(bodies: bytes, index: int) -> Body | None:
    """Return one body of a batch; None where its event has none.

    A foreign sender's list may be short: the rest have none. Raises MalformedBatch when it cannot
    be read.
    """
    raws = _bodies(bodies)
    try:
        return _unpack_body.decode(raws[index]) if index < len(raws) else None
    except (msgspec.DecodeError, RecursionError) as exc:
        raise MalformedBatch(f"not a packed body: {exc}") from exc


def without_body(bodies: bytes, index: int) -> bytes:
    """Return the bodies of a batch with a tombstone in the place of one; the others' bytes stay.

    Raises MalformedBatch when they cannot be read, or when there is no such body.
    """
    raws = _bodies(bodies)
    if index >= len(raws) or raws[index] in (_NONE, _ERASED):
        raise MalformedBatch(f"event {index} of the batch has no body")
    raws[index] = _ERASED
    return zlib.compress(_pack.encode(raws), level=1)


def _bodies(bodies: bytes) -> list[msgspec.Raw]:
    try:
        return _unpack_list.decode(_inflated(bodies)[0])
    except msgspec.DecodeError as exc:
        raise MalformedBatch(f"not a packed list of bodies: {exc}") from exc


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
    data, run = event.data, event.run
    if event.schema_version != SCHEMA_VERSION:
        return f"schema version {event.schema_version}; this server knows {SCHEMA_VERSION}"
    if run is None and type(data) in _NEEDS_RUN:
        return f"{event.type} without a run"
    if event.instance is None and type(data) in _NEEDS_INSTANCE:
        return f"{event.type} without an instance"
    if run is not None and (wrong := _wrong_run(run.pipeline[:_CUT], run.checkpoint[:_CUT])):
        return wrong
    if isinstance(data, StateReported):
        found = (each.failure for each in data.tasks if each.failure is not None)
        return next(filter(None, (_wrong_mark(each.fingerprint[:_CUT]) for each in found)), None)
    failure = getattr(data, "failure", None)
    return None if failure is None else _wrong_mark(failure.fingerprint[:_CUT])


@lru_cache(maxsize=10_000)
def _wrong_mark(fingerprint: str) -> str | None:
    if TOKEN.fullmatch(fingerprint) is None:
        return f"fingerprint {fingerprint[:200]!r} is not printable ASCII"
    return None


@lru_cache(maxsize=1_000)
def _wrong_run(pipeline: str, checkpoint: str) -> str | None:
    try:
        check_name("pipeline", pipeline)
    except InvalidValue as exc:
        return str(exc)
    if TOKEN.fullmatch(checkpoint) is None:
        return f"checkpoint {checkpoint[:200]!r} is not printable ASCII"
    return None


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
