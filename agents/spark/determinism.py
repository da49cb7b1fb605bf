"""The search for expressions that give other values when the same rows are evaluated again.

A repeated micro-batch must give each record the task and the position that it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame

from arrester.agents.spark.catalyst import analysed, children, node_name, nodes, to_list

_NAME = "v"


def non_deterministic_part(source: DataFrame, expression: Column, *, in_plan: bool) -> str | None:
    """Return the innermost part of an expression over `source` that is not deterministic, as SQL.

    None if Catalyst flags no part. With `in_plan`, the columns that it reads are traced through the
    source's plan to the expressions that make them.
    """
    project = analysed(source.select(expression.alias(_NAME)))
    root = project.projectList().apply(0)
    found = _flagged(root)
    if found is None and in_plan:
        found = _flagged_in_plan(project.child(), _attributes(root))
    return None if found is None else str(found.sql())


def _flagged(expression: Any) -> Any | None:
    """Return the innermost node that Catalyst does not flag as deterministic."""
    if expression.deterministic():
        return None
    below = (_flagged(child) for child in children(expression))
    return next((each for each in below if each is not None), expression)


def _flagged_in_plan(plan: Any, attributes: list[Any]) -> Any | None:
    """Return a non-deterministic part of the expressions that make `attributes` in a plan."""
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
                part = _flagged(made_from)
                if part is not None:
                    return part
                waiting += _attributes(made_from)
    return None


def _made_from(operator: Any, attribute: Any) -> Iterator[Any]:
    """Yield the expressions from which an operator makes an attribute, none if it passes it on."""
    if not operator.outputSet().contains(attribute):
        return
    if node_name(operator) == "Union":
        # Its output has the identities of the first child's columns.
        index = [_is(each, attribute) for each in to_list(operator.output())].index(True)
        yield from (child.output().apply(index) for child in children(operator))
    elif operator.inputSet().contains(attribute):
        return
    elif node_name(operator) == "Generate":
        yield operator.generator()
    else:
        for each in to_list(operator.expressions()):
            if node_name(each) == "Alias" and _is(each, attribute):
                yield each.child()


def _is(named: Any, attribute: Any) -> bool:
    return bool(named.exprId().equals(attribute.exprId()))


def _attributes(expression: Any) -> list[Any]:
    return [each for each in nodes(expression) if node_name(each) == "AttributeReference"]
