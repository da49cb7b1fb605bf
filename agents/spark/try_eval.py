"""The guard around native expressions: NULL exactly if evaluation raised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from arrester.agents.spark.catalyst import analysed, children, node_name, to_seq
from arrester.controlplane.domain.errors import ArresterError, InvalidValue

#: Parsers that return NULL for bad input by default: they are made to fail.
_FORCED = {
    "CsvToStructs": ("requiredSchema",),
    "JsonToStructs": ("variantAllowDuplicateKeys",),
    "XmlToStructs": (),
}
#: Parsers that fail by default.
_FAILING = ("AvroDataToCatalyst", "ProtobufDataToCatalyst")
#: The field of the struct that carries a guarded value.
VALUE = "v"


class ConnectRefused(ArresterError):
    """Spark Connect has no access to the JVM. Use a classic session."""


def require_classic(spark: SparkSession) -> None:
    """Raise ConnectRefused for a session of Spark Connect."""
    if not hasattr(spark, "_jvm"):
        raise ConnectRefused(
            "Arrester needs a classic Spark session; this one is Spark Connect "
            "(unset SPARK_REMOTE and build it without .remote())"
        )


def guarded(source: DataFrame, expression: Column, *, unless: Column) -> Column:
    """Return `expression` over `source` as a struct with the field `v`, NULL if it raised.

    Rows where `unless` holds are not evaluated; their struct is NULL too. A bare TryEval is
    unsound: the branch keeps Spark from hoisting a shared subexpression out of it, and the
    non-deterministic condition from moving it into filters.
    """
    return guarded_together(source, {VALUE: expression}, unless=unless)


def guarded_together(
    source: DataFrame, expressions: Mapping[str, Column], *, unless: Column
) -> Column:
    """Return a struct of all `expressions` over `source`, NULL if one of them raised.

    One guard for all: a shared subexpression is computed once.
    """
    spark = source.sparkSession
    values = {
        name: as_column(spark, failfast(source, expression))
        for name, expression in expressions.items()
    }
    return attempted(spark, values, unless=unless)


def attempted(
    spark: SparkSession, values: Mapping[str, Column], *, unless: Column | None = None
) -> Column:
    """Return a struct of `values`, which are FAILFAST already, NULL if one of them raised."""
    jvm: Any = spark._jvm
    struct = F.struct(*[value.alias(name) for name, value in values.items()])
    inner = jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(struct._jc)
    attempt = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(inner)
    may_run = F.spark_partition_id() >= 0
    may_run = may_run if unless is None else may_run & ~unless
    return F.when(may_run, as_column(spark, attempt))


def reusable(source: DataFrame, expression: Column) -> Column:
    """Return `expression`, set to FAILFAST, for any frame with the columns of `source`.

    Analysis takes many calls from the driver, which would dominate a small micro-batch.
    """
    spark = source.sparkSession
    return as_column(spark, by_name(spark, failfast(source, expression)))


def by_name(spark: SparkSession, expression: Any) -> Any:
    """Return an analysed expression with columns by name, for any frame that has them."""
    jvm: Any = spark._jvm
    unresolved = jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute

    def named(node: Any) -> Any:
        if node_name(node) != "AttributeReference":
            return node
        return unresolved.quoted(node.name())

    return rebuilt(spark, expression, named)


def as_column(spark: SparkSession, expression: Any) -> Column:
    """Return a Column for a JVM expression."""
    jvm: Any = spark._jvm
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def failfast(source: DataFrame, expression: Column, *, named: str = "expr") -> Any:
    """Return `expression` analysed over `source`, with its parsers set to FAILFAST.

    Raises InvalidValue for what a guard cannot hold: Python functions (Spark runs them before the
    guard), aggregates, windows and generators (not row by row), and an explicit other parse mode.
    """
    plan = analysed(source.select(expression.alias(VALUE)))
    spark = source.sparkSession
    row_by_row = node_name(plan) == "Project" and plan.child().fastEquals(analysed(source))
    if not row_by_row:
        raise InvalidValue(
            named, str(expression), "a row-by-row expression: no aggregate, window or explode"
        )
    made = plan.projectList().apply(0).child()
    if contains(spark, made, "PYTHON_UDF"):
        raise InvalidValue(
            named, str(expression), "no Python function inside; use .process(name, fn) for those"
        )
    return rebuilt(spark, made, _forced)


def contains(spark: SparkSession, node: Any, pattern: str) -> bool:
    """Whether a plan or an expression contains Spark's TreePattern `pattern`."""
    jvm: Any = spark._jvm
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    return bool(node.containsPattern(getattr(patterns, pattern)()))


def rebuilt(spark: SparkSession, node: Any, change: Callable[[Any], Any]) -> Any:
    """Return the expression with `change` applied to each node, leaves first."""
    before = children(node)
    after = [rebuilt(spark, child, change) for child in before]
    if any(new is not old for new, old in zip(after, before, strict=True)):
        node = node.withNewChildren(to_seq(spark, after))
    return change(node)


def _forced(node: Any) -> Any:
    name = node_name(node)
    if name not in _FORCED and name not in _FAILING:
        return node
    mode = _mode(node.options())
    if mode not in (None, "FAILFAST"):
        raise InvalidValue(
            f"mode of {node.prettyName()}",
            mode,
            "FAILFAST (or none): other modes hide bad records as NULL",
        )
    if mode is not None or name in _FAILING:
        return node
    options = node.options().updated("mode", "FAILFAST")
    rest = [getattr(node, field)() for field in _FORCED[name]]
    return node.copy(node.schema(), options, node.child(), node.timeZoneId(), *rest)


def _mode(options: Any) -> str | None:
    names = options.keysIterator()
    while names.hasNext():
        name = names.next()
        if name.lower() == "mode":
            return str(options.apply(name)).upper()
    return None
