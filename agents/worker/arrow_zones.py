"""Times in a zone that Python knows. Java makes zones such as `UTC+01:00`, and names batches so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class InZone:
    """A function for `mapInArrow` whose batches have the same instants in another time zone."""

    function: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
    zone: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """Call the function with converted batches."""
        return self.function(map(self._converted, batches))

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [column.cast(_in_zone(column.type, self.zone)) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _in_zone(kind: Any, zone: str) -> Any:
    """Return a type with all its instants in another time zone, at any depth."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, zone)
    if pa.types.is_map(kind):
        return pa.map_(_in_zone(kind.key_type, zone), _in_zone(kind.item_type, zone))
    if pa.types.is_list(kind):
        return pa.list_(_in_zone(kind.value_type, zone))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_in_zone(each.type, zone)) for each in kind])
    return kind
