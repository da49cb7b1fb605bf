"""Catalyst's plans, expressions, rows and types, as objects of the JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from arrester.agents.spark.jvm.classes import has_jvm_class, jvm_class
from arrester.agents.spark.jvm.versions import DATASET

try:
    from pyspark.sql.classic.column import Column as ClassicColumn
except ImportError:  # before 4.0, there is one class of columns
    ClassicColumn = Column  # type: ignore[misc,assignment]

#: The logical plan of a selection of columns.
PROJECT: Final = "org.apache.spark.sql.catalyst.plans.logical.Project"
_EXPRESSION_UTILS = "org.apache.spark.sql.classic.ExpressionUtils"
_TREE_PATTERN = "org.apache.spark.sql.catalyst.trees.TreePattern"
_ARRAY_SEQ = "scala.collection.immutable.ArraySeq"


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """Return the DataFrame of a logical plan."""
    jvm: Any = spark._jvm
    datasets = jvm_class(jvm, DATASET if has_classic(spark) else "org.apache.spark.sql.Dataset")
    return DataFrame(datasets.ofRows(spark._jsparkSession, plan), spark)


def as_column(spark: SparkSession, expression: Any) -> Column:
    """Return a Column for a JVM expression."""
    jvm: Any = spark._jvm
    if has_classic(spark):
        return ClassicColumn(jvm_class(jvm, _EXPRESSION_UTILS).column(expression))
    return ClassicColumn(jvm_class(jvm, "org.apache.spark.sql.Column")(expression))


def as_expression(spark: SparkSession, column: Column) -> Any:
    """Return the JVM expression of a Column."""
    jvm: Any = spark._jvm
    java_column: Any = column._jc
    if has_classic(spark):
        return jvm_class(jvm, _EXPRESSION_UTILS).expression(java_column)
    return java_column.expr()


def constant(spark: SparkSession, column: Column) -> Column:
    """Return the value of an expression without columns as a literal.

    Spark evaluates an expression over rows on the driver for each of them, constants too: it folds
    those only in later steps of its optimizer.
    """
    value = analysed_plan(spark.sql("SELECT 1").select(column)).projectList().apply(0).child()
    literal = jvm_class(spark._jvm, "org.apache.spark.sql.catalyst.expressions.Literal")
    return as_column(spark, literal(value.eval(None), value.dataType()))


def has_classic(spark: SparkSession) -> bool:
    """Whether Datasets and Columns are in a package `classic`, as since 4.0."""
    return has_jvm_class(spark._jvm, DATASET)


def analysed_plan(frame: DataFrame) -> Any:
    """Return the analysed logical plan of a DataFrame."""
    return frame._jdf.queryExecution().analyzed()


def collected(frame: DataFrame) -> Any:
    """Return the rows of a DataFrame as a Java array, in the order of partitions."""
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
    """Return the number of partitions in which Spark computes a DataFrame."""
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


def to_seq(jvm: Any, items: list[Any]) -> Any:
    """Return a Scala Seq of Java objects."""
    return jvm_class(jvm, "org.apache.spark.api.python.PythonUtils").toSeq(items)


def to_java_map(jvm: Any, items: Mapping[str, str]) -> Any:
    """Return a map of Java."""
    made = jvm_class(jvm, "java.util.HashMap")()
    for name, value in items.items():
        made.put(name, value)
    return made


def to_scala_map(jvm: Any, items: Mapping[str, str]) -> Any:
    """Return an immutable map of Scala."""
    utils = jvm_class(jvm, "org.apache.spark.api.python.PythonUtils")
    return utils.toScalaMap(to_java_map(jvm, items))


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
    """Whether each value of type `stored` becomes one of type `wanted` without loss."""
    return bool(_cast(spark).canUpCast(*_java_types(spark, stored, wanted)))


def can_store(spark: SparkSession, given: T.DataType, wanted: T.DataType) -> bool:
    """Whether ANSI store assignment accepts values of type `given` in a column of type `wanted`.

    A single value may still be out of range.
    """
    return bool(_cast(spark).canANSIStoreAssign(*_java_types(spark, given, wanted)))


def _cast(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm_class(jvm, "org.apache.spark.sql.catalyst.expressions.Cast")


def _java_types(spark: SparkSession, *types: T.DataType) -> list[Any]:
    return [spark._jsparkSession.parseDataType(kind.json()) for kind in types]


def python_type(java_type: Any) -> T.DataType:
    """Return a type of the JVM as PySpark's."""
    field = {"name": "v", "type": json.loads(java_type.json()), "nullable": True, "metadata": {}}
    return T.StructField.fromJson(field).dataType


def nodes(plan: Any) -> list[Any]:
    """Return all nodes of a plan or an expression, the root first."""
    return [plan, *(node for child in children(plan) for node in nodes(child))]


def has_python_function(spark: SparkSession, node: Any) -> bool:
    """Whether a plan or an expression contains a Python function that is called row by row."""
    jvm: Any = spark._jvm
    return bool(node.containsPattern(jvm_class(jvm, _TREE_PATTERN).PYTHON_UDF()))


def transform_up(spark: SparkSession, node: Any, change: Callable[[Any], Any]) -> Any:
    """Return an expression with `change` applied to each node, leaves first."""
    return change(with_children(spark, node, lambda child: transform_up(spark, child, change)))


def with_children(spark: SparkSession, node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a node with `change` applied to its children; itself, if none changes."""
    before = children(node)
    after = [change(child) for child in before]
    if any(new is not old for new, old in zip(after, before, strict=True)):
        return node.withNewChildren(to_seq(spark._jvm, after))
    return node
