"""Transforms: steps that are functions of a DataFrame, and the records of the rows they return."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.checks import schema_difference
from arrester.agents.definition.steps import Transform
from arrester.agents.execution.row_steps import is_internal
from arrester.agents.spark.errors import StepFailed
from arrester.agents.spark.frames.column_names import quoted, with_columns_named
from arrester.agents.spark.jvm.exceptions.problems import problem_of_job
from arrester.agents.spark.jvm.plans.transform_analysis import with_column_of
from arrester.agents.worker.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    FILTERED,
    INTERNAL,
    LINK,
    ORDINAL,
    OUTCOME,
    POSITION,
    RETRIES,
    ROW,
    TASK,
)

#: The columns that identify the record of a row.
_RECORD = (ROW, TASK, POSITION, ENTRY)


def transformed(frame: DataFrame, step: Transform) -> DataFrame:
    """Return the function's result for the author's columns of `frame`."""
    return _call(step, with_columns_named(with_barrier(frame), _author_columns(frame)))


def after_transform(frame: DataFrame, step: Transform) -> DataFrame:
    """Return the rows of `frame`, a local checkpoint, after a transform that other steps follow.

    Failed rows pass unchanged. Each other record has one FILTERED row without the author's columns.
    The rows that the function returned for it follow, with the columns that identify the record.
    """
    linked = with_barrier(frame.where(F.col(OUTCOME).isNull())).withColumn(LINK, F.struct(*_RECORD))
    result = _call(step, with_columns_named(linked, _author_columns(frame)))
    # Another barrier: a later step's guard must not catch exceptions of the function's columns.
    rows = with_barrier(with_column_of(result, linked, LINK)).select(
        *[F.col(LINK)[name].alias(name) for name in _RECORD],
        F.lit(None).cast("int").alias(OUTCOME),
        F.lit(None).cast(ERROR_TYPE).alias(ERROR),
        # The first row of a record, with ORDINAL 0, is the FILTERED one.
        F.lit(1).alias(ORDINAL),
        F.lit(0).cast("long").alias(RETRIES),
        *[quoted(name) for name in result.columns],
    )
    records = frame.select(
        *[
            F.coalesce(OUTCOME, F.lit(FILTERED)).alias(OUTCOME) if name == OUTCOME else name
            for name in INTERNAL
        ],
        *[F.lit(None).cast(field.dataType).alias(field.name) for field in result.schema],
    )
    return records.union(rows)


def with_barrier(frame: DataFrame) -> DataFrame:
    """Return the same rows, with a barrier against the optimizer's filter pushdown.

    Without it, a filter of the function could run on excluded rows, such as failed ones.
    """
    return frame.where(F.spark_partition_id() >= 0)


def _call(step: Transform, rows: DataFrame) -> DataFrame:
    try:
        result = step.function(rows)
        if not isinstance(result, DataFrame):
            raise TypeError(f"a transform returns a DataFrame; got {type(result).__name__}")
        difference = schema_difference(step.schema, result.schema)
        if difference is not None:
            raise TypeError(f"a transform returns the same columns each time; {difference}")
    except Exception as exc:  # the author's code, on the driver: no record is the cause
        problem = problem_of_job(rows.sparkSession, exc)
        raise StepFailed(step.stage, problem, exc, why="on the driver", recordless=True) from exc
    return result


def _author_columns(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if not is_internal(name)]
