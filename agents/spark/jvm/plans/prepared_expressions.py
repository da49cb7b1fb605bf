"""The expressions of a native step, analysed once for all micro-batches.

Common subexpressions are computed once, in a guard before that of the expressions. Spark eliminates
them itself, but not inside a guard: outside of it they could raise.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.plans.catalyst import (
    as_column,
    as_expression,
    children,
    node_name,
    nodes,
    to_list,
    with_children,
)
from arrester.agents.spark.jvm.plans.failfast import failfast
from arrester.agents.spark.jvm.plans.try_eval import (
    attempted,
    by_name,
    isolated_if_needed,
    try_eval,
)

_log = logging.getLogger("arrester.thread")

#: The struct column of the common subexpressions; NULL: one of them raised.
SHARED: Final = "__arrester_shared"
_ATTEMPT: Final = "__arrester_attempt"
_EQUIVALENT_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions.EquivalentExpressions"
#: This expression is as cheap to compute again as to store.
_CHEAP = "GetStructField"
#: This expression catches exceptions of its children, so none of them may be computed earlier.
_CATCHING = "TryEval"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedExpressions:
    """The expressions of a native step, analysed once, for any frame with its columns."""

    spark: SparkSession
    expressions: Mapping[str, Column]
    #: Their shared parts, by field name in the column SHARED.
    shared: Mapping[str, Column] = field(default_factory=dict)
    #: The isolated attempt of all expressions; None if `try_eval` does the same.
    isolated: Column | None = None

    @classmethod
    def of(cls, shape: DataFrame, expressions: Mapping[str, Column]) -> PreparedExpressions | None:
        """Return the prepared expressions; None if they need an analysis in each micro-batch.

        Raises InvalidValue for an expression that a guard cannot hold.
        """
        spark = shape.sparkSession
        originals = {name: failfast(shape, expression) for name, expression in expressions.items()}
        try:
            common = _common_subexpressions(spark, list(originals.values()))
            shared = {f"v{number}": part for number, part in enumerate(common)}
            rest = {
                name: _with_references(spark, original, shared)
                for name, original in originals.items()
            }
            prepared = cls(
                spark=spark,
                expressions=_columns_by_name(spark, rest),
                shared=_columns_by_name(spark, shared),
            )
            isolated = isolated_if_needed(spark, originals)
            if isolated is not None:
                by_names = as_column(spark, by_name(spark, isolated))
                prepared = replace(prepared, isolated=by_names)
            for columns in prepared.selections(_ATTEMPT, unless=F.lit(False)):
                shape = shape.select(*columns)
        except (PySparkException, Py4JJavaError):
            _log.debug("expressions are analysed for each micro-batch", exc_info=True)
            return None
        return prepared

    def selections(self, name: str, *, unless: Column | None = None) -> list[list[Column]]:
        """Return the successive selections: all columns, and a struct `name` of all expressions.

        The struct is NULL if one of them raised. Rows where `unless` holds are not evaluated; their
        struct is NULL too. The plan has to end at the first failed row.
        """
        spark = self.spark
        columns = F.col("*")
        selections: list[list[Column]] = []
        if self.shared:
            shared = try_eval(spark, self.shared, unless=unless).alias(SHARED)
            selections.append([columns, shared])
            raised = F.col(SHARED).isNull()
            unless = raised if unless is None else unless | raised
        values = try_eval(spark, self.expressions, unless=unless).alias(name)
        return [*selections, [columns, values]]

    def isolated_selections(self, name: str, *, unless: Column) -> list[list[Column]]:
        """Return selections as above, for a plan that goes on after failed rows."""
        if self.isolated is None:
            return self.selections(name, unless=unless)
        return [[F.col("*"), attempted(self.isolated, unless=unless).alias(name)]]


def _columns_by_name(spark: SparkSession, expressions: Mapping[str, Any]) -> dict[str, Column]:
    return {
        name: as_column(spark, by_name(spark, expression))
        for name, expression in expressions.items()
    }


def _common_subexpressions(spark: SparkSession, expressions: list[Any]) -> list[Any]:
    """Return the subexpressions that are computed unconditionally more than once.

    Of nested ones, only the innermost are returned.
    """
    if len(expressions) == 1 or any(_has_catching(expression) for expression in expressions):
        return []
    jvm: Any = spark._jvm
    # True: operands of AND and OR after the first may never be computed.
    equivalent = jvm_class(jvm, _EQUIVALENT_EXPRESSIONS)(True)
    for expression in expressions:
        equivalent.addExprTree(expression, getattr(equivalent, "addExprTree$default$2")())
    common = [
        part for part in to_list(equivalent.getCommonSubexpressions()) if node_name(part) != _CHEAP
    ]
    return [
        part
        for part in common
        if not any(other is not part and _has_below(part, other) for other in common)
    ]


def _with_references(spark: SparkSession, expression: Any, shared: Mapping[str, Any]) -> Any:
    """Return an expression that reads its shared parts from the column SHARED."""
    if not shared:
        return expression
    for name, part in shared.items():
        if expression.semanticEquals(part):
            return as_expression(spark, F.col(SHARED).getField(name))
    return with_children(spark, expression, lambda child: _with_references(spark, child, shared))


def _has_catching(expression: Any) -> bool:
    return any(node_name(node) == _CATCHING for node in nodes(expression))


def _has_below(node: Any, part: Any) -> bool:
    """Whether a part is among the descendants of a node."""
    return any(child.semanticEquals(part) or _has_below(child, part) for child in children(node))
