"""Read a batch of the log, unpacking only what most readers use."""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec

from arrester.controlplane.domain.events import Event
from arrester.controlplane.domain.wire.failure_columns import Element, FailedRecords
from arrester.controlplane.domain.wire.lazy_column import Later

_OF_EACH = get_type_hints(FailedRecords, include_extras=True)
#: The columns that most readers of the log do not use.
_LATER = {
    place: msgspec.msgpack.Decoder(_OF_EACH[name])
    for place, name in enumerate(FailedRecords._fields)
    if name in ("frames", "positions", "keys", "messages")
}
_types = [msgspec.Raw if place in _LATER else of for place, of in enumerate(_OF_EACH.values())]
_columns_type: Any = tuple.__class_getitem__(tuple(_types))
_unpack: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Event | _columns_type])


def in_part(packed: bytes) -> list[Element]:
    """Return the elements of a stored batch; position and failure of a failed record are unpacked
    on access.

    Raises msgspec.DecodeError if it is not a batch.
    """
    found = _unpack.decode(packed)
    return [_columns(each) if each.__class__ is tuple else each for each in found]


def _columns(packed: tuple[Any, ...]) -> FailedRecords:
    values = list(packed)
    for place, decoder in _LATER.items():
        values[place] = Later(values[place], decoder)
    return FailedRecords(*values)
