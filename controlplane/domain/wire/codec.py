"""Encode and decode events: packed batches for the server, JSON for the journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC
from itertools import chain, repeat
from typing import NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from arrester.controlplane.domain.errors import MalformedBatch
from arrester.controlplane.domain.events import Body, CommandIssued, Count, Data, Event, Moment, Run
from arrester.controlplane.domain.wire.compression import (
    BATCH_MAX_BYTES,
    FORMAT,
    compressed,
    each_body,
    each_head,
    inflated,
    is_columns,
    may_be_too_many,
    without_format,
)
from arrester.controlplane.domain.wire.envelope import incomplete, is_complete
from arrester.controlplane.domain.wire.failure_columns import (
    Element,
    FailedRecords,
    each_of,
    in_columns,
    of_any_values,
    size,
)
from arrester.controlplane.domain.wire.log_batch import in_part

#: The most events that an agent packs into one batch.
BATCH_MAX_EVENTS = 500

_pack = msgspec.msgpack.Encoder()
#: The packed form of "no body".
_NONE = msgspec.Raw(_pack.encode(None))
#: In place of an erased body.
_ERASED = msgspec.Raw(_pack.encode(Body(erased=True)))
_unpack_list = msgspec.msgpack.Decoder(list[msgspec.Raw])
_unpack_event = msgspec.msgpack.Decoder(Event)
_unpack_told = msgspec.msgpack.Decoder(list[Event | FailedRecords])
#: Raised for invalid bytes or values.
_STRANGE = (msgspec.DecodeError, ValueError, TypeError, LookupError, OverflowError, RecursionError)
_unpack_body = msgspec.msgpack.Decoder(Body | None)
_unpack_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_json = msgspec.json.Encoder()
_from_json = msgspec.json.Decoder(Event)
_command = msgspec.json.Decoder(CommandIssued)


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """An event that cannot be decoded: to be quarantined with the reason, never dropped."""

    raw: bytes
    reason: str


class Heartbeat(Data, frozen=True, kw_only=True):
    """The report of an instance every 5 s, in a key that expires; not an event."""

    at: Moment
    status: str
    runs: tuple[Run, ...] = ()
    #: Events that the server has not confirmed yet.
    spooled: Count = 0
    #: Failed records that were only counted so far.
    counted_only: Count = 0
    #: The packed size of those events, and when the oldest of them was made.
    spool_bytes: Count = 0
    spool_since: Moment | None = None
    #: The hash of its tasks that are not RUNNING, see `drift.standing`; None: not included.
    standing: str | None = None


class Packed(NamedTuple):
    """A batch as sent and stored: its events without their bodies, and the bodies."""

    heads: bytes
    #: None: no event has one.
    bodies: bytes | None


def pack(events: Sequence[Event]) -> Packed:
    """Return `events` packed as two compressed lists, so that readers of the heads skip the
    bodies."""
    heads, bodies = _lists(events)
    return Packed(
        heads=FORMAT + compressed(heads),
        bodies=None if bodies is None else compressed(bodies),
    )


def encode_batch(events: Sequence[Event]) -> bytes:
    """Return `events` packed: the bytes are sent, spooled and sent again unchanged.

    The bodies follow the heads. Raises MalformedBatch for a batch that readers would refuse.
    """
    heads, bodies = _lists(events)
    lists = [heads] if bodies is None else [heads, bodies]
    if max(map(len, lists)) > BATCH_MAX_BYTES:
        raise MalformedBatch(f"unpacks to more than {BATCH_MAX_BYTES} bytes")
    return FORMAT + b"".join(map(compressed, lists))


def _lists(events: Sequence[Event]) -> tuple[bytes, bytes | None]:
    """Return the heads, and the bodies if there are any."""
    heads = (event if event.body is None else replace(event, body=None) for event in events)
    told = list(in_columns(heads))
    bodies = [event.body for event in events]
    return _pack.encode(told), _pack.encode(bodies) if any(bodies) else None


def read_batch(batch: bytes) -> tuple[list[Element], Packed] | None:
    """Return the events of a batch without their bodies, and its unchanged parts.

    None if not all events can be decoded, or a body is not in its place. Raises MalformedBatch if
    the bytes are not a batch, or of more than BATCH_MOST_EVENTS.
    """
    unpacked, bodies = inflated(without_format(batch))
    try:
        if may_be_too_many(unpacked):
            each_head(unpacked)
        told = _each_in_utc(_unpack_told.decode(unpacked))
    except _STRANGE:
        return None
    if not all(map(_is_understood, told)):
        return None
    return told, Packed(heads=batch[: len(batch) - len(bodies)], bodies=bodies or None)


def _each_in_utc(told: Iterable[Element]) -> list[Element]:
    return [_in_utc(each) if each.__class__ is Event else each for each in told]


def _is_understood(told: Element) -> bool:
    if isinstance(told, FailedRecords):
        return is_complete(told)
    return told.body is None and incomplete(told) is None


def decode_told(heads: bytes) -> list[Element]:
    """Return the events of a stored batch without their bodies.

    Raises MalformedBatch if they cannot be read.
    """
    try:
        return _each_in_utc(in_part(inflated(without_format(heads))[0]))
    except _STRANGE as exc:
        raise MalformedBatch(f"not a packed list of events: {exc}") from exc


def decode_some(heads: bytes, places: Iterable[int]) -> dict[int, Event]:
    """Return the events at some places of a batch, as `decode_told` does."""
    wanted, found, begin = set(places), {}, 0
    for each in decode_told(heads):
        end = begin + size([each])
        for place in wanted.intersection(range(begin, end)):
            found[place] = each.event(place - begin) if isinstance(each, FailedRecords) else each
        begin = end
    if len(found) < len(wanted):
        raise MalformedBatch(f"{begin} events, {max(wanted)} is none of them")
    return found


def decode_batch(packed: bytes) -> list[Event | Unreadable]:
    """Return the events of a batch one by one: an invalid event does not affect the others.

    Raises MalformedBatch if the bytes are not a batch, or of more than BATCH_MOST_EVENTS.
    """
    heads, rest = inflated(without_format(packed))
    try:
        raws = chain.from_iterable(map(_spread, each_head(heads)))
        bodies = each_body(inflated(rest)[0]) if rest else []
        return [_read(raw) for raw in map(_joined, raws, chain(bodies, repeat(_NONE)))]
    except (msgspec.DecodeError, RecursionError) as exc:
        raise MalformedBatch(f"not a packed list of events: {exc}") from exc


def _spread(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the events of columns one by one; anything else is returned unchanged.

    Values are not checked: the reader of an event reports an invalid one. Raises MalformedBatch for
    columns with an unknown number of events.
    """
    if not is_columns(raw):
        return [raw]
    try:
        failed = of_any_values(raw)
        if failed.is_whole():
            return [msgspec.Raw(_pack.encode(event)) for event in each_of([failed])]
    except _STRANGE as exc:
        raise MalformedBatch(f"columns that are not understood: {exc}") from exc
    raise MalformedBatch("columns that do not fit each other")


