"""Analysis of a transform's plan: does it work row by row, and does a further column pass it?"""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from arrester.agents.spark.catalyst import (
    analysed,
    children,
    frame_of,
    node_name,
    to_list,
    to_seq,
)
from arrester.agents.spark.try_eval import failfast

#: Each result row depends on one input row only, and further columns pass.
_CARRYING = frozenset(
    {
        *("Project", "Filter", "Generate", "Join", "SubqueryAlias", "View"),
        *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
        *("ResolvedHint", "UnresolvedHint"),
    }
)
#: Row by row too, as far as the plan shows, but only the named columns come out.
_OPAQUE = frozenset({"MapInPandas", "MapInArrow", "PythonMapInArrow", "Expand", "Union"})
#: The rows depend on one side only, so a record's rows do not depend on other records.
_JOINS_LEFT = ("Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti")
_JOINS_RIGHT = ("Inner", "Cross", "RightOuter")


def named_in(shape: DataFrame, expression: Column | None) -> tuple[str, ...]:
    """Return the columns, fields and string literals in an expression over `shape`."""
    if expression is None:
        return ()
    nodes = _nodes(failfast(shape, expression))
    return tuple(name for name in map(_named, nodes) if name is not None)


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


def refusal(made: DataFrame, given: DataFrame) -> str | None:
    """Return why `made` is not computed from `given` row by row; None if it seems to be."""
    plan, leaf = analysed(made), _leaf(analysed(given))
    if not _uses(plan, leaf):
        return "its result is not made of the DataFrame that it is given"
    return _refused(plan, leaf)


def carries(made: DataFrame, below: DataFrame, name: str) -> bool:
    """Whether the column `name` of `below` passes through `made`, which was made without it."""
    if any(node_name(node) in _OPAQUE for node in _nodes(analysed(made))):
        return False
    try:
        return name in carrying(made, below, name).columns
    except PySparkException:  # a plan that Spark does not take with one more column
        return False


def carrying(made: DataFrame, below: DataFrame, name: str) -> DataFrame:
    """Return `made` with the column `name` of `below`, which was made without it."""
    spark = made.sparkSession
    columns = to_list(analysed(below).output())
    column = next(each for each in columns if each.name() == name)
    return frame_of(spark, _carried(spark, analysed(made), column))


def _carried(spark: SparkSession, node: Any, column: Any) -> Any:
    before = children(node)
    after = [_carried(spark, child, column) for child in before]
    if any(new is not old for new, old in zip(after, before, strict=True)):
        node = node.withNewChildren(to_seq(spark, after))
    if node_name(node) != "Project" or node.outputSet().contains(column):
        return node
    if not after[0].outputSet().contains(column):
        return node
    jvm: Any = spark._jvm
    columns = to_seq(spark, [*to_list(node.projectList()), column])
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(columns, after[0])


def _refused(node: Any, leaf: Any) -> str | None:
    """Return why rows depend on each other in or below `node`, which reads the input."""
    name = node_name(node)
    below = children(node)
    using = [_uses(child, leaf) for child in below]
    reason = None
    if not below:
        return None
    if name not in _CARRYING | _OPAQUE:
        reason = f"{node.nodeName()} is not known to work row by row"
    elif name == "Join":
        reason = _join_refused(node, using)
    elif name == "Union" and not all(using):
        reason = "Union adds rows that are of no record"
    elif any(_uses(each, leaf) for each in to_list(node.subqueries())):
        reason = f"{node.nodeName()} has a subquery over the DataFrame that it is given"
    if reason is not None:
        return reason
    reasons = (_refused(child, leaf) for child, used in zip(below, using, strict=True) if used)
    return next((each for each in reasons if each is not None), None)


def _join_refused(node: Any, using: list[bool]) -> str | None:
    kind = str(node.joinType())
    if all(using):
        return "Join has the DataFrame that it is given on both sides"
    if kind in (_JOINS_LEFT if using[0] else _JOINS_RIGHT):
        return None
    return f"Join ({kind}) has rows that are of no record, or depend on other records"


def _uses(plan: Any, leaf: Any) -> bool:
    return any(not children(node) and node.sameResult(leaf) for node in _nodes(plan))


def _leaf(plan: Any) -> Any:
    while children(plan):
        plan = plan.children().apply(0)
    return plan


def _nodes(plan: Any) -> list[Any]:
    return [plan, *(node for child in children(plan) for node in _nodes(child))]
