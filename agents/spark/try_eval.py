"""The guard around native expressions: NULL exactly if evaluation raised.

Common subexpressions of a step are computed once, in a guard before its own. Spark eliminates them
itself, but not inside a guard: outside of it they could raise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.catalyst import (
    analysed,
    as_column,
    as_expression,
    children,
    node_name,
    nodes,
    to_list,
    to_seq,
)
from arrester.agents.spark.jvm import jvm_class
from arrester.controlplane.domain.errors import InvalidValue

_log = logging.getLogger("arrester.thread")

#: Parsers that return NULL for bad input by default: they are made to fail.
_FORCED = ("CsvToStructs", "JsonToStructs", "XmlToStructs")
#: Parsers that fail by default.
_FAILING = ("AvroDataToCatalyst", "ProtobufDataToCatalyst")
#: The field of the struct that carries a guarded value.
VALUE = "v"
#: The struct column of the common subexpressions; NULL: one of them raised.
SHARED: Final = "__arrester_shared"
_ATTEMPT = "__arrester_attempt"
_CATALYST = "org.apache.spark.sql.catalyst"
#: As cheap to compute again as to store.
_CHEAP = "GetStructField"
#: It catches exceptions from below, so nothing below it may be computed earlier.
_CATCHES = "TryEval"


def guarded(source: DataFrame, expression: Column, *, unless: Column) -> Column:
    """Return `expression` over `source` as a struct with the field `v`, NULL if it raised.

    Rows where `unless` holds are not evaluated; their struct is NULL too. A bare TryEval is
    unsound: the branch keeps Spark from hoisting a shared subexpression out of it, and the
    non-deterministic condition from moving it into filters.
    """
    return guarded_struct(source, {VALUE: expression}, unless=unless)


def guarded_struct(
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
    return try_eval(spark, values, unless=unless)


def try_eval(
    spark: SparkSession, values: Mapping[str, Column], *, unless: Column | None = None
) -> Column:
    """Return a struct of `values`, which are FAILFAST already, NULL if one of them raised."""
    jvm: Any = spark._jvm
    struct = F.struct(*[value.alias(name) for name, value in values.items()])
    inner = as_expression(jvm, struct)
    attempt = jvm_class(jvm, f"{_CATALYST}.expressions.TryEval")(inner)
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
    unresolved = jvm_class(jvm, f"{_CATALYST}.analysis.UnresolvedAttribute")

    def named(node: Any) -> Any:
        if node_name(node) != "AttributeReference":
            return node
        return unresolved.quoted(node.name())

    return rebuilt(spark, expression, named)


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
        allowed = "no Python function inside; use .process(name, fn) for those"
        raise InvalidValue(named, str(made.sql()), allowed)
    return rebuilt(spark, made, _forced)


def names_in(shape: DataFrame, expression: Column | None) -> tuple[str, ...]:
    """Return the columns, fields and string literals in an expression over `shape`."""
    if expression is None:
        return ()
    found = nodes(failfast(shape, expression))
    return tuple(name for name in map(_named, found) if name is not None)


def _named(node: Any) -> str | None:
    match node_name(node):
        case "AttributeReference":
            return str(node.name())
        case "GetStructField":
            return str(node.extractFieldName())
        case "GetArrayStructFields":
            return str(node.field().name())
        case "Literal":
            return str(node.value())
    return None


def contains(spark: SparkSession, node: Any, pattern: str) -> bool:
    """Whether a plan or an expression contains Spark's TreePattern `pattern`."""
    jvm: Any = spark._jvm
    patterns = jvm_class(jvm, f"{_CATALYST}.trees.TreePattern")
    return bool(node.containsPattern(getattr(patterns, pattern)()))


