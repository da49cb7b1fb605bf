"""A local checkpoint that is kept in columns, as Spark's cache keeps rows.

A million rows in columns fit where they would not as objects, and cost less to store and read than
as bytes, one by one; who asks for some columns of few rows reads just those columns.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from arrester.agents.spark.catalyst import frame_of
from arrester.agents.spark.local_checkpoint import AS_BYTES
from arrester.agents.spark.session_conf import conf

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
    return frame_of(spark, relation)
