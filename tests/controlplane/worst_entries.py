"""The largest entries that the wire format can carry: of each kind of event, and of each part of a
batch. Most are compressed to a small part of their size."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec

from arrester.domain.events import EVENT_TYPES
from arrester.domain.wire import codec, limits
from arrester.domain.wire.event_count import BATCH_EVENTS_LIMIT
from tests.controlplane.streams import SPOOL
from tests.histories import RUN

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
Fields = dict[str, str | bytes]
#: The parts of an entry that are not a kind of event.
PARTS = (
    "large texts",
    "large entry",
    "many fields",
    "columns",
    "bodies",
    "nested bodies",
    "inner bodies",
)
KINDS = (*EVENT_TYPES, *PARTS)
#: A character of four bytes makes a text take four bytes for each of its characters.
WIDE = "\U0001f6eb"


def entries(kind: str) -> Iterator[Fields]:
    """Yield entries with the largest values of a kind: above the limits, then just within them."""
    if kind in PARTS:
        yield from _part(kind)
        return
    above = _event(kind, text="x" * 2**20, items=50_000)
    yield _entry(_list([above] * min(BATCH_EVENTS_LIMIT, limits.BATCH_BYTES // len(above) + 1)))
    text = "x" * (limits.TEXT_CHARACTERS - 1) + WIDE
    for within in {_event(kind, text=text, items=each) for each in (200, limits.LIST_ITEMS)}:
        number = min(BATCH_EVENTS_LIMIT, limits.BATCH_BYTES // len(within))
        for size in {number, limits.AT_ONCE_BYTES // len(within)} - {0}:
            yield _entry(_list([within] * size))


def _part(part: str) -> Iterator[Fields]:
    good = _event("RecordFailed", text="x", items=1)
    match part:
        case "large texts":
            text = _event("InstanceStopping", text="x" * (60 * 2**20), items=1)
            fields = _entry(_list([text]))
            yield from (fields | {"batch": str(uuid4())} for _ in range(10))
        case "large entry":
            # Redis refuses larger values.
            yield _entry(os.urandom(65 * 2**19))
            yield {f"{number}": os.urandom(2**20) for number in range(40)}
        case "many fields":
            yield {f"field {number}": "" for number in range(200_000)}
        case "columns":
            many = b"\xdd" + (10 * 2**20).to_bytes(4, "big") + b"\x90" * (10 * 2**20)
            yield _entry(_list([b"\xdc\x00\x10" + b"\x90" * 12 + many + b"\x90" * 3]))
        case "bodies":
            text = msgspec.msgpack.encode({"stack": "x" * (60 * 2**20)})
            yield _entry(_list([good]), _list([text]))
            some = msgspec.msgpack.encode({"record": {"a": [[]] * 250_000}})
            yield _entry(_list([good] * 200), _list([some] * 200))
            yield _entry(_list([good, b"\x01"]), _list([some] * 200))
        case "nested bodies":
            yield _entry(_list([good]), _list([b"\x81\xa6record" + b"\x81\xa1a" * 10**6 + b"\x01"]))
            yield _entry(_list([good]), b"\x91" * 10**7)
        case "inner bodies":
            body: dict[str, Any] = {"record": {"a": [[]] * 250_000}}
            inner = msgspec.msgpack.encode(msgspec.msgpack.decode(good) | {"body": body})
            yield _entry(_list([inner] * 40))


def _entry(heads: bytes, bodies: bytes | None = None) -> Fields:
    """Return an entry; `heads` and `bodies` are unpacked lists."""
    lists = [zlib.compress(each, level=1) for each in (heads, bodies) if each is not None]
    batch = codec.FORMAT + b"".join(lists)
    return {"batch": str(uuid4()), "spool": str(SPOOL), "events": batch}


def _list(values: list[bytes]) -> bytes:
    return msgspec.msgpack.encode([msgspec.Raw(each) for each in values])


def _event(kind: str, *, text: str, items: int) -> bytes:
    """Return a packed event of a kind, of which each text and each list has a size."""
    data = _struct(EVENT_TYPES[kind], text=text, items=items)
    envelope = {"occurred_at": NOW, "data": data, "instance": str(UUID(int=1)), "run": RUN}
    return msgspec.msgpack.encode(envelope)


def _struct(cls: type[Any], *, text: str, items: int) -> dict[str, Any]:
    info = msgspec.inspect.type_info(cls)
    assert isinstance(info, msgspec.inspect.StructType)
    values = {
        each.encode_name: _value(each.type, each.encode_name, text=text, items=items)
        for each in info.fields
    }
    return values | ({"type": info.tag} if info.tag else {})


def _value(kind: Any, name: str, *, text: str, items: int) -> Any:
    """Return the largest value of a type; names that are keys are valid."""
    inspect = msgspec.inspect
    match kind:
        case inspect.Metadata():
            return _value(kind.type, name, text=text, items=items)
        case inspect.UnionType():
            (first, *_) = (each for each in kind.types if not isinstance(each, inspect.NoneType))
            return _value(first, name, text=text, items=items)
        case inspect.StructType():
            return _struct(kind.cls, text=text, items=items)
        case inspect.StrType():
            return "a" * 200 if name == "fingerprint" else text
        case inspect.BytesType():
            return b"x" * len(text)
        case inspect.DictType():
            value = _value(kind.value_type, name, text="y", items=1)
            return {f"{number:x}": value for number in range(items)}
        case inspect.VarTupleType() | inspect.ListType():
            return [_value(kind.item_type, "", text="ab", items=1)] * items
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.EnumType():
            return next(iter(kind.cls)).value
        case inspect.DateTimeType():
            return NOW
        case inspect.UUIDType():
            return str(UUID(int=2))
        case inspect.BoolType():
            return True
        case inspect.FloatType():
            return 1.5
        case inspect.IntType():
            return 1
    raise AssertionError(f"{name} has a type that this test does not know: {kind}")
