"""The two lists of a batch, each compressed: heads, then bodies."""

from __future__ import annotations

import zlib
from typing import Annotated

import msgspec

from arrester.controlplane.domain.errors import MalformedBatch

#: A batch that unpacks to more than this is foreign; ours are some hundreds of events.
BATCH_MAX_BYTES = 64 * 2**20
#: A batch of more events is foreign, too. A few bytes can encode millions, each of which the fold
#: would expand; agents send at most 500.
BATCH_MOST_EVENTS = 10_000
#: The first byte of a batch: the version of this format.
FORMAT = b"\x01"
#: In columns, an event takes a byte in each of six.
_LEAST_BYTES = 6
#: The first byte of an array of 16 or more values: columns, whereas single events are maps.
_MANY = (0xDC, 0xDD)

_unpack_list = msgspec.msgpack.Decoder(list[msgspec.Raw])
_unpack_bounded: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(
    Annotated[list[msgspec.Raw], msgspec.Meta(max_length=BATCH_MOST_EVENTS)]
)


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


def may_be_too_many(heads: bytes) -> bool:
    """Return whether heads may contain more than BATCH_MOST_EVENTS."""
    return len(heads) > _LEAST_BYTES * BATCH_MOST_EVENTS


def each_head(heads: bytes) -> list[msgspec.Raw]:
    """Return the packed heads of a batch, at most BATCH_MOST_EVENTS events.

    They are counted before any of them is made. Raises MalformedBatch for more, and
    msgspec.DecodeError if it is not a list.
    """
    raws = _bounded(heads)
    if sum(_longest(raw) if is_columns(raw) else 1 for raw in raws) > BATCH_MOST_EVENTS:
        raise _too_many()
    return raws


def each_body(bodies: bytes) -> list[msgspec.Raw]:
    """Return the bodies of a batch; raises as `each_head` does."""
    return _bounded(bodies)


def is_columns(raw: msgspec.Raw) -> bool:
    """Return whether a head is columns rather than a single event."""
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
    """Return the declared length of an array; 0 if it is not an array."""
    kind = packed[0]
    if kind in _MANY:
        return int.from_bytes(packed[1 : 3 if kind == _MANY[0] else 5])
    return kind & 0x0F if kind & 0xF0 == 0x90 else 0


def _too_many() -> MalformedBatch:
    return MalformedBatch(f"a batch of more than {BATCH_MOST_EVENTS} events")
