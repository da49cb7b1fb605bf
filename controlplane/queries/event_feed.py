"""The feed of all events, for followers: no event ever appears before a cursor.

Each log is appended to under its lock, so its positions are committed in order: a vector of one
position per log misses nothing, with any number of writers.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Annotated

import msgspec
from msgspec import Meta

from arrester.controlplane import store
from arrester.controlplane.store.column_values import MAX_BIGINT
from arrester.domain.errors import BeforeHistory, InvalidValue
from arrester.domain.events import StoredEvent

#: The limit of an unpacked cursor, so that a short one does not become gigabytes.
_MAX_BYTES = 2**20


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """Some events, each log's in order, and the cursor to continue with."""

    events: tuple[StoredEvent, ...]
    #: Always present: later events come after it.
    next: str
    more: Annotated[
        bool, Meta(description="True: more events are stored. False: repeat the request later.")
    ]
    #: The positions before the events, by the numbers of the logs, and these numbers by name.
    begin: Mapping[int, int]
    ids: Mapping[str, int]

    def cursors(self) -> Iterator[str]:
        """Yield the cursor after each of the events."""
        positions = dict(self.begin)
        for each in self.events:
            positions[self.ids[each.application]] = each.sequence
            yield pack_cursor(positions)


def feed(
    application: str | None = None,
    *,
    cursor: str | None = None,
    last: int | None = None,
    limit: int = 100,
) -> Feed:
    """Return the events after a cursor, in all logs or in one; without a cursor from the beginning,
    or the `last` ones of each log.

    A cursor before the retained log raises BeforeHistory: start again without it.
    """
    positions = {} if cursor is None else unpack_cursor(cursor)
    streams = [store.read_stream(application)] if application else store.all_streams()
    bases = store.bases()
    read = {
        stream.application: _begin(
            stream,
            bases.get(stream.application, store.LogBeginning()),
            positions.get(stream.id),
            last,
        )
        for stream in streams
    }
    ends = {stream.application: stream.sequence for stream in streams}
    begin = positions | {each.id: read[each.application] for each in streams}
    behind = {name: at for name, at in read.items() if at < ends[name]}
    events = store.read_following(behind, limit=limit)
    firsts = {each.application: each.sequence for each in reversed(events)}
    if any(first > read[name] + 1 for name, first in firsts.items()):
        # Retention has dropped events since the beginnings of the logs were read.
        return feed(application, cursor=cursor, last=last, limit=limit)
    for each in events:
        read[each.application] = max(read[each.application], each.sequence)
    return Feed(
        events=tuple(events),
        next=pack_cursor(positions | {each.id: read[each.application] for each in streams}),
        more=any(read[name] < end for name, end in ends.items()),
        begin=begin,
        ids={each.application: each.id for each in streams},
    )


def _begin(
    stream: store.LogStream, base: store.LogBeginning, position: int | None, last: int | None
) -> int:
    if position is None:
        return base.position if last is None else max(base.position, stream.sequence - last)
    if position < base.position:
        raise BeforeHistory(stream.application, position=base.position, moment=base.received_at)
    if position > stream.sequence:
        given = f"{stream.application} @{position}"
        raise InvalidValue("cursor", given, f"up to @{stream.sequence}")
    return position


def pack_cursor(positions: Mapping[int, int]) -> str:
    """Return the positions of logs, by their numbers, as an opaque cursor.

    It is part of a URL, and servers limit those to some thousand characters. Logs are identified by
    their numbers, of which the differences are written, and the result is compressed: about four
    characters per log.
    """
    ids = sorted(positions)
    steps = (later - earlier for earlier, later in pairwise([0, *ids]))
    packed = _varints([len(ids), *steps, *(positions[id] for id in ids)])
    return base64.urlsafe_b64encode(zlib.compress(packed, 9)).decode().rstrip("=")


def unpack_cursor(cursor: str) -> dict[int, int]:
    """Return the positions in a cursor; raise InvalidValue."""
    try:
        packed = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        decompress = zlib.decompressobj()
        count, *rest = _numbers(decompress.decompress(packed, _MAX_BYTES))
        if len(rest) != 2 * count or not decompress.eof or max(rest, default=0) > MAX_BIGINT:
            raise ValueError("it is incomplete or too long")
    except (ValueError, binascii.Error, zlib.error) as exc:
        raise InvalidValue("cursor", cursor, "`next` of an earlier response") from exc
    return dict(zip(accumulate(rest[:count]), rest[count:], strict=True))


def _varints(numbers: Iterable[int]) -> bytes:
    """Return numbers in seven bits per byte, the lowest first; all but a number's last byte are
    marked."""
    packed = bytearray()
    for number in numbers:
        while number > 0x7F:
            packed.append(number & 0x7F | 0x80)
            number >>= 7
        packed.append(number)
    return bytes(packed)


def _numbers(packed: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
        elif shift > 63:
            raise ValueError("a number of too many bits")
    if shift:
        raise ValueError("it is cut off")
