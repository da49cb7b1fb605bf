"""A transform in Python, in a module that its workers import without Spark and Arrester."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

#: The column of the departure's delay; flights that never left have no number there.
DELAY = 5


def with_lateness(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the minutes of delay as a column; raises ValueError for flights that never left."""
    for batch in batches:
        late = [int(value.split(",")[DELAY]) for value in batch["value"].to_pylist()]
        yield batch.append_column("late", pa.array(late, pa.int32()))
