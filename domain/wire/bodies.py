"""Read and erase the bodies of a packed batch."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from arrester.domain.errors import MalformedBatch
from arrester.domain.events import Body
from arrester.domain.wire import limits
from arrester.domain.wire.codec import NO_BODY, compressed, inflated

_pack = msgspec.msgpack.Encoder()
#: In place of an erased body.
_ERASED = msgspec.Raw(_pack.encode(Body(erased=True)))
_unpack_list = msgspec.msgpack.Decoder(list[msgspec.Raw])
_unpack_body = msgspec.msgpack.Decoder(Body | None)


def decode_body(bodies: bytes, index: int) -> Body | None:
    """Return one body of a batch; None if its event has none.

    A foreign sender's list may be short: the other events have none. Raises MalformedBatch if it
    cannot be read, or exceeds a limit: folds do not decode bodies.
    """
    raws = _bodies(bodies)
    return None if index >= len(raws) else _body(raws[index])


def decode_bodies(bodies: bytes, indexes: Iterable[int]) -> dict[int, Body]:
    """Return some bodies of a batch by index; those that cannot be read are left out."""
    try:
        raws = _bodies(bodies)
    except MalformedBatch:
        return {}
    found: dict[int, Body] = {}
    for index in indexes:
        with suppress(MalformedBatch):
            body = _body(raws[index]) if index < len(raws) else None
            if body is not None:
                found[index] = body
    return found


def _body(raw: msgspec.Raw) -> Body | None:
    size = memoryview(raw).nbytes
    if size > limits.BODY_BYTES:
        raise MalformedBatch(f"it has {size:,} bytes; at most {limits.BODY_BYTES:,} are read")
    try:
        body: Body | None = _unpack_body.decode(raw)
    except (ValueError, RecursionError) as exc:
        raise MalformedBatch(f"not a packed body: {exc}") from exc
    if body is None or (body.record is None and body.columns is None):
        return body
    if any(map(limits.too_deep, (body.record, body.columns))):
        raise MalformedBatch(f"its record is nested deeper than {limits.BODY_DEPTH} levels")
    return replace(body, record=_json(body.record), columns=_json(body.columns))


def _json(value: Any) -> Any:
    """Return a value with a text in place of each part that JSON does not have, such as infinity.

    Agents send none.
    """
    if isinstance(value, dict):
        return {str(name): _json(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, msgspec.msgpack.Ext):
        value = value.data
    if isinstance(value, bytes | bytearray | memoryview):
        # This is the form in which agents write bytes.
        return f"base64:{base64.b64encode(value).decode()}"
    return value if value is None or isinstance(value, str | int | float) else str(value)


def without_body(bodies: bytes, index: int) -> bytes:
    """Return the bodies of a batch with a tombstone in place of one; the bytes of the others are
    unchanged.

    Raises MalformedBatch if they cannot be read, or if there is no such body.
    """
    raws = _bodies(bodies)
    if index >= len(raws) or raws[index] in (NO_BODY, _ERASED):
        raise MalformedBatch(f"event {index} of the batch has no body")
    raws[index] = _ERASED
    return compressed(_pack.encode(raws))


def _bodies(bodies: bytes) -> list[msgspec.Raw]:
    try:
        return _unpack_list.decode(inflated(bodies)[0])
    except (ValueError, RecursionError) as exc:
        raise MalformedBatch(f"not a packed list of bodies: {exc}") from exc
