"""A local checkpoint that is kept in columns, as Spark's cache keeps rows.

A million rows in columns fit where they would not as objects, and cost less to store and read than
as bytes, one by one; who asks for some columns of few rows reads just those columns.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from agents.batches import conf
from agents.guard import analysed
from agents.room import AS_BYTES

#: What Spark's cache is known to take; what is inside of a struct, an array or a map, it copies.
_TAKEN: Final = (
    *(T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType),
    *(T.DecimalType, T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType),
    *(T.StructType, T.ArrayType, T.MapType),
)
#: To compress columns takes half as long again as to store them.
_UNCOMPRESSED: Final = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}


def in_columns(frame: DataFrame) -> DataFrame:
    """Return `frame` in a local checkpoint that its first job fills; as bytes where types forbid.

    It is in no list of what Spark has cached: nobody else's plans read it or can give it back.
    """
    if not all(type(field.dataType) in _TAKEN for field in frame.schema.fields):
        return frame.localCheckpoint(eager=False, storageLevel=AS_BYTES)
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    sql = jvm.org.apache.spark.sql
    # Deserialized, as the JVM means it: in memory columns are arrays of bytes anyway.
    level = jvm.org.apache.spark.storage.StorageLevel.MEMORY_AND_DISK()
    with conf(spark, _UNCOMPRESSED):
        # Each plan has a method `apply` of its own, which hides that of the companion.
        made = getattr(getattr(sql.execution.columnar, "InMemoryRelation$"), "MODULE$")
        relation = made.apply(level, frame._jdf.queryExecution(), jvm.scala.Option.empty())
        columns = relation.cacheBuilder().cachedColumnBuffers()
    # What is lost is not evaluated again: it might come to something else.
    columns.localCheckpoint()
    return DataFrame(sql.classic.Dataset.ofRows(spark._jsparkSession, relation), spark)


def give_back(frame: DataFrame) -> None:
    """Give the blocks of a local checkpoint back, of rows or of columns."""
    _kept(frame).unpersist(False)


def partitions_of(frame: DataFrame) -> int:
    """Return how many partitions a local checkpoint has."""
    return int(_kept(frame).getNumPartitions())


def _kept(frame: DataFrame) -> Any:
    """Return the RDD that a local checkpoint is kept in."""
    plan = analysed(frame)
    is_columnar = plan.getClass().getSimpleName() == "InMemoryRelation"
    return plan.cacheBuilder().cachedColumnBuffers() if is_columnar else plan.rdd()
