"""Dry run of steps on an empty frame when they are defined."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.arguments import first_line, wrong_type
from arrester.agents.definition.checks import check_columns, empty_frame
from arrester.agents.definition.pipeline import PipelineInvalid
from arrester.agents.schema_registry.errors import SchemaRegistryUnavailable
from arrester.agents.schema_registry.framed_expression import FramedExpression
from arrester.agents.schema_registry.framed_values import FramedValues
from arrester.agents.spark.frames.column_names import column_of_text
from arrester.agents.spark.jvm.exceptions.problems import SPARK_EXCEPTIONS, java_class_and_message
from arrester.agents.spark.jvm.plans.failfast import failfast
from arrester.agents.spark.jvm.plans.strict_json import strict_json
from arrester.agents.spark.jvm.plans.transform_analysis import passes_column, why_not_row_by_row
from arrester.agents.worker.columns import LINK
from arrester.domain.errors import InvalidValue

#: The names, in messages of Spark, of types of timestamps that are more precise than microseconds.
_NANOSECONDS: Final = re.compile(r"timestamp_[ln]tz\([789]\)|timestampNanosTypes")


def dry_run_column(source: DataFrame, kind: str, given: object) -> Column | None:
    """Return a column that the author named or gave as an expression, None for None."""
    if given is None:
        return None
    if not isinstance(given, str | Column):
        raise wrong_type(kind, given, "a column of the source: its name or a Column")
    column = column_of_text(source, given) if isinstance(given, str) else given
    try:
        failfast(source, column)
    except SPARK_EXCEPTIONS as exc:
        allowed = "a column of the source"
        reason = f"{given!r} is not {allowed}: {_refusal(exc)}"
        raise InvalidValue(kind, given, allowed, reason=reason) from exc
    return column


def dry_run_native(shape: DataFrame, step: str, expressions: Mapping[str, Any]) -> DataFrame:
    """Return `shape` with the columns of a native step; raises for invalid expressions."""
    try:
        for name, expression in expressions.items():
            if not isinstance(expression, Column):
                allowed = "a Column, such as F.col(...) or F.from_json(...)"
                raise wrong_type(f"{step}: {name}", expression, allowed)
            failfast(shape, expression, named=f"{step}: {name}")
        result = shape.withColumns(dict(expressions))
        # PySpark cannot read the names of some types of Spark.
        _ = result.schema
    except SPARK_EXCEPTIONS as exc:
        raise PipelineInvalid(f"{step}: {_refusal(exc)}") from exc
    return result


def strict_column(shape: DataFrame, step: str, expression: Column) -> Column:
    """Return an expression whose `from_json` is strict; raises for an invalid one."""
    try:
        return strict_json(shape, expression, named=step)
    except SPARK_EXCEPTIONS as exc:
        raise PipelineInvalid(f"{step}: {_refusal(exc)}") from exc


def _refusal(exc: Exception) -> str:
    """Return in one line why Spark refuses an expression, and the way out if it is known."""
    java = java_class_and_message(exc)
    line = first_line(exc) if java is None else java[1]
    if _NANOSECONDS.search(line) is None:
        return line
    return (
        "PySpark has no type for timestamps in nanoseconds: give a schema in which the field is a "
        f"long without timestamp-nanos, and convert its value ({line})"
    )


def framed_expression(name: str, framed: FramedValues, shape: DataFrame) -> FramedExpression:
    """Return the expression of framed values; raises PipelineInvalid without values or schemas."""
    try:
        return FramedExpression(name, framed, shape)
    except (SchemaRegistryUnavailable, LookupError, TypeError) as exc:
        raise PipelineInvalid(f"deserialize {name!r}: {exc}") from exc
    except SPARK_EXCEPTIONS as exc:
        raise PipelineInvalid(f"deserialize {name!r}: {_refusal(exc)}") from exc


def dry_run_transform(
    name: str, fn: Callable[[DataFrame], DataFrame], shape: DataFrame, *, stateful: bool
) -> tuple[DataFrame, bool]:
    """Return the function's result for an empty frame, and whether its rows keep their record.

    Raises PipelineInvalid for a function that does not work row by row.
    """
    linked = empty_frame(shape).withColumn(LINK, F.lit(0))
    given = linked.drop(LINK)
    try:
        result = fn(given)
    except Exception as exc:  # the author's code
        raise PipelineInvalid(
            f"transform {name!r}: with an empty DataFrame it raised "
            f"{type(exc).__name__}: {first_line(exc)}"
        ) from exc
    if not isinstance(result, DataFrame):
        raise PipelineInvalid(f"transform {name!r}: it returned a {type(result).__name__}")
    check_columns(f"transform {name!r}", result.columns)
    if result.isStreaming:
        raise PipelineInvalid(
            f"transform {name!r}: its result has a streaming DataFrame in it. A transform works on "
            "micro-batches: join the streams before the pipeline begins, or join a static table"
        )
    reason = None if stateful else why_not_row_by_row(result, given)
    if reason is not None:
        raise PipelineInvalid(
            f"transform {name!r}: {reason}; its records could not be distinguished. Declare it "
            "by stateful=True, in a pipeline without task="
        )
    return result, not stateful and passes_column(result, linked, LINK)