def rebuilt(spark: SparkSession, node: Any, change: Callable[[Any], Any]) -> Any:
    """Return the expression with `change` applied to each node, leaves first."""
    before = children(node)
    after = [rebuilt(spark, child, change) for child in before]
    if any(new is not old for new, old in zip(after, before, strict=True)):
        node = node.withNewChildren(to_seq(spark._jvm, after))
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
    schema, _, *rest = [node.productElement(index) for index in range(node.productArity())]
    return node.copy(schema, options, *rest)


def _mode(options: Any) -> str | None:
    names = options.keysIterator()
    while names.hasNext():
        name = names.next()
        if name.lower() == "mode":
            return str(options.apply(name)).upper()
    return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedExpressions:
    """The expressions of a native step, analysed once, for any frame with its columns."""

    spark: SparkSession
    expressions: Mapping[str, Column]
    #: Their shared parts, by field name in the column SHARED.
    shared: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, shape: DataFrame, expressions: Mapping[str, Column]) -> PreparedExpressions | None:
        """Return the prepared expressions, None for those that Spark analyses only once.

        Raises InvalidValue for an expression that a guard cannot hold.
        """
        spark = shape.sparkSession
        made = {name: failfast(shape, each) for name, each in expressions.items()}
        try:
            parts = _common(spark, list(made.values()))
            shared = {f"v{number}": part for number, part in enumerate(parts)}
            prepared = cls(
                spark=spark,
                expressions={
                    name: as_column(spark, by_name(spark, _without(spark, each, shared)))
                    for name, each in made.items()
                },
                shared={name: as_column(spark, by_name(spark, p)) for name, p in shared.items()},
            )
            for columns in prepared.selections(_ATTEMPT, unless=F.lit(False)):
                shape = shape.select(*columns)
        except (PySparkException, Py4JJavaError):
            _log.debug("expressions are analysed for each micro-batch", exc_info=True)
            return None
        return prepared

    def selections(self, name: str, *, unless: Column | None = None) -> list[list[Column]]:
        """Return the successive selections: all columns, and a struct `name` of all expressions.

        The struct is NULL if one of them raised. Rows where `unless` holds are not evaluated; their
        struct is NULL too.
        """
        spark = self.spark
        columns = F.col("*")
        found: list[list[Column]] = []
        if self.shared:
            found.append([columns, try_eval(spark, self.shared, unless=unless).alias(SHARED)])
            raised = F.col(SHARED).isNull()
            unless = raised if unless is None else unless | raised
        return [*found, [columns, try_eval(spark, self.expressions, unless=unless).alias(name)]]


def _common(spark: SparkSession, expressions: list[Any]) -> list[Any]:
    """Return what is computed unconditionally more than once; of nested parts the innermost."""
    if len(expressions) == 1 or any(_has(each, _CATCHES) for each in expressions):
        return []
    jvm: Any = spark._jvm
    # True: operands of AND and OR after the first may never be computed.
    found = jvm_class(jvm, f"{_CATALYST}.expressions.EquivalentExpressions")(True)
    for each in expressions:
        found.addExprTree(each, getattr(found, "addExprTree$default$2")())
    common = [
        each for each in to_list(found.getCommonSubexpressions()) if node_name(each) != _CHEAP
    ]
    return [
        each
        for each in common
        if not any(other is not each and _contains(each, other) for other in common)
    ]


def _without(spark: SparkSession, expression: Any, shared: Mapping[str, Any]) -> Any:
    def from_shared(node: Any) -> Any:
        # A node that contains a shared part is not that part, and Spark cannot compare its type.
        if not node.resolved():
            return node
        for name, part in shared.items():
            if node.semanticEquals(part):
                return as_expression(spark._jvm, F.col(SHARED).getField(name))
        return node

    return rebuilt(spark, expression, from_shared) if shared else expression


def _has(node: Any, name: str) -> bool:
    return node_name(node) == name or any(_has(child, name) for child in children(node))


def _contains(node: Any, part: Any) -> bool:
    return any(each.semanticEquals(part) or _contains(each, part) for each in children(node))
