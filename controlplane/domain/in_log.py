"""What a batch of the log tells, unpacked only as far as most readers look."""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec

from controlplane.domain.events import Event
from controlplane.domain.failed import FailedRecords, Told
from controlplane.domain.later import Later

_OF_EACH = get_type_hints(FailedRecords, include_extras=True)
#: The columns of which most values are wanted by nobody who reads the log.
_LATER = [msgspec.msgpack.Decoder(_OF_EACH[each]) for each in ("positions", "keys", "messages")]
#: They are the last ones.
_AT_ONCE = tuple(_OF_EACH.values())[: -len(_LATER)]
_columns_type: Any = tuple.__class_getitem__((*_AT_ONCE, *[msgspec.Raw] * len(_LATER)))
_unpack: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Event | _columns_type])


def in_part(packed: bytes) -> list[Told]:
    """Return what a batch tells that was understood when it came; who wants to know of a failed
    record where it was and what was said of it, has that unpacked then.

    Raises msgspec.DecodeError for what is no batch.
    """
    found = _unpack.decode(packed)
    return [_columns(each) if each.__class__ is tuple else each for each in found]


def _columns(values: tuple[Any, ...]) -> FailedRecords:
    first = len(_AT_ONCE)
    return FailedRecords(*values[:first], *map(Later, values[first:], _LATER))
