"""Encode and decode packed batches of events, and single events; the heartbeat's format."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from arrester.domain.errors import MalformedBatch
from arrester.domain.events import BacklogUnit, Count, Data, Event, Moment, Run
from arrester.domain.python_versions import UTC
from arrester.domain.wire import limits
from arrester.domain.wire.event_count import each_head
from arrester.domain.wire.failure_columns import (
    Element,
    FailedRecords,
    size,
    to_columns,
)

#: The first byte of a batch: the version of this format.
FORMAT = b"\x01"
#: A list that unpacks to more than this is foreign; ours are some hundreds of events.
BATCH_MAX_BYTES = 64 * 2**20
#: The most events that an agent packs into one batch. It decides which events of a journal entry
#: have which batch id, so it never changes.
BATCH_MAX_EVENTS = 500

_pack = msgspec.msgpack.Encoder()
#: The packed form of "no body".
NO_BODY = msgspec.Raw(_pack.encode(None))
_unpack_elements = msgspec.msgpack.Decoder(list[Event | FailedRecords])
#: Raised for invalid bytes or values.
DECODE_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    RecursionError,
)


class InProgress(Data, frozen=True, kw_only=True):
    """The micro-batch or the chunk of held records that a run processes now."""

    pipeline: str
    #: `batch 7` or `held records`, as in the descriptions of Spark's jobs.
    input: Annotated[str, Meta(description="Such as `batch 7` or `held records`.")]
    #: `fast path`, `evaluate`, `decide`, `store decision`, `write`; None: not begun.
    phase: Annotated[str | None, Meta(description="Such as `evaluate` or `write`.")] = None
    #: By the clock of the instance.
    since: Annotated[Moment, Meta(description="When its processing began.")]


class RunFlow(Data, frozen=True, kw_only=True):
    """What flows through a run now."""

    pipeline: str
    checkpoint: str
    #: Of the last micro-batch, or of held records while some are left; None: unknown.
    rows_per_second: Annotated[float | None, Meta(description="Of the last micro-batch.")] = None
    #: By the clock of the instance.
    last_batch_at: Annotated[
        Moment | None, Meta(description="The end of the last micro-batch of this run.")
    ] = None
    #: What the source has unread; None: it does not report it.
    backlog: Annotated[Count | None, Meta(description="What the source has, unread.")] = None
    backlog_unit: Annotated[BacklogUnit | None, Meta(description="What it is counted in.")] = None


class Heartbeat(Data, frozen=True, kw_only=True):
    """The report of an instance every 5 s, in a key that expires; not an event."""

    at: Moment
    status: str
    runs: tuple[Run, ...] = ()
    #: One at most of each run.
    in_progress: tuple[InProgress, ...] = ()
    #: One at most of each run; none: an older agent.
    flow: tuple[RunFlow, ...] = ()
    #: Events that the server has not confirmed yet.
    spooled: Count = 0
    #: Failed records that were only counted so far.
    counted_only: Count = 0
    #: The packed size of those events, and when the oldest of them was made.
    spool_bytes: Count = 0
    spool_since: Moment | None = None
    #: Batches that were dropped: disk and memory were full.
    batches_dropped: Count = 0
    #: The hash of its tasks that are not RUNNING, see `drift.state_hash`; None: not included.
    standing: str | None = None


class Packed(NamedTuple):
    """A batch as sent and stored: its events without their bodies, and the bodies."""

    heads: bytes
    #: The packed bodies; None: no event has one.
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
    if len(heads) > limits.BATCH_BYTES:
        limits.check_batch(each_head(heads))
    packed = FORMAT + b"".join(map(compressed, lists))
    if len(packed) > limits.PACKED_BYTES:
        raise MalformedBatch(f"{len(packed):,} bytes; at most {limits.PACKED_BYTES:,} are sent")
    return packed


def _lists(events: Sequence[Event]) -> tuple[bytes, bytes | None]:
    """Return the heads, and the bodies if there are any."""
    heads = (event if event.body is None else replace(event, body=None) for event in events)
    elements = list(to_columns(heads))
    bodies = [event.body for event in events]
    return _pack.encode(elements), _pack.encode(bodies) if any(bodies) else None


def compressed(unpacked: bytes) -> bytes:
    """Return a compressed list."""
    return zlib.compress(unpacked, level=1)


def without_format(batch: bytes) -> bytes:
    """Return what follows the format's version; raises MalformedBatch for another version."""
    if not batch.startswith(FORMAT):
        raise MalformedBatch(
            f"batch format {batch[:1].hex() or 'missing'}; this version reads {FORMAT.hex()}"
        )
    return batch.removeprefix(FORMAT)


def inflated(packed: bytes) -> tuple[bytes, bytes]:
    """Return the first list, and the bytes after it.

    Raises MalformedBatch if there is none, or if it is too large.
    """
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


def all_in_utc(elements: Iterable[Element]) -> list[Element]:
    """Return the elements, each event with its time in UTC."""
    return [in_utc(each) if each.__class__ is Event else each for each in elements]


def decode_elements(heads: bytes) -> list[Element]:
    """Return the events of a stored batch without their bodies.

    Raises MalformedBatch if they cannot be read.
    """
    try:
        return all_in_utc(_unpack_elements.decode(inflated(without_format(heads))[0]))
    except DECODE_ERRORS as exc:
        raise MalformedBatch(f"not a packed list of events: {exc}") from exc


def decode_events_at(heads: bytes, indexes: Iterable[int]) -> dict[int, Event]:
    """Return the events at some places of a batch, as `decode_elements` does."""
    wanted, events, begin = set(indexes), {}, 0
    for each in decode_elements(heads):
        end = begin + size([each])
        for index in wanted.intersection(range(begin, end)):
            events[index] = each.event(index - begin) if isinstance(each, FailedRecords) else each
        begin = end
    if len(events) < len(wanted):
        raise MalformedBatch(f"{begin} events, {max(wanted)} is none of them")
    return events


def encode_event(event: Event) -> bytes:
    """Return one event packed, as in a batch."""
    return _pack.encode(event)


def in_utc(event: Event) -> Event:
    """Return the event with its time in UTC: states must be equal from the wire and from the
    store."""
    if event.occurred_at.tzinfo is UTC:
        return event
    return replace(event, occurred_at=event.occurred_at.astimezone(UTC))


def parse_uuid(text: bytes | str | None, what: str) -> UUID:
    """Return the UUID in `text`, else raise MalformedBatch naming `what`."""
    try:
        return UUID(text.decode() if isinstance(text, bytes) else text or "")
    except (ValueError, UnicodeDecodeError) as exc:
        raise MalformedBatch(f"{what}: {text!r} is not a UUID") from exc
