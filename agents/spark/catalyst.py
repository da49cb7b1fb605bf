"""Catalyst's plans, rows and types: access from Python, and the analysis of a transform's plan.

The analysis answers: does it work row by row, and does a further column pass it?
"""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.spark.jvm import jvm_class
from arrester.agents.spark.versions import DATASET, has_jvm_class

try:
    from pyspark.sql.classic.column import Column as ClassicColumn
except ImportError:  # before 4.0, there is one class of columns
    ClassicColumn = Column  # type: ignore[misc,assignment]

#: The logical plan of a selection of columns.
PROJECT: Final = "org.apache.spark.sql.catalyst.plans.logical.Project"
_EXPRESSION_UTILS = "org.apache.spark.sql.classic.ExpressionUtils"
_DATA_SOURCE = "org.apache.spark.sql.execution.datasources.DataSource"
_ARRAY_SEQ = "scala.collection.immutable.ArraySeq"

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


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """Return the DataFrame of a logical plan."""
    jvm: Any = spark._jvm
    made = jvm_class(jvm, DATASET if has_classic(jvm) else "org.apache.spark.sql.Dataset")
    return DataFrame(made.ofRows(spark._jsparkSession, plan), spark)


def as_column(spark: SparkSession, expression: Any) -> Column:
    """Return a Column for a JVM expression."""
    jvm: Any = spark._jvm
    if has_classic(jvm):
        return ClassicColumn(jvm_class(jvm, _EXPRESSION_UTILS).column(expression))
    return ClassicColumn(jvm_class(jvm, "org.apache.spark.sql.Column")(expression))


def as_expression(jvm: Any, column: Column) -> Any:
    """Return the JVM expression of a Column."""
    made: Any = column._jc
    if has_classic(jvm):
        return jvm_class(jvm, _EXPRESSION_UTILS).expression(made)
    return made.expr()


def has_classic(jvm: Any) -> bool:
    """Whether classic Datasets and Columns have a package of their own, as since 4.0."""
    return has_jvm_class(jvm, DATASET)


def analysed(frame: DataFrame) -> Any:
    """Return the analysed logical plan of a DataFrame."""
    return frame._jdf.queryExecution().analyzed()


def collected(frame: DataFrame) -> Any:
    """Return the rows of the JVM as an array of Java objects, in the order of partitions."""
    jvm: Any = frame.sparkSession._jvm
    rows = frame._jdf.queryExecution().executedPlan().executeCollect()
    return array_as_seq(frame.sparkSession, rows).toArray(
        jvm_class(jvm, "scala.reflect.ClassTag").AnyRef()
    )


def array_as_seq(spark: SparkSession, array: Any) -> Any:
    """Return a Scala Seq over a Java array of objects."""
    jvm: Any = spark._jvm
    if has_jvm_class(jvm, _ARRAY_SEQ):
        return jvm_class(jvm, _ARRAY_SEQ).unsafeWrapArray(array)
    return jvm_class(jvm, "scala.collection.mutable.WrappedArray").make(array)  # Scala 2.12


def partition_count(frame: DataFrame) -> int:
    """Return the number of partitions that a DataFrame is computed in."""
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


def to_seq(jvm: Any, items: list[Any]) -> Any:
    """Return a Scala Seq of Java objects."""
    return jvm_class(jvm, "org.apache.spark.api.python.PythonUtils").toSeq(items)


def to_list(seq: Any) -> list[Any]:
    """Return the items of a Scala Seq."""
    return [seq.apply(index) for index in range(seq.size())]


def children(node: Any) -> list[Any]:
    """Return the children of a plan's or an expression's node."""
    return to_list(node.children())


def node_name(node: Any) -> str:
    """Return the class name of a plan's or an expression's node."""
    return str(node.getClass().getSimpleName())


def can_upcast(spark: SparkSession, stored: T.DataType, wanted: T.DataType) -> bool:
    """Whether each value of one type is a value of the other, without loss."""
    jvm: Any = spark._jvm
    types = [spark._jsparkSession.parseDataType(each.json()) for each in (stored, wanted)]
    return bool(jvm_class(jvm, "org.apache.spark.sql.catalyst.expressions.Cast").canUpCast(*types))


def is_valid_utf8(text: Column) -> Column:
    """Return whether a string is valid UTF-8, NULL for NULL."""
    if hasattr(F, "is_valid_utf8"):
        return F.is_valid_utf8(text)
    # Before 4.0, decoding replaces invalid bytes.
    raw = text.cast("binary")
    return F.encode(F.decode(raw, "UTF-8"), "UTF-8") == raw


def has_data_source(spark: SparkSession, name: str) -> bool:
    """Whether Spark finds a data source of this name."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    try:
        jvm_class(jvm, _DATA_SOURCE).lookupDataSource(name, session.sessionState().conf())
    except (Py4JJavaError, PySparkException):
        return False
    return True


def why_not_row_by_row(result: DataFrame, given: DataFrame) -> str | None:
    """Return why `result` is not computed from `given` row by row; None if it seems to be."""
    plan, leaf = analysed(result), _leaf(analysed(given))
    if not _uses(plan, leaf):
        return "its result is not made of the DataFrame that it is given"
    return _refused(plan, leaf)


def passes_column(result: DataFrame, below: DataFrame, name: str) -> bool:
    """Whether the column `name` of `below` passes through `result`, which was made without it."""
    if any(node_name(node) in _OPAQUE for node in nodes(analysed(result))):
        return False
    try:
        return name in with_column_of(result, below, name).columns
    except PySparkException:  # a plan that Spark does not take with one more column
        return False


def with_column_of(result: DataFrame, below: DataFrame, name: str) -> DataFrame:
    """Return `result` with the column `name` of `below`, which was made without it."""
    spark = result.sparkSession
    columns = to_list(analysed(below).output())
    column = next(each for each in columns if each.name() == name)
    return frame_of(spark, _carried(spark, analysed(result), column))


def _carried(spark: SparkSession, node: Any, column: Any) -> Any:
    before = children(node)
    after = [_carried(spark, child, column) for child in before]
    if any(new is not old for new, old in zip(after, before, strict=True)):
        node = node.withNewChildren(to_seq(spark._jvm, after))
    if node_name(node) != "Project" or node.outputSet().contains(column):
        return node
    if not after[0].outputSet().contains(column):
        return node
    jvm: Any = spark._jvm
    columns = to_seq(jvm, [*to_list(node.projectList()), column])
    return jvm_class(jvm, PROJECT)(columns, after[0])


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
    return any(not children(node) and node.sameResult(leaf) for node in nodes(plan))


def _leaf(plan: Any) -> Any:
    while children(plan):
        plan = plan.children().apply(0)
    return plan


def nodes(plan: Any) -> list[Any]:
    """Return all nodes of a plan or an expression, the root first."""
    return [plan, *(node for child in children(plan) for node in nodes(child))]