def decode_body(bodies: bytes, index: int) -> Body | None:
    """Return one body of a batch; None if its event has none.

    A foreign sender's list may be short: the other events have none. Raises MalformedBatch if it
    cannot be read.
    """
    raws = _bodies(bodies)
    try:
        return _unpack_body.decode(raws[index]) if index < len(raws) else None
    except (msgspec.DecodeError, RecursionError) as exc:
        raise MalformedBatch(f"not a packed body: {exc}") from exc


def without_body(bodies: bytes, index: int) -> bytes:
    """Return the bodies of a batch with a tombstone in place of one; the bytes of the others are
    unchanged.

    Raises MalformedBatch if they cannot be read, or if there is no such body.
    """
    raws = _bodies(bodies)
    if index >= len(raws) or raws[index] in (_NONE, _ERASED):
        raise MalformedBatch(f"event {index} of the batch has no body")
    raws[index] = _ERASED
    return compressed(_pack.encode(raws))


def _bodies(bodies: bytes) -> list[msgspec.Raw]:
    try:
        return _unpack_list.decode(inflated(bodies)[0])
    except msgspec.DecodeError as exc:
        raise MalformedBatch(f"not a packed list of bodies: {exc}") from exc


def _joined(head: msgspec.Raw, body: msgspec.Raw) -> bytes:
    """Return an event joined with its body."""
    if body == _NONE:
        return bytes(head)
    try:
        return _pack.encode(_unpack_map.decode(head) | {"body": body})
    except msgspec.DecodeError:
        # Not a map, so not an event: its reader reports why.
        return bytes(head)


def decode_event(packed: bytes) -> Event | Unreadable:
    """Return one event of a batch; used to requeue quarantined events."""
    return _read(packed)


def encode_event(event: Event) -> bytes:
    """Return one event packed, as in a batch."""
    return _pack.encode(event)


def _read(raw: bytes) -> Event | Unreadable:
    try:
        event = _in_utc(_unpack_event.decode(raw))
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as exc:
        return Unreadable(raw=raw, reason=str(exc))
    missing = incomplete(event)
    return event if missing is None else Unreadable(raw=raw, reason=missing)


def _in_utc(event: Event) -> Event:
    """Return the event with its time in UTC: states must be equal from the wire and from the
    store."""
    if event.occurred_at.tzinfo is UTC:
        return event
    return replace(event, occurred_at=event.occurred_at.astimezone(UTC))


def to_json(event: Event) -> bytes:
    """Return an event as JSON: for samples, the REST feed and the journal."""
    return _json.encode(event)


def from_json(text: bytes | str) -> Event:
    """Return the event in `text`; raises msgspec.DecodeError if it is invalid."""
    return _from_json.decode(text)


def encode_command(command: CommandIssued) -> bytes:
    """Return a command as agents receive it."""
    return _json.encode(command)


def decode_command(text: bytes) -> CommandIssued:
    """Return the command in `text`; raises msgspec.DecodeError if it is invalid."""
    return _command.decode(text)


def parse_uuid(text: bytes | str | None, what: str) -> UUID:
    """Return the UUID in `text`, else raise MalformedBatch naming `what`."""
    try:
        return UUID(text.decode() if isinstance(text, bytes) else text or "")
    except (ValueError, UnicodeDecodeError) as exc:
        raise MalformedBatch(f"{what}: {text!r} is not a UUID") from exc
