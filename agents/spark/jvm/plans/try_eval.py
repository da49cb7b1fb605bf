"""The guard around native expressions: its result is NULL exactly if the evaluation raised.

It has two forms. `try_eval` is for plans that end at the first failed row. `guarded` and
`isolated_attempt` are for plans that go on with the next row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.plans.catalyst import (
    as_column,
    as_expression,
    node_name,
    transform_up,
)
from arrester.agents.spark.jvm.plans.failfast import failfast
from arrester.agents.spark.jvm.plans.isolated_evaluation import isolated_attempt, may_keep_state

#: The field of the struct that carries a guarded value.
VALUE = "v"
_TRY_EVAL = "org.apache.spark.sql.catalyst.expressions.TryEval"
_UNRESOLVED_ATTRIBUTE = "org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute"


def guarded(source: DataFrame, expression: Column, *, unless: Column) -> Column:
    """Return `expression` over `source` as a struct with the field `v`, NULL if it raised.

    Rows where `unless` holds are not evaluated; their struct is NULL too.
    """
    return guarded_struct(source, {VALUE: expression}, unless=unless)


def guarded_struct(
    source: DataFrame, expressions: Mapping[str, Column], *, unless: Column
) -> Column:
    """Return a struct of all `expressions` over `source`, NULL if one of them raised.

    One guard for all: a shared subexpression is computed once.
    """
    spark = source.sparkSession
    analysed = {name: failfast(source, each) for name, each in expressions.items()}
    isolated = isolated_if_needed(source.sparkSession, analysed)
    if isolated is not None:
        return attempted(as_column(spark, isolated), unless=unless)
    values = {name: as_column(spark, each) for name, each in analysed.items()}
    return try_eval(spark, values, unless=unless)


def isolated_if_needed(spark: SparkSession, expressions: Mapping[str, Any]) -> Any | None:
    """Return the isolated attempt of analysed expressions, None if `try_eval` does the same."""
    if not any(may_keep_state(expression) for expression in expressions.values()):
        return None
    return isolated_attempt(spark, expressions)


def try_eval(
    spark: SparkSession, values: Mapping[str, Column], *, unless: Column | None = None
) -> Column:
    """Return a struct of `values`, which are FAILFAST already, NULL if one of them raised.

    After a failed row, the values of the next rows may be wrong (`isolated_evaluation`).
    """
    jvm: Any = spark._jvm
    struct = F.struct(*[value.alias(name) for name, value in values.items()])
    attempt = jvm_class(jvm, _TRY_EVAL)(as_expression(spark, struct))
    return attempted(as_column(spark, attempt), unless=unless)


def attempted(attempt: Column, *, unless: Column | None) -> Column:
    """Return an attempt that is evaluated once for each row where `unless` does not hold.

    In the branch of a condition, Spark does not move a shared subexpression out of TryEval. The
    condition is not deterministic, so filters do not take it.
    """
    always = F.spark_partition_id() >= 0
    condition = always if unless is None else always & ~unless
    return F.when(condition, attempt)


def reusable(source: DataFrame, expression: Column) -> Column:
    """Return `expression`, set to FAILFAST, for any frame with the columns of `source`.

    Analysis takes many calls from the driver, which would dominate a small micro-batch.
    """
    spark = source.sparkSession
    return as_column(spark, by_name(spark, failfast(source, expression)))


def by_name(spark: SparkSession, expression: Any) -> Any:
    """Return an analysed expression with columns by name, for any frame that has them."""
    jvm: Any = spark._jvm
    unresolved = jvm_class(jvm, _UNRESOLVED_ATTRIBUTE)

    def unresolve(node: Any) -> Any:
        is_attribute = node_name(node) == "AttributeReference"
        return unresolved.quoted(node.name()) if is_attribute else node

    return transform_up(spark, expression, unresolve)
