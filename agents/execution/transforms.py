"""Run a transform: the author's function of a DataFrame."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.checks import differs
from arrester.agents.definition.steps import Transform
from arrester.agents.execution.step_segments import in_quotes, is_ours
from arrester.agents.executor.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    FATE,
    FILTERED,
    INTERNAL,
    LINK,
    ORDINAL,
    POSITION,
    RETRIES,
    ROW,
    TASK,
)
from arrester.agents.spark.errors import StepFailed, problem_of_job
from arrester.agents.spark.plan_analysis import carrying

#: What identifies the record of a row.
_RECORD = (ROW, TASK, POSITION, ENTRY)


def transformed(frame: DataFrame, step: Transform) -> DataFrame:
    """Return the function's result for the author's columns of `frame`."""
    return _called(step, _fenced(frame).select(*_theirs(frame)))


def transformed_on(frame: DataFrame, step: Transform) -> DataFrame:
    """Return the rows of `frame`, a local checkpoint, after a transform that other steps follow.

    Failed rows pass unchanged. Each other record has one row FILTERED without the author's columns,
    in addition to the rows that it became, which identify it.
    """
    linked = _fenced(frame.where(F.col(FATE).isNull())).withColumn(LINK, F.struct(*_RECORD))
    made = _called(step, linked.select(*_theirs(frame)))
    # Fenced again: a later step's guard must not catch exceptions of the function's columns.
    rows = _fenced(carrying(made, linked, LINK)).select(
        *[F.col(LINK)[name].alias(name) for name in _RECORD],
        F.lit(None).cast("int").alias(FATE),
        F.lit(None).cast(ERROR_TYPE).alias(ERROR),
        # None of the new rows is the first row of its record.
        F.lit(1).alias(ORDINAL),
        F.lit(0).cast("long").alias(RETRIES),
        *[F.col(name) for name in _quoted(made.columns)],
    )
    records = frame.select(
        *[
            F.coalesce(FATE, F.lit(FILTERED)).alias(FATE) if name == FATE else name
            for name in INTERNAL
        ],
        *[F.lit(None).cast(field.dataType).alias(field.name) for field in made.schema],
    )
    return records.union(rows)


def _fenced(frame: DataFrame) -> DataFrame:
    """Return the same rows, with a barrier for the optimizer's filter pushdown.

    A filter of the function below it would run on rows that were left out on purpose, such as
    failed ones.
    """
    return frame.where(F.spark_partition_id() >= 0)


def _called(step: Transform, given: DataFrame) -> DataFrame:
    try:
        made = step.function(given)
        if not isinstance(made, DataFrame):
            raise TypeError(f"a transform returns a DataFrame; got {type(made).__name__}")
        difference = differs(step.schema, made.schema)
        if difference is not None:
            raise TypeError(f"a transform returns the same columns each time; {difference}")
    except Exception as exc:  # the author's code, on the driver: no record is to blame
        problem = problem_of_job(given.sparkSession, exc)
        raise StepFailed(step.stage, problem, exc, why="on the driver") from exc
    return made


def _theirs(frame: DataFrame) -> list[str]:
    return _quoted([name for name in frame.columns if not is_ours(name)])


def _quoted(names: list[str]) -> list[str]:
    return [in_quotes(name) for name in names]
