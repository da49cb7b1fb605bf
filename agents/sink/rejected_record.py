"""Records that a sink rejects, made from their rows, and as rows to join with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.failures.pause_offsets import is_record
from arrester.agents.spark.errors import Problem, error_row
from arrester.agents.spark.frames.local_checkpoint import ID
from arrester.agents.spark.frames.local_frame import local_frame
from arrester.agents.worker.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    POSITION,
    RETRIES,
    TASK,
)
from arrester.domain.error_policy.policy import Policy

#: The row of a record, and the record.
PLACE: Final = (ID, TASK, ENTRY, POSITION)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRecord:
    """A record that a sink rejects, and its problem."""

    task: str | None
    entry: int
    position: int | None
    problem: Problem

    def is_at(self) -> Column:
        """Return whether a row belongs to this record."""
        return is_record(self.task, self.entry, self.position)


def record_at(row: Row, own_problem: Problem, problem: Problem) -> RejectedRecord:
    """Return the record of a row with the problem of the row.

    `problem` is the failure of the sink: attempts and duration are the sink's.
    """
    return RejectedRecord(
        task=row[TASK],
        entry=row[ENTRY],
        position=row[POSITION],
        problem=replace(own_problem, attempts=problem.attempts, took_ms=problem.took_ms),
    )


def records_at(
    rows: Sequence[Row], problems: Mapping[int, Problem], problem: Problem
) -> list[RejectedRecord]:
    """Return the records of rows, in their order, with the problems of the rows by ID.

    `problem` is as in `record_at`.
    """
    records: dict[tuple[object, ...], RejectedRecord] = {}
    for row in sorted(rows, key=itemgetter(ID)):
        record = record_at(row, problems[row[ID]], problem)
        # Several rows of a record may be refused.
        records.setdefault((record.task, record.entry, record.position), record)
    return list(records.values())


def rejected_rows(
    spark: SparkSession, records: Sequence[RejectedRecord], policy: Policy
) -> DataFrame:
    """Return the coordinates and errors of the records as a frame to join with."""
    schema = T.StructType().add(TASK, T.StringType()).add(ENTRY, T.IntegerType())
    schema = schema.add(POSITION, T.LongType()).add(ERROR, ERROR_TYPE).add(RETRIES, T.LongType())
    rows = [
        (each.task, each.entry, each.position, error_row(each.problem, policy), 0)
        for each in records
    ]
    return F.broadcast(local_frame(spark, rows, schema))
