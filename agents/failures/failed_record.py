"""A few failed records on the driver, with their problems."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.native_diagnosis import (
    Received,
    diagnose,
    diagnose_coordinates,
    received_columns,
)
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.frames.local_checkpoint import limit_per_partition
from arrester.agents.spark.jvm.plans.try_eval import VALUE, guarded
from arrester.agents.spark.jvm.stored_rows import to_driver
from arrester.agents.worker.columns import (
    ENTRY,
    ERROR,
    OUTCOME,
    POSITION,
    POSITION_RAISED,
    ROW,
    SOURCE,
    TASK,
    TASK_RAISED,
)
from arrester.domain.error_policy.exception_identity import Cause

_KEY = "__arrester_key"
_VALUE = "__arrester_value"
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType, T.YearMonthIntervalType)
_CARRIED = (ROW, TASK, POSITION, ENTRY, OUTCOME, ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRecord:
    """A failed record and its problem."""

    task: str | None
    position: int | None
    #: The journal entry that held it, 0 for a new record.
    entry: int
    #: The number of the step; 0 is the source.
    number: int
    stage: str
    problem: Problem
    #: The source row.
    row: Row
    key: str | None
    value: Any
    #: What the failed step received, if it is known.
    received: Received | None = None


def load(pipeline: Pipeline, failed: DataFrame) -> list[FailedRecord]:
    """Return the records of `failed`, a few rows of an evaluated frame, in their order."""
    return diagnosed(pipeline, fetched(pipeline, failed))


def fetched(pipeline: Pipeline, failed: DataFrame, *columns: str, most: int = 0) -> DataFrame:
    """Return rows of an evaluated frame on the driver, with their key and value, and `columns`.

    At most `most` rows of each partition are fetched; 0: all.
    """
    frame = failed.select(*_CARRIED, *columns, f"{ROW}.*")
    key = _safe(frame, pipeline.key).cast("string").alias(_KEY)
    value = _safe(frame, pipeline.value).alias(_VALUE)
    rows = frame.select(*_CARRIED, key, value, *columns)
    return to_driver(limit_per_partition(rows, most) if most else rows)


def diagnosed(pipeline: Pipeline, fetched: DataFrame) -> list[FailedRecord]:
    """Return the records of fetched rows with their problems, in order."""
    rows = _collected(fetched)
    numbers = [int(row[OUTCOME]) for row in rows]
    native = [pipeline.is_native(number) for number in numbers]
    problems = diagnose(fetched, pipeline, numbers) if any(native) else []
    received = received_columns(fetched, pipeline, numbers)
    reasons: list[Problem | None] = [None] * len(rows)
    raising = [_raising_expression(pipeline, row) for row in rows]
    if any(expression is not None for expression in raising):
        reasons = diagnose_coordinates(fetched, raising)
    return [
        FailedRecord(
            task=row[TASK],
            position=row[POSITION],
            entry=row[ENTRY],
            number=number,
            stage=pipeline.stages[number],
            problem=problems[n] if native[n] else _with_reason(_problem(row), reasons[n]),
            row=row[ROW],
            key=row[_KEY],
            value=row[_VALUE],
            received=received[n],
        )
        for n, (row, number) in enumerate(zip(rows, numbers, strict=True))
    ]


def _collected(fetched: DataFrame) -> list[Row]:
    """Return the rows; all times as text if Python cannot represent one of them."""
    try:
        return fetched.collect()
    except Exception:  # a date after 9999 or before Christ, an interval of months: Spark has those
        as_text = {
            name: F.col(name).cast(_as_text(fetched.schema[name].dataType))
            for name in (ROW, _VALUE)
        }
        return fetched.withColumns(as_text).collect()


def _as_text(kind: T.DataType) -> T.DataType:
    """Return a type with text instead of time types."""
    if isinstance(kind, _TIMES):
        return T.StringType()
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_as_text(kind.elementType), kind.containsNull)
    if isinstance(kind, T.MapType):
        texts = _as_text(kind.keyType), _as_text(kind.valueType)
        return T.MapType(*texts, kind.valueContainsNull)
    if isinstance(kind, T.StructType):
        fields = [
            T.StructField(field.name, _as_text(field.dataType), field.nullable)
            for field in kind.fields
        ]
        return T.StructType(fields)
    return kind


def _safe(frame: DataFrame, expression: Column | None) -> Column:
    """Return the value of an expression, NULL if it raises."""
    if expression is None:
        return F.lit(None).cast("string")
    return guarded(frame, expression, unless=F.lit(False))[VALUE]


def _problem(row: Row) -> Problem:
    error = row[ERROR]
    if error is None:
        return _position_problem(row)
    return Problem(
        exception_class=error["exception_class"],
        message=error["message"],
        stack=error["stack"],
        frame=error["frame"],
        condition=error["condition"],
        cause=Cause(names=tuple(error["names"]), condition=error["condition"]),
        attempts=error["attempts"],
        took_ms=error["took_ms"],
        inner_class=error["inner_class"],
        inner_condition=error["inner_condition"],
        field=error["field"],
    )


def _raising_expression(pipeline: Pipeline, row: Row) -> Column | None:
    """Return the expression that gave no task or position for a record, None if both are there."""
    kind = None if row[ERROR] is None else row[ERROR]["exception_class"]
    if row[OUTCOME] != SOURCE or kind not in (TASK_RAISED, POSITION_RAISED):
        return None
    return pipeline.task if kind == TASK_RAISED else pipeline.position.cast("long")


def _with_reason(problem: Problem, reason: Problem | None) -> Problem:
    """Return a problem with Spark's message. The class stays, since it identifies the failure."""
    if reason is None:
        return problem
    message = f"{problem.message}: {reason.exception_class}: {reason.message}"
    return replace(
        problem,
        message=message,
        condition=reason.condition,
        stack=reason.stack,
        inner_class=reason.inner_class,
        inner_condition=reason.inner_condition,
        field=reason.field,
    )


def _position_problem(row: Row) -> Problem:
    task = "the task without a key" if row[TASK] is None else f"task {row[TASK]!r}"
    if row[POSITION] is None:
        message = (
            f"the position is NULL in {task}; a record needs one to be paused and resumed at."
            " on_error= of the pipeline answers for records without one"
        )
        return Problem(exception_class="PositionMissing", message=message)
    message = f"position {row[POSITION]} is there more than once in {task} within a micro-batch"
    return Problem(exception_class="PositionNotUnique", message=message)
