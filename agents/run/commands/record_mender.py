"""Change the record that stopped a task by a JSON Patch; it keeps its place among the held ones."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.batch.record_columns import with_internal_columns, with_outcome
from arrester.agents.dead_letters.row_json import (
    PARSED_ROW,
    PROBLEM,
    row_as_json,
    unsupported_columns,
    with_parsed_rows,
)
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.held.next_chunks import first_record
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import HeldCount, MendedRecord
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.task_ledger import TaskLedger
from arrester.agents.spark.frames.local_frame import local_frame
from arrester.agents.spark.job_description import JobDescription
from arrester.agents.worker.columns import MENDED_BY, POSITION, ROW, TASK
from arrester.domain.errors import ArresterError
from arrester.domain.json_patch import JsonPatch

_TEXT = "__arrester_text"
_CHANGED = T.StructType(
    [
        T.StructField(TASK, T.StringType()),
        T.StructField(POSITION, T.LongType()),
        T.StructField(_TEXT, T.StringType()),
    ]
)


class RecordNotMended(ArresterError):
    """The record cannot be changed, or its changed rows do not fit; nothing is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedMend:
    """The changed record, saved. Nothing has changed until an entry of the journal has it."""

    mended: MendedRecord
    folder: str
    held: HeldCount


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMender:
    """Changes held records of one run."""

    pipeline: Pipeline
    journal: Journal
    held_store: HeldStore
    jobs: JobDescription

    def save(self, task: TaskLedger, patch: str) -> SavedMend:
        """Save the rows of the record that stopped a task, each changed by the patch.

        Raises RecordNotMended, also if the changed record had another task or position: it could
        not keep its place. Reading, changing and writing may raise any other exception.
        """
        number = self.journal.next_number
        with self.jobs.of_held_records():
            rows = self.changed(task, patch)
            assert task.cursor is not None and task.stopped_by is not None
            entry, position = task.cursor.entry, task.stopped_by.position
            assert position is not None
            row, by = F.col(PARSED_ROW).alias(ROW), F.lit(number).alias(MENDED_BY)
            changed = rows.select(TASK, POSITION, row, by)
            name = self.held_store.save_again(changed, order=entry)
        # The rows that they replace are counted.
        held = HeldCount(task=task.state.id.key, count=0, first=position, last=position)
        mended = MendedRecord(entry=entry, position=position, by=number)
        return SavedMend(mended=mended, folder=name, held=held)

    def changed(self, task: TaskLedger, patch: str | None) -> DataFrame:
        """Return the rows of the record that stopped a task, changed: TASK, POSITION, PARSED_ROW.

        Without a patch, they are as they were. Raises as `save` does; nothing is saved.
        """
        if task.cursor is None or task.stopped_by is None or task.stopped_by.position is None:
            raise RecordNotMended("it has no record with a known position")
        if wrong := unsupported_columns(self.pipeline.source.schema):
            raise RecordNotMended(f"{', '.join(wrong)} cannot be read from JSON as it was")
        rows = self._changed(task, patch)
        self._check(task, rows)
        return rows

    def _changed(self, task: TaskLedger, patch: str | None) -> DataFrame:
        """Return the changed rows: TASK, POSITION, PARSED_ROW and PROBLEM."""
        chunk = first_record(self.held_store, self.journal.ledger, task.state.id.key)
        rows = self.held_store.rows(self.journal.ledger, [chunk])
        text = F.expr(row_as_json(ROW, self.pipeline.source.schema)).alias(_TEXT)
        found = rows.select(TASK, POSITION, text).collect()
        change = None if patch is None else JsonPatch(patch).apply
        changed = [
            (row[TASK], row[POSITION], change(row[_TEXT]) if change else row[_TEXT])
            for row in found
        ]
        frame = local_frame(self.held_store.spark, changed, _CHANGED)
        return with_parsed_rows(frame, _TEXT, self.pipeline.source.schema)

    def _check(self, task: TaskLedger, rows: DataFrame) -> None:
        """Raise RecordNotMended unless the rows fit the source and keep their place."""
        problems = [row[PROBLEM] for row in rows.select(PROBLEM).collect()]
        if not problems:
            raise RecordNotMended(f"its rows are not in {self.held_store.root}")
        if problem := next(filter(None, problems), None):
            raise RecordNotMended(problem)
        source, coordinates = rows.select(f"{PARSED_ROW}.*"), self.pipeline.source_coordinates
        evaluated = with_internal_columns(
            with_outcome(source, self.pipeline, (), None), source.columns, coordinates
        )
        for row in evaluated.select(TASK, POSITION).collect():
            self._check_place(task, row[TASK], row[POSITION])

    @staticmethod
    def _check_place(task: TaskLedger, key: str | None, position: int | None) -> None:
        assert task.stopped_by is not None
        before = (task.state.id.key, task.stopped_by.position)
        if (key, position) != before:
            raise RecordNotMended(
                f"the changed record would be of task {key!r} at position {position}; it must stay"
                f" {before[0]!r} at {before[1]}, so change other columns"
            )
