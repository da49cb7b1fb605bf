"""Access to Catalyst's plans, rows and types from Python."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """Return the DataFrame of a logical plan."""
    jvm: Any = spark._jvm
    made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)
    return DataFrame(made, spark)


def analysed(frame: DataFrame) -> Any:
    """Return the analysed logical plan of a DataFrame."""
    return frame._jdf.queryExecution().analyzed()


def collected(frame: DataFrame) -> Any:
    """Return the rows of the JVM as an array of Java objects, in the order of partitions."""
    jvm: Any = frame.sparkSession._jvm
    rows = frame._jdf.queryExecution().executedPlan().executeCollect()
    wrapped = jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(rows)
    return wrapped.toArray(jvm.scala.reflect.ClassTag.AnyRef())


def partition_count(frame: DataFrame) -> int:
    """Return the number of partitions that a DataFrame is computed in."""
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


def to_seq(spark: SparkSession, items: list[Any]) -> Any:
    """Return a Scala Seq of Java objects."""
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(items)


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
    return bool(jvm.org.apache.spark.sql.catalyst.expressions.Cast.canUpCast(*types))


def has_data_source(spark: SparkSession, name: str) -> bool:
    """Whether Spark finds a data source of this name."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(
            name, session.sessionState().conf()
        )
    except (Py4JJavaError, PySparkException):
        return False
    return True
