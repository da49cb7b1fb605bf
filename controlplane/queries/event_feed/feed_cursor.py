"""The cursor of the feed: one position per log, in as few characters as possible.

It is part of a URL, and servers limit those to some thousand characters. Logs are identified by
their numbers, of which the differences are written, and the result is compressed: about four
characters per log.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise

from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.store.column_limits import MOST

#: The limit of an unpacked cursor, so that a short one does not become gigabytes.
_MOST_BYTES = 2**20


def pack(positions: Mapping[int, int]) -> str:
    """Return the positions of logs, by their numbers, as an opaque cursor."""
    ids = sorted(positions)
    steps = (later - earlier for earlier, later in pairwise([0, *ids]))
    written = _varints([len(ids), *steps, *(positions[id] for id in ids)])
    return base64.urlsafe_b64encode(zlib.compress(written, 9)).decode().rstrip("=")


def unpack(cursor: str) -> dict[int, int]:
    """Return the positions in a cursor; raise InvalidValue."""
    try:
        packed = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        decompress = zlib.decompressobj()
        count, *rest = _numbers(decompress.decompress(packed, _MOST_BYTES))
    except (ValueError, binascii.Error, zlib.error) as exc:
        raise _not_ours(cursor) from exc
    if len(rest) != 2 * count or not decompress.eof or max(rest, default=0) > MOST:
        raise _not_ours(cursor)
    return dict(zip(accumulate(rest[:count]), rest[count:], strict=True))


def _not_ours(cursor: str) -> InvalidValue:
    return InvalidValue("cursor", cursor, "what an earlier answer gave as cursor")


def _varints(numbers: Iterable[int]) -> bytes:
    """Return numbers in seven bits per byte, the lowest first; all but a number's last byte are
    marked."""
    found = bytearray()
    for number in numbers:
        while number > 0x7F:
            found.append(number & 0x7F | 0x80)
            number >>= 7
        found.append(number)
    return bytes(found)


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
