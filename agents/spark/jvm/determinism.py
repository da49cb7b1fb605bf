"""The search for expressions that give other values when the same rows are evaluated again.

A repeated micro-batch must give each record the task and the position that it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from arrester.agents.spark.jvm.catalyst import analysed, children, node_name, nodes, to_list

_NAME = "v"
_SIMPLE = (
    *(T.BinaryType, T.BooleanType, T.DateType, T.NumericType, T.StringType),
    *(T.TimestampNTZType, T.TimestampType),
)
#: Expressions that Catalyst flags as deterministic although two evaluations may differ.
_DIFFERING = frozenset(
    {
        *("AggregateExpression", "WindowExpression", "PythonUDF", "PythonUDAF", "ScalaUDF"),
        *("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now"),
        *("Exists", "ListQuery", "ScalarSubquery", "LateralSubquery"),
    }
)


def non_deterministic_part(source: DataFrame, expression: Column, *, in_plan: bool) -> str | None:
    """Return the innermost part of an expression over `source` that is not deterministic, as SQL.

    None if Catalyst flags no part. With `in_plan`, the columns that it reads are traced through the
    source's plan to the expressions that make them.
    """
    project = analysed(source.select(expression.alias(_NAME)))
    root = project.projectList().apply(0)
    found = _flagged(root)
    if found is None and in_plan:
        made_from = _trace(project.child(), _attributes(root))
        parts = (_flagged(each) for each in made_from if each is not None)
        found = next((each for each in parts if each is not None), None)
    return None if found is None else str(found.sql())


def repeatable_columns(source: DataFrame) -> tuple[str, ...]:
    """Return the columns of simple types that certainly have the same values in each evaluation.

    Values of aggregates, windows, functions in Python and the time of a query may differ.
    """
    plan = analysed(source)
    simple = {field.name for field in source.schema.fields if isinstance(field.dataType, _SIMPLE)}
    return tuple(
        str(column.name())
        for column in to_list(plan.output())
        if column.name() in simple
        and all(made is not None and not _may_differ(made) for made in _trace(plan, [column]))
    )


def _may_differ(expression: Any) -> bool:
    if not expression.deterministic():
        return True
    return any(node_name(node) in _DIFFERING for node in nodes(expression))


def _flagged(expression: Any) -> Any | None:
    """Return the innermost node that Catalyst does not flag as deterministic."""
    if expression.deterministic():
        return None
    below = (_flagged(child) for child in children(expression))
    return next((each for each in below if each is not None), expression)


def _trace(plan: Any, attributes: list[Any]) -> Iterator[Any | None]:
    """Yield the expressions that make `attributes` in a plan, and those that make their inputs.

    None represents an operator that does not show how it makes an attribute.
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
            for made_from in _made_from(operator, attribute):
                yield made_from
                waiting += [] if made_from is None else _attributes(made_from)


def _made_from(operator: Any, attribute: Any) -> Iterator[Any | None]:
    """Yield the expressions from which an operator makes an attribute, none if it passes it on."""
    if not operator.outputSet().contains(attribute):
        return
    if node_name(operator) == "Union":
        # Its output has the identities of the first child's columns.
        index = [_is(each, attribute) for each in to_list(operator.output())].index(True)
        yield from (child.output().apply(index) for child in children(operator))
    elif operator.inputSet().contains(attribute) or not children(operator):
        return
    elif node_name(operator) == "Generate":
        yield operator.generator()
    else:
        named = [each for each in to_list(operator.expressions()) if node_name(each) == "Alias"]
        yield next((each.child() for each in named if _is(each, attribute)), None)


def _is(named: Any, attribute: Any) -> bool:
    return bool(named.exprId().equals(attribute.exprId()))


def _attributes(expression: Any) -> list[Any]:
    return [each for each in nodes(expression) if node_name(each) == "AttributeReference"]
