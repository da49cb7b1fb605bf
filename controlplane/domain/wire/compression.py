"""The lists that a batch consists of, compressed behind each other: heads first, then bodies."""

from __future__ import annotations

import zlib
from typing import Annotated

import msgspec

from arrester.controlplane.domain.errors import MalformedBatch

#: A batch that unpacks to more than this is foreign; ours are some hundreds of events.
BATCH_MAX_BYTES = 64 * 2**20
#: A batch of more events is foreign, too. Some bytes can say millions, each of which the fold
#: would lay out; those that agents send have 500 at most.
BATCH_MOST_EVENTS = 10_000
#: The first byte of a batch: the version of this format.
FORMAT = b"\x01"
#: In columns, an event takes a byte in each of six.
_LEAST_BYTES = 6
#: What begins an array of 16 values and more: columns, among events that are maps.
_MANY = (0xDC, 0xDD)

_unpack_list = msgspec.msgpack.Decoder(list[msgspec.Raw])
_unpack_bounded: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(
    Annotated[list[msgspec.Raw], msgspec.Meta(max_length=BATCH_MOST_EVENTS)]
)


def compressed(unpacked: bytes) -> bytes:
    """Return a list as it travels."""
    return zlib.compress(unpacked, level=1)


def without_format(batch: bytes) -> bytes:
    """Return what follows the format's version; raises MalformedBatch for another version."""
    if not batch.startswith(FORMAT):
        raise MalformedBatch(
            f"batch format {batch[:1].hex() or 'missing'}; this version reads {FORMAT.hex()}"
        )
    return batch.removeprefix(FORMAT)


def inflated(packed: bytes) -> tuple[bytes, bytes]:
    """Return the list that was compressed first, and the bytes behind it.

    Raises MalformedBatch where there is none, or where it is too large.
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


def may_be_too_many(heads: bytes) -> bool:
    """Return whether heads that are understood can be more than BATCH_MOST_EVENTS."""
    return len(heads) > _LEAST_BYTES * BATCH_MOST_EVENTS


def each_head(heads: bytes) -> list[msgspec.Raw]:
    """Return the heads of a batch, each as packed, of BATCH_MOST_EVENTS events at most.

    They are counted before one of them is made. Raises MalformedBatch for more, and
    msgspec.DecodeError for what is no list.
    """
    raws = _bounded(heads)
    if sum(_longest(raw) if is_columns(raw) else 1 for raw in raws) > BATCH_MOST_EVENTS:
        raise _too_many()
    return raws


def each_body(bodies: bytes) -> list[msgspec.Raw]:
    """Return the bodies of a batch; raises as `each_head` does."""
    return _bounded(bodies)


def is_columns(raw: msgspec.Raw) -> bool:
    """Return whether a head is columns, and no event for itself."""
    return memoryview(raw)[0] in _MANY


def _bounded(unpacked: bytes) -> list[msgspec.Raw]:
    try:
        return _unpack_bounded.decode(unpacked)
    except msgspec.ValidationError as exc:
        if _length(unpacked) > BATCH_MOST_EVENTS:
            raise _too_many() from exc
        raise


def _longest(columns: msgspec.Raw) -> int:
    return max(_length(bytes(memoryview(each)[:5])) for each in _unpack_list.decode(columns))


def _length(packed: bytes) -> int:
    """Return how many values an array says that it has; 0 where it is none."""
    kind = packed[0]
    if kind in _MANY:
        return int.from_bytes(packed[1 : 3 if kind == _MANY[0] else 5])
    return kind & 0x0F if kind & 0xF0 == 0x90 else 0


def _too_many() -> MalformedBatch:
    return MalformedBatch(f"a batch of more than {BATCH_MOST_EVENTS} events")
