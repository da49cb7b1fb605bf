"""The analysis of a transform's plan: is it row by row, and does a further column pass it?"""

from __future__ import annotations

from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.plans.catalyst import (
    PROJECT,
    analysed_plan,
    children,
    frame_of,
    node_name,
    nodes,
    to_list,
    to_seq,
)

#: Operators whose result rows depend on one input row each, and that further columns pass.
_PASSING: Final = frozenset(
    {
        *("Project", "Filter", "Generate", "Join", "SubqueryAlias", "View"),
        *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
        *("ResolvedHint", "UnresolvedHint"),
    }
)
#: As far as the plan shows, these are row by row too. Their result has the named columns only.
_OPAQUE: Final = frozenset({"MapInPandas", "MapInArrow", "PythonMapInArrow", "Expand", "Union"})
#: Types of joins whose rows depend on no other record, if records are the left or the right side.
_JOINS_LEFT: Final = ("Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti")
_JOINS_RIGHT: Final = ("Inner", "Cross", "RightOuter")


def why_not_row_by_row(result: DataFrame, given: DataFrame) -> str | None:
    """Return why `result` is not computed from `given` row by row; None if it seems to be."""
    plan, leaf = analysed_plan(result), _first_leaf(analysed_plan(given))
    if not _reads(plan, leaf):
        return "its result is not made of the DataFrame that it is given"
    return _dependence(plan, leaf)


def passes_column(result: DataFrame, below: DataFrame, name: str) -> bool:
    """Whether the column `name` of `below` passes through `result`, which was made without it."""
    if any(node_name(node) in _OPAQUE for node in nodes(analysed_plan(result))):
        return False
    try:
        return name in with_column_of(result, below, name).columns
    except PySparkException:  # Spark refuses the plan with one more column
        return False


def with_column_of(result: DataFrame, below: DataFrame, name: str) -> DataFrame:
    """Return `result` with the column `name` of `below`, which was made without it."""
    spark = result.sparkSession
    columns = to_list(analysed_plan(below).output())
    column = next(candidate for candidate in columns if candidate.name() == name)
    return frame_of(spark, _with_column(spark, analysed_plan(result), column))


def _with_column(spark: SparkSession, node: Any, column: Any) -> Any:
    """Return a plan whose projections pass an attribute that their input has."""
    before = children(node)
    after = [_with_column(spark, child, column) for child in before]
    if any(new is not old for new, old in zip(after, before, strict=True)):
        node = node.withNewChildren(to_seq(spark._jvm, after))
    if node_name(node) != "Project" or node.outputSet().contains(column):
        return node
    if not after[0].outputSet().contains(column):
        return node
    jvm: Any = spark._jvm
    columns = to_seq(jvm, [*to_list(node.projectList()), column])
    return jvm_class(jvm, PROJECT)(columns, after[0])


def _dependence(node: Any, leaf: Any) -> str | None:
    """Return why rows depend on each other in or below `node`, which reads the input `leaf`."""
    name = node_name(node)
    below = children(node)
    reading = [_reads(child, leaf) for child in below]
    reason = None
    if not below:
        return None
    if name not in _PASSING | _OPAQUE:
        reason = f"{node.nodeName()} is not known to work row by row"
    elif name == "Join":
        reason = _join_dependence(node, reading)
    elif name == "Union" and not all(reading):
        reason = "Union adds rows that are of no record"
    elif any(_reads(query, leaf) for query in to_list(node.subqueries())):
        reason = f"{node.nodeName()} has a subquery over the DataFrame that it is given"
    if reason is not None:
        return reason
    inputs = [child for child, reads in zip(below, reading, strict=True) if reads]
    return next(filter(None, (_dependence(child, leaf) for child in inputs)), None)


def _join_dependence(node: Any, reading: list[bool]) -> str | None:
    kind = str(node.joinType())
    if all(reading):
        return "Join has the DataFrame that it is given on both sides"
    if kind in (_JOINS_LEFT if reading[0] else _JOINS_RIGHT):
        return None
    return f"Join ({kind}) has rows that are of no record, or depend on other records"


def _reads(plan: Any, leaf: Any) -> bool:
    """Whether a plan reads the input of another plan."""
    return any(not children(node) and node.sameResult(leaf) for node in nodes(plan))


def _first_leaf(plan: Any) -> Any:
    while children(plan):
        plan = plan.children().apply(0)
    return plan
