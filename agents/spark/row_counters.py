"""Count rows as they leave Python, so that a failed task reports its progress."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.spark.catalyst import analysed, to_seq
from arrester.agents.spark.try_eval import as_column, contains

#: The name of the accumulators in Spark's task status.
METER: Final = "arrester.came_out"
_ONE = "__arrester_one"
_ACCUMULATOR = "org.apache.spark.util.LongAccumulator"


def metered(frame: DataFrame) -> DataFrame:
    """Return the same rows, counted where they leave Python.

    A native task reports the row at which it failed. Python receives rows far ahead, as many as
    sockets buffer; only the returned rows show its progress.
    """
    spark = frame.sparkSession
    if not contains(spark, analysed(frame), "PYTHON_UDF"):
        return frame
    jvm: Any = spark._jvm
    meter = jvm.org.apache.spark.util.LongAccumulator()
    # Also count in failed tasks.
    meter.register(spark.sparkContext._jsc.sc(), jvm.scala.Option.apply(METER), True)
    catalyst, types = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.types
    to_map = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap
    expression = jvm.org.apache.spark.sql.classic.ExpressionUtils.expression
    literal = catalyst.Literal(meter, types.ObjectType(jvm.java.lang.Class.forName(_ACCUMULATOR)))
    # This expression, which calls bean setters, can call a method without a result in generated
    # code.
    added = catalyst.objects.InitializeJavaBean(
        literal, to_map({"add": expression(F.col(_ONE)._jc)})
    )
    boolean = expression(F.lit(True)._jc).dataType()
    is_zero = catalyst.objects.Invoke(
        added, "isZero", boolean, to_seq(spark, []), to_seq(spark, []), False, False, False
    )
    # A non-deterministic column keeps the optimizer from moving the count below Python.
    one = F.when(F.spark_partition_id() >= 0, 1).otherwise(0).cast("long")
    counted = frame.select("*", one.alias(_ONE)).where(~as_column(spark, is_zero))
    return counted.drop(_ONE)
