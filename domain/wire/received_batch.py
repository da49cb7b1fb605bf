"""Read a received batch of events: whole if it is valid, else event by event."""

from __future__ import annotations

from itertools import chain, repeat
from typing import NamedTuple

import msgspec

from arrester.domain.errors import MalformedBatch
from arrester.domain.events import Event
from arrester.domain.wire import limits
from arrester.domain.wire.codec import (
    DECODE_ERRORS,
    NO_BODY,
    Packed,
    all_in_utc,
    encode_event,
    in_utc,
    inflated,
    without_format,
)
from arrester.domain.wire.envelope import incomplete, is_complete
from arrester.domain.wire.event_count import each_head, each_value, is_columns
from arrester.domain.wire.failure_columns import (
    Element,
    FailedRecords,
    decode_unchecked,
    expand,
)

_pack = msgspec.msgpack.Encoder()
_unpack_event = msgspec.msgpack.Decoder(Event)
_unpack_element = msgspec.msgpack.Decoder(Event | FailedRecords)
_unpack_elements = msgspec.msgpack.Decoder(list[Event | FailedRecords])
_unpack_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])


class UnreadableEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that cannot be decoded: to be quarantined with the reason, never dropped."""

    raw: bytes
    reason: str


class ReadBatch(NamedTuple):
    """A valid batch: its events without their bodies, its unchanged parts, and its size."""

    elements: list[Element]
    packed: Packed
    #: The bytes of the events without bodies, unpacked.
    size: int


def read_batch(batch: bytes) -> ReadBatch | None:
    """Return a batch that was received.

    None if not all events can be decoded, one exceeds a limit, or a body is not in its place.
    Raises MalformedBatch if the bytes are not a batch, or all events together exceed a limit.
    """
    unpacked, bodies = inflated(without_format(batch))
    try:
        elements = _within_limits(unpacked)
    except DECODE_ERRORS:
        return None
    if elements is None or not all(map(_is_valid, elements)):
        return None
    heads = batch[: len(batch) - len(bodies)]
    return ReadBatch(elements, Packed(heads=heads, bodies=bodies or None), len(unpacked))


def _within_limits(unpacked: bytes) -> list[Element] | None:
    """Return received events; None if one exceeds a limit. A large batch is decoded event by
    event, so that few of them take much memory at a time."""
    if len(unpacked) <= limits.SMALL_BYTES:
        return all_in_utc(_unpack_elements.decode(unpacked))
    raws = each_head(unpacked)
    if len(unpacked) > limits.AT_ONCE_BYTES:
        limits.check_batch(raws)
        if any(map(limits.too_large, raws)):
            return None
        elements = list(limits.counted(map(_unpack_element.decode, raws)))
    else:
        elements = _unpack_elements.decode(unpacked)
    for raw, each in zip(raws, elements, strict=True):
        if isinstance(each, Event) and limits.exceeds(raw, each):
            return None
    return all_in_utc(elements)


def _is_valid(elements: Element) -> bool:
    if isinstance(elements, FailedRecords):
        return is_complete(elements)
    return elements.body is None and incomplete(elements) is None


def decode_batch(packed: bytes) -> list[Event | UnreadableEvent]:
    """Return the events of a batch one by one: an invalid event does not affect the others.

    Raises MalformedBatch if the bytes are not a batch, or all events together exceed a limit.
    """
    heads, rest = inflated(without_format(packed))
    try:
        single = each_head(heads)
        limits.check_batch(single)
        raws = chain.from_iterable(map(_expand_columns, single))
        bodies = each_value(_single_bodies(rest)) if rest else []
        joined = map(_with_body, raws, chain(bodies, repeat(NO_BODY)))
        return list(limits.counted(map(decode_event, joined)))
    except (ValueError, RecursionError) as exc:
        raise MalformedBatch(f"not a packed list of events: {exc}") from exc


def _single_bodies(packed: bytes) -> bytes:
    unpacked, _ = inflated(packed)
    limits.check_single_bodies(len(unpacked))
    return unpacked


def _expand_columns(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the events of columns one by one; anything else is returned unchanged.

    Values are not checked: the reader of an event reports an invalid one. Raises MalformedBatch for
    columns with an unknown number of events.
    """
    if not is_columns(raw):
        return [raw]
    if (total := memoryview(raw).nbytes) > limits.AT_ONCE_BYTES:
        raise MalformedBatch(f"columns of {total:,} bytes with an invalid value")
    try:
        failed = decode_unchecked(raw)
        if failed.is_consistent():
            return [msgspec.Raw(encode_event(event)) for event in expand([failed])]
    except DECODE_ERRORS as exc:
        raise MalformedBatch(f"columns that are not understood: {exc}") from exc
    raise MalformedBatch("columns that do not fit each other")


def _with_body(head: msgspec.Raw, body: msgspec.Raw) -> bytes:
    """Return an event joined with its body."""
    if body == NO_BODY:
        return bytes(head)
    try:
        return _pack.encode(_unpack_map.decode(head) | {"body": body})
    except ValueError:
        # Not a map, so not an event: its reader reports why.
        return bytes(head)


def decode_event(packed: bytes) -> Event | UnreadableEvent:
    """Return one received event of a batch."""
    if wrong := limits.too_large(packed):
        return UnreadableEvent(raw=packed, reason=wrong)
    try:
        event = in_utc(_unpack_event.decode(packed))
    except (ValueError, OverflowError, RecursionError) as exc:
        return UnreadableEvent(raw=packed, reason=str(exc))
    wrong = incomplete(event) or limits.exceeds(packed, event)
    return event if wrong is None else UnreadableEvent(raw=packed, reason=wrong)
