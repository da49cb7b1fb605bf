"""Native and Python steps: they work row by row, and mark the rows at which they fail."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache, lru_cache
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.definition.steps import Native, Process, Step
from arrester.agents.spark.frames.column_names import map_in_arrow, quoted
from arrester.agents.spark.jvm.plans.prepared_expressions import SHARED, PreparedExpressions
from arrester.agents.spark.jvm.plans.try_eval import guarded_struct
from arrester.agents.spark.jvm.session_zone import python_zone
from arrester.agents.spark.ship_worker_code import shipped, shipped_rules
from arrester.agents.worker.columns import (
    ERROR,
    ERROR_TYPE,
    ORDINAL,
    OUTCOME,
    PACKED,
    PREFIX,
    RETRIES,
)
from arrester.domain.error_policy.policy import Policy

_ATTEMPT = "__arrester_attempt"
#: The number of steps whose Columns are cached: making a Column takes many calls to the JVM.
_CACHED_STEPS = 256
#: The columns that Python steps set for each row.
_PYTHON_RESULT = {
    OUTCOME: T.StructField(OUTCOME, T.IntegerType()),
    ERROR: T.StructField(ERROR, ERROR_TYPE),
    ORDINAL: T.StructField(ORDINAL, T.IntegerType()),
    RETRIES: T.StructField(RETRIES, T.LongType()),
}


def after_steps(
    frame: DataFrame,
    steps: Sequence[Step],
    *,
    policy: Policy,
    first: int,
    source_names: Sequence[str] = (),
) -> DataFrame:
    """Return `frame` after a segment of native or Python steps; the first has the number `first`.

    Failed rows pass unchanged. Each Arrow batch passes all Python steps at once. Internal columns
    stay with their record, and so do the columns `source_names`. If a step replaces one of these,
    the source's values are in a copy, `_copy_name`.
    """
    numbered_steps = list(enumerate(steps, start=first))
    if isinstance(steps[0], Process):
        return _after_python(frame, numbered_steps, policy, source_names)
    for number, step in numbered_steps:
        assert isinstance(step, Native)
        frame = _with_source_copies(frame, step, source_names)
        frame = _after_native(frame, number, step)
    return frame


def _copy_name(number: int) -> str:
    """Return the name of the copy of a source column that a step has replaced."""
    return f"{PREFIX}source_{number}"


def source_columns(columns: Collection[str], source_names: Sequence[str]) -> dict[str, str]:
    """Return, by the names of the source's columns, the columns of a frame with their values."""
    present = set(columns)
    return {
        name: _copy_name(number) if _copy_name(number) in present else name
        for number, name in enumerate(source_names)
    }


def _with_source_copies(frame: DataFrame, step: Native, source_names: Sequence[str]) -> DataFrame:
    """Copy the source columns that the step is about to replace."""
    replaced = {name.lower() for name in step.expressions}
    columns = source_columns(frame.columns, source_names)
    copies = {
        _copy_name(number): quoted(name)
        for number, name in enumerate(source_names)
        if name.lower() in replaced and columns[name] == name
    }
    return frame.withColumns(copies) if copies else frame


def _after_native(frame: DataFrame, number: int, step: Native) -> DataFrame:
    if step.prepared is None:
        attempt = guarded_struct(frame, step.expressions, unless=_is_decided())
        frame = frame.withColumn(_ATTEMPT, attempt)
    else:
        for columns in _attempt_selections(step.prepared):
            frame = frame.select(*columns)
    frame = frame.withColumns(_columns_after_attempt(number, tuple(step.expressions)))
    return frame.drop(_ATTEMPT, SHARED)


@cache
def _is_decided() -> Column:
    return F.col(OUTCOME).isNotNull()


@lru_cache(maxsize=_CACHED_STEPS)
def _attempt_selections(expressions: PreparedExpressions) -> list[list[Column]]:
    return expressions.isolated_selections(_ATTEMPT, unless=_is_decided())


