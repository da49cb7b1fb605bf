"""Compute the common subexpressions of a step's expressions once, in a guard before them.

Spark eliminates common subexpressions itself, but not inside a guard: outside it they could raise.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.catalyst import children, node_name, to_list
from arrester.agents.spark.try_eval import as_column, attempted, by_name, failfast, rebuilt

_log = logging.getLogger("arrester.thread")

#: The struct column of the shared values; NULL: one of them raised.
SHARED: Final = "__arrester_shared"
_ATTEMPT = "__arrester_attempt"
#: As cheap to compute again as to store.
_CHEAP = "GetStructField"
#: It catches exceptions from below, so nothing below it may be computed earlier.
_CATCHES = "TryEval"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ready:
    """The expressions of a native step, analysed once, for any frame with its columns."""

    spark: SparkSession
    expressions: Mapping[str, Column]
    #: Their shared parts, by field name in the column SHARED.
    shared: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, shape: DataFrame, expressions: Mapping[str, Column]) -> Ready | None:
        """Return the prepared expressions, None for those that Spark analyses only once.

        Raises InvalidValue for an expression that a guard cannot hold.
        """
        spark = shape.sparkSession
        made = {name: failfast(shape, each) for name, each in expressions.items()}
        try:
            parts = _common(spark, list(made.values()))
            shared = {f"v{number}": part for number, part in enumerate(parts)}
            ready = cls(
                spark=spark,
                expressions={
                    name: as_column(spark, by_name(spark, _without(spark, each, shared)))
                    for name, each in made.items()
                },
                shared={name: as_column(spark, by_name(spark, p)) for name, p in shared.items()},
            )
            for columns in ready.layers(_ATTEMPT, unless=F.lit(False)):
                shape = shape.select(*columns)
        except (PySparkException, Py4JJavaError):
            _log.debug("expressions are analysed for each micro-batch", exc_info=True)
            return None
        return ready

    def layers(self, name: str, *, unless: Column | None = None) -> list[list[Column]]:
        """Return the successive selections: all columns, and a struct `name` of all expressions.

        The struct is NULL if one of them raised. Rows where `unless` holds are not evaluated; their
        struct is NULL too.
        """
        spark = self.spark
        theirs = F.col("*")
        layers: list[list[Column]] = []
        if self.shared:
            layers.append([theirs, attempted(spark, self.shared, unless=unless).alias(SHARED)])
            raised = F.col(SHARED).isNull()
            unless = raised if unless is None else unless | raised
        return [
            *layers,
            [theirs, attempted(spark, self.expressions, unless=unless).alias(name)],
        ]


def _common(spark: SparkSession, expressions: list[Any]) -> list[Any]:
    """Return what is computed unconditionally more than once; of nested parts the innermost."""
    if len(expressions) == 1 or any(_has(each, _CATCHES) for each in expressions):
        return []
    jvm: Any = spark._jvm
    # True: operands of AND and OR after the first may never be computed.
    found = jvm.org.apache.spark.sql.catalyst.expressions.EquivalentExpressions(True)
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
    jvm: Any = spark._jvm

    def from_shared(node: Any) -> Any:
        # A node that contains a shared part is not that part, and Spark cannot compare its type.
        if not node.resolved():
            return node
        for name, part in shared.items():
            if node.semanticEquals(part):
                kept = F.col(SHARED).getField(name)
                return jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(kept._jc)
        return node

    return rebuilt(spark, expression, from_shared) if shared else expression


def _has(node: Any, name: str) -> bool:
    return node_name(node) == name or any(_has(child, name) for child in children(node))


def _contains(node: Any, part: Any) -> bool:
    return any(each.semanticEquals(part) or _contains(each, part) for each in children(node))
