"""Read the rows to send from Arrow batches, with their coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from .arrow_reader import Row, Unreadable, records
from .columns import ENTRY, ERROR, POSITION, RANK, RETRIES, STOPPED, TASK

#: The place of a record in its task: by entry, then by position.
Place = tuple[int, "int | None"]


@dataclass(frozen=True, kw_only=True)
class PlacedRow:
    """A row and its coordinates. In place of an unreadable row, `row` is the reason."""

    task: str | None
    entry: int
    position: int | None
    row: Row | Unreadable
    #: The number of the row while a crashing record is isolated.
    rank: int | None = None

    @property
    def place(self) -> Place:
        """The place of its record in the task."""
        return self.entry, self.position


def placed_rows(batch: pa.RecordBatch) -> Iterator[PlacedRow]:
    """Yield the rows of a batch. In place of an unreadable row, its reason is yielded."""
    coordinates = [
        batch.column(batch.schema.get_field_index(name)).to_pylist()
        for name in (TASK, ENTRY, POSITION)
    ]
    index = batch.schema.get_field_index(RANK)
    ranks = [None] * batch.num_rows if index < 0 else batch.column(index).to_pylist()
    authors = records(batch)
    for number, (task, entry, position, rank) in enumerate(zip(*coordinates, ranks, strict=True)):
        row = authors.unreadable.get(number, authors.rows[number])
        yield PlacedRow(task=task, entry=entry, position=position, row=row, rank=rank)


def result_schema(batch: pa.RecordBatch) -> pa.Schema:
    """Return the schema of the result. For the type of ERROR, the batch has a column of NULLs."""
    present = [batch.schema.field(name) for name in (TASK, ENTRY, POSITION, ERROR)]
    return pa.schema([*present, pa.field(RETRIES, pa.int64()), pa.field(STOPPED, pa.bool_())])
