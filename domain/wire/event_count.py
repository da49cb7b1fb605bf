"""Count the events of a batch before any of them is decoded."""

from __future__ import annotations

from typing import Annotated

import msgspec

from arrester.domain.errors import MalformedBatch

#: A batch of more events is foreign; ours are some hundreds. A few bytes can encode millions, each
#: of which the fold would expand.
BATCH_EVENTS_LIMIT = 10_000
#: The first byte of an array of 16 or more values: columns, whereas single events are maps.
_MANY = (0xDC, 0xDD)

_unpack_list = msgspec.msgpack.Decoder(list[msgspec.Raw])
_unpack_bounded: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(
    Annotated[list[msgspec.Raw], msgspec.Meta(max_length=BATCH_EVENTS_LIMIT)]
)


def each_head(heads: bytes) -> list[msgspec.Raw]:
    """Return the packed heads of a batch, at most BATCH_EVENTS_LIMIT events.

    They are counted before any of them is made. Raises MalformedBatch for more, and
    ValueError if it is not a list.
    """
    raws = each_value(heads)
    if sum(_longest(raw) if is_columns(raw) else 1 for raw in raws) > BATCH_EVENTS_LIMIT:
        raise _too_many()
    return raws


def is_columns(raw: msgspec.Raw) -> bool:
    """Return whether a head is columns rather than a single event."""
    return memoryview(raw)[0] in _MANY


def each_value(unpacked: bytes) -> list[msgspec.Raw]:
    """Return the packed values of a list; raises as `each_head` does."""
    try:
        return _unpack_bounded.decode(unpacked)
    except msgspec.ValidationError as exc:
        if _length(unpacked) > BATCH_EVENTS_LIMIT:
            raise _too_many() from exc
        raise


def _longest(columns: msgspec.Raw) -> int:
    return max(_length(bytes(memoryview(each)[:5])) for each in _unpack_list.decode(columns))


def _length(packed: bytes) -> int:
    """Return the declared length of an array; 0 if it is not an array."""
    kind = packed[0]
    if kind in _MANY:
        return int.from_bytes(packed[1 : 3 if kind == _MANY[0] else 5], "big")
    return kind & 0x0F if kind & 0xF0 == 0x90 else 0


def _too_many() -> MalformedBatch:
    return MalformedBatch(f"a batch of more than {BATCH_EVENTS_LIMIT} events")
