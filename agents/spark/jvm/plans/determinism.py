"""Find expressions whose values may differ when the same rows are evaluated again.

In a repeated micro-batch, each record must have the same task and position.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from arrester.agents.spark.jvm.plans.catalyst import (
    analysed_plan,
    children,
    node_name,
    nodes,
    to_list,
)

_NAME = "v"
_SIMPLE_TYPES = (
    *(T.BinaryType, T.BooleanType, T.DateType, T.NumericType, T.StringType),
    *(T.TimestampNTZType, T.TimestampType),
)
#: Expressions that Catalyst flags as deterministic, although two evaluations may differ.
_UNREPEATABLE = frozenset(
    {
        *("AggregateExpression", "WindowExpression", "PythonUDF", "PythonUDAF", "ScalaUDF"),
        *("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now"),
        *("Exists", "ListQuery", "ScalarSubquery", "LateralSubquery"),
    }
)


def non_deterministic_part(source: DataFrame, expression: Column, *, in_plan: bool) -> str | None:
    """Return the innermost part of an expression over `source` that is not deterministic, as SQL.

    None if Catalyst flags no part. With `in_plan`, the columns that the expression reads are traced
    through the source's plan to the expressions that compute them.
    """
    project = analysed_plan(source.select(expression.alias(_NAME)))
    root = project.projectList().apply(0)
    part = _non_deterministic(root)
    if part is None and in_plan:
        origins = _origins(project.child(), _attributes(root))
        parts = (_non_deterministic(origin) for origin in origins if origin is not None)
        part = next((part for part in parts if part is not None), None)
    return None if part is None else str(part.sql())


def repeatable_columns(source: DataFrame) -> tuple[str, ...]:
    """Return the columns of simple types that certainly have the same values in each evaluation.

    The values of aggregates, windows and Python functions may differ, and the time of a query.
    """
    plan = analysed_plan(source)
    simple = {
        field.name for field in source.schema.fields if isinstance(field.dataType, _SIMPLE_TYPES)
    }
    return tuple(
        str(column.name())
        for column in to_list(plan.output())
        if column.name() in simple and not _has_differing_origin(plan, column)
    )


def differing_columns(source: DataFrame, names: Collection[str]) -> frozenset[str]:
    """Return those of some columns whose values may differ between two evaluations, as above."""
    plan = analysed_plan(source)
    return frozenset(
        str(column.name())
        for column in to_list(plan.output())
        if column.name() in names and _has_differing_origin(plan, column)
    )


def _has_differing_origin(plan: Any, column: Any) -> bool:
    return any(origin is None or _may_differ(origin) for origin in _origins(plan, [column]))


def _may_differ(expression: Any) -> bool:
    if not expression.deterministic():
        return True
    return any(node_name(node) in _UNREPEATABLE for node in nodes(expression))


def _non_deterministic(expression: Any) -> Any | None:
    """Return the innermost node that Catalyst does not flag as deterministic."""
    if expression.deterministic():
        return None
    parts = (_non_deterministic(child) for child in children(expression))
    return next((part for part in parts if part is not None), expression)


def _origins(plan: Any, attributes: list[Any]) -> Iterator[Any | None]:
    """Yield the expressions that compute `attributes` in a plan, and those of their inputs.

    None represents an operator that does not show how it computes an attribute.
    """
    operators = nodes(plan)
    seen: set[int] = set()
    waiting = list(attributes)
    while waiting:
        attribute = waiting.pop()
        if attribute.exprId().id() in seen:
            continue
        seen.add(attribute.exprId().id())
        for operator in operators:
            for origin in _origins_in(operator, attribute):
                yield origin
                waiting += [] if origin is None else _attributes(origin)


def _origins_in(operator: Any, attribute: Any) -> Iterator[Any | None]:
    """Yield the expressions of an operator that compute an attribute, none if it passes it on."""
    if not operator.outputSet().contains(attribute):
        return
    if node_name(operator) == "Union":
        # The output of a union has the expression IDs of its first child's columns.
        index = [_has_id_of(column, attribute) for column in to_list(operator.output())].index(True)
        yield from (child.output().apply(index) for child in children(operator))
    elif operator.inputSet().contains(attribute) or not children(operator):
        return
    elif node_name(operator) == "Generate":
        yield operator.generator()
    else:
        aliases = [part for part in to_list(operator.expressions()) if node_name(part) == "Alias"]
        yield next((alias.child() for alias in aliases if _has_id_of(alias, attribute)), None)


def _has_id_of(named: Any, attribute: Any) -> bool:
    return bool(named.exprId().equals(attribute.exprId()))


def _attributes(expression: Any) -> list[Any]:
    return [node for node in nodes(expression) if node_name(node) == "AttributeReference"]
