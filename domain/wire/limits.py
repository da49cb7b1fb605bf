"""Limits of what agents send. They are checked when it is received, never when the log is read:
the log may have larger events of earlier versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from arrester.domain.errors import MalformedBatch
from arrester.domain.events import Event, RecordFailed
from arrester.domain.wire.event_count import is_columns

T = TypeVar("T")
#: The most characters of a text. Agents cut the texts of failures at 4,000.
TEXT_CHARACTERS = 20_000
#: The end of a text that was cut.
CUT_MARK = "…[cut]"
#: The most values of a list or of a dictionary, and of all lists of a batch.
LIST_ITEMS, BATCH_ITEMS = 20_000, 100_000
#: An event without its body. The largest ones of agents report the failures of 200 tasks.
EVENT_BYTES = 4 * 2**20
#: All events of a batch without their bodies, apart from dead letters, whose ids are bytes.
BATCH_BYTES = 12 * 2**20
#: An entry of a stream with all of its fields, and the packed events in it: the others are ids.
#: Redis takes no larger values (`embedded/redis.py`, `docker/redis.sh`), but others may.
ENTRY_BYTES = 32 * 2**20
PACKED_BYTES = ENTRY_BYTES - 4 * 2**10
#: The columns of dead letters in a batch; agents divide larger ones.
COLUMNS_BYTES = 8 * 2**20
#: A body; agents cut records and stack traces at 16,000 bytes or characters each.
BODY_BYTES, BODY_DEPTH = 256 * 2**10, 100
#: The bodies of a batch whose events are read one by one, since one of them is invalid.
SINGLE_BODIES_BYTES = 2 * 2**20
#: No text and no list of so few bytes is too long.
SMALL_BYTES = min(TEXT_CHARACTERS, LIST_ITEMS)
#: Larger batches are decoded event by event, and so are columns with invalid values up to this.
AT_ONCE_BYTES = 2**20
_DEAD_LETTERS = ("RecordsDeadLettered", "RecordsRedriven")


class _Tagged(msgspec.Struct):
    type: str


class _Head(msgspec.Struct):
    data: _Tagged


class _WithBody(msgspec.Struct):
    body: msgspec.Raw = msgspec.Raw()


_unpack_head = msgspec.msgpack.Decoder(_Head)
_unpack_with_body = msgspec.msgpack.Decoder(_WithBody)


def check_batch(raws: Iterable[msgspec.Raw]) -> None:
    """Raise MalformedBatch if the packed heads of a batch exceed BATCH_BYTES, or the bodies within
    them SINGLE_BODIES_BYTES."""
    total = bodies = 0
    for raw in raws:
        size = _size(raw)
        if size <= SMALL_BYTES or not _of_ids(raw):
            total += size
            bodies += _body_bytes(raw) if size > SMALL_BYTES else 0
    check_single_bodies(bodies)
    if total > BATCH_BYTES:
        raise MalformedBatch(
            f"its events have {total:,} bytes without bodies and dead letters;"
            f" at most {BATCH_BYTES:,} are allowed"
        )


def check_single_bodies(size: int) -> None:
    """Raise MalformedBatch if the bodies of events that are read one by one have more bytes than
    allowed."""
    if size > SINGLE_BODIES_BYTES:
        raise MalformedBatch(
            f"bodies of {size:,} bytes; at most {SINGLE_BODIES_BYTES:,} are read one by one"
        )


def _of_ids(raw: msgspec.Raw) -> bool:
    """Return whether a head has the ids of dead letters."""
    try:
        return not is_columns(raw) and _unpack_head.decode(raw).data.type in _DEAD_LETTERS
    except (ValueError, RecursionError):
        return False


def too_large(head: bytes | msgspec.Raw) -> str | None:
    """Return which limit a packed event exceeds before it is decoded, or None."""
    size = _size(head)
    if size > EVENT_BYTES:
        return f"the event has {size:,} bytes; at most {EVENT_BYTES:,} are allowed"
    if size > BODY_BYTES and (body := _body_bytes(head)) > BODY_BYTES:
        return f"the body of the event has {body:,} bytes; at most {BODY_BYTES:,} are allowed"
    return None


def _body_bytes(head: bytes | msgspec.Raw) -> int:
    """Return the bytes of a body that is within an event."""
    try:
        return _size(_unpack_with_body.decode(head).body)
    except (ValueError, RecursionError):
        return 0


def with_short_texts(event: Event) -> Event:
    """Return an event whose texts have at most TEXT_CHARACTERS: reasons, names and messages of any
    length come from authors and their libraries. What was cut ends with CUT_MARK."""
    data = event.data
    if isinstance(data, RecordFailed) and _has_short_texts(data):
        return event
    short = _short(data)
    return event if short is data else replace(event, data=short)


def _has_short_texts(data: RecordFailed) -> bool:
    """Return whether the texts of a failed record are together short, as usual: there are many."""
    failure = data.failure
    size = len(failure.stage) + len(failure.exception_class) + len(failure.message)
    size += len(failure.frame or "") + len(failure.condition or "") + len(data.key or "")
    size += len(failure.inner_class or "") + len(failure.inner_condition or "")
    size += len(failure.field or "")
    return size <= TEXT_CHARACTERS


def _short(value: Any) -> Any:
    """Return a value with short texts; the same one if it has no longer ones."""
    if isinstance(value, str):
        cut = TEXT_CHARACTERS - len(CUT_MARK)
        return value if len(value) <= TEXT_CHARACTERS else value[:cut] + CUT_MARK
    if isinstance(value, msgspec.Struct):
        fields = [(name, getattr(value, name)) for name in value.__struct_fields__]
        changed = {name: new for name, part in fields if (new := _short(part)) is not part}
        return replace(value, **changed) if changed else value
    if isinstance(value, tuple):
        parts = tuple(map(_short, value))
        return value if parts == value else parts
    if isinstance(value, dict):
        pairs = {_short(name): _short(part) for name, part in value.items()}
        return value if pairs == value else pairs
    return value


def exceeds(packed: bytes | msgspec.Raw, event: Event) -> str | None:
    """Return which limit a text or list of a decoded event exceeds, or None."""
    if _size(packed) <= SMALL_BYTES:
        return None
    return _exceeded(event.data, type(event.data).__name__)


def _exceeded(value: Any, name: str) -> str | None:
    if isinstance(value, str):
        size, most, unit = len(value), TEXT_CHARACTERS, "characters"
    elif isinstance(value, (tuple, dict)):
        size, most, unit = len(value), LIST_ITEMS, "values"
    else:
        size, most, unit = 0, 0, ""
    if size > most:
        return f"{name} has {size:,} {unit}; at most {most:,} are allowed"
    wrongs = (_exceeded(each, part) for part, each in _parts(value, name))
    return next(filter(None, wrongs), None)


def counted(decoded: Iterable[T]) -> Iterator[T]:
    """Yield decoded values; raise MalformedBatch when the lists of events have more than
    BATCH_ITEMS values."""
    total = 0
    for each in decoded:
        if isinstance(each, Event) and (total := total + _items(each.data)) > BATCH_ITEMS:
            raise MalformedBatch(f"its lists have more than {BATCH_ITEMS:,} values")
        yield each


def _items(value: Any) -> int:
    own = len(value) if isinstance(value, (tuple, dict)) else 0
    return own + sum(_items(each) for _, each in _parts(value, ""))


def _parts(value: Any, name: str) -> list[tuple[str, Any]]:
    """Return the values in a value, with names for people."""
    if isinstance(value, msgspec.Struct):
        return [(each, getattr(value, each)) for each in value.__struct_fields__]
    if isinstance(value, dict):
        return [(name, each) for pair in value.items() for each in pair]
    return [(name, each) for each in value] if isinstance(value, tuple) else []


def too_deep(value: Any) -> bool:
    """Return whether a record is nested deeper than BODY_DEPTH."""
    level = [value]
    for _ in range(BODY_DEPTH):
        level = [part for each in level for part in _within(each)]
        if not level:
            return False
    return True


def _within(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _size(raw: bytes | msgspec.Raw) -> int:
    return memoryview(raw).nbytes
