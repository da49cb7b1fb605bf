"""Functions for Python, in a module that its workers import without Spark and Arrester."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

#: The column of the departure's delay; flights that never left have no number there.
DELAY = 5


def with_lateness(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the minutes of delay as a column; raises ValueError for flights that never left."""
    for batch in batches:
        late = [int(value.split(",")[DELAY]) for value in batch["value"].to_pylist()]
        yield batch.append_column("late", pa.array(late, pa.int32()))


def row_with_lateness(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the minutes of delay; raises ValueError for a flight that never left."""
    return row | {"late": int(row["value"].split(",")[DELAY])}