@lru_cache(maxsize=_CACHED_STEPS)
def _columns_after_attempt(number: int, names: tuple[str, ...]) -> dict[str, Column]:
    """Return the columns that change with an attempt at the step `number`."""
    failed = F.col(OUTCOME).isNull() & F.col(_ATTEMPT).isNull()
    outcome = F.when(failed, F.lit(number)).otherwise(F.col(OUTCOME))
    return {OUTCOME: outcome} | {name: F.col(_ATTEMPT).getField(name) for name in names}


def _after_python(
    frame: DataFrame,
    numbered_steps: Sequence[tuple[int, Step]],
    policy: Policy,
    source_names: Sequence[str],
) -> DataFrame:
    carried = _carried(frame, source_names)
    fields = [*_fields(frame, carried), *_PYTHON_RESULT.values(), *_result_fields(numbered_steps)]
    steps = _python_steps("GuardedSteps", frame, numbered_steps, policy, carried)
    return map_in_arrow(frame, steps, T.StructType(fields))


def packed_after_python(
    frame: DataFrame,
    steps: Sequence[Step],
    *,
    policy: Policy,
    first: int,
    source_names: Sequence[str],
) -> tuple[DataFrame, T.StructType]:
    """Return a frame after a segment of Python steps, and the schema of the records in PACKED.

    The other rows are of records that passed, and have only the columns of the last step.
    """
    numbered_steps = list(enumerate(steps, start=first))
    carried = _carried(frame, source_names)
    result = [T.StructField(PACKED, T.BinaryType()), *_result_fields(numbered_steps)]
    staged = _python_steps("StagedSteps", frame, numbered_steps, policy, carried)
    added = [_PYTHON_RESULT[name] for name in (OUTCOME, ERROR, RETRIES)]
    packed = T.StructType([*_fields(frame, carried), *added])
    return map_in_arrow(frame, staged, T.StructType(result)), packed


def _carried(frame: DataFrame, source_names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the columns that accompany their record, each with its name in the result."""
    columns = source_columns(frame.columns, source_names)
    internal = {name for name in frame.columns if is_internal(name)}
    internal -= {*_PYTHON_RESULT, *columns.values()}
    copies = [(columns[name], _copy_name(number)) for number, name in enumerate(source_names)]
    return [*copies, *[(name, name) for name in sorted(internal)]]


def _fields(frame: DataFrame, carried: Sequence[tuple[str, str]]) -> list[T.StructField]:
    return [T.StructField(new, frame.schema[name].dataType) for name, new in carried]


def _result_fields(numbered_steps: Sequence[tuple[int, Step]]) -> list[T.StructField]:
    # A failed record's columns are NULL, so Spark's schema must be nullable.
    fields = python_schema(numbered_steps).fields
    return [T.StructField(field.name, field.dataType, True) for field in fields]


def _python_steps(
    kind: str,
    frame: DataFrame,
    numbered_steps: Sequence[tuple[int, Step]],
    policy: Policy,
    carried: list[tuple[str, str]],
) -> Any:
    """Return the function for `mapInArrow`, of one of its classes."""
    return getattr(shipped("map_in_arrow"), kind)(
        python_steps(numbered_steps),
        timezone=python_zone(frame.sparkSession),
        rules=shipped_rules(policy),
        carried=carried,
    )


def python_steps(numbered_steps: Sequence[tuple[int, Step]]) -> list[object]:
    """Return numbered Python steps in the form that executors take."""
    worker = shipped("map_in_arrow")
    return [
        worker.Step(
            number=number,
            function=step.function,
            schema_json=step.schema.json(),
            retriable=step.retriable,
        )
        for number, step in numbered_steps
        if isinstance(step, Process)
    ]


def python_schema(numbered_steps: Sequence[tuple[int, Step]]) -> T.StructType:
    """Return the columns that adjacent Python steps return: those of the last one."""
    _, last = numbered_steps[-1]
    assert isinstance(last, Process)
    return last.schema


def is_internal(name: str) -> bool:
    """Whether a column is internal."""
    return name.startswith(PREFIX)
