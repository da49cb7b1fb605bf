"""Packed lists: the compressed parts of a batch."""

from __future__ import annotations

import zlib

from arrester.controlplane.domain.errors import MalformedBatch

#: The first byte of a batch: the version of this format.
FORMAT = b"\x01"
#: A batch that unpacks to more than this is foreign; ours are some hundreds of events.
BATCH_MAX_BYTES = 64 * 2**20


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
