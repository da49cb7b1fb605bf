"""Columnar local checkpoints, in the format of Spark's cache.

In columns a million rows fit where they would not as objects. They cost less to write and read than
single rows as bytes, and a job over a few columns reads only these.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from arrester.agents.spark.catalyst import frame_of
from arrester.agents.spark.local_checkpoint import AS_BYTES
from arrester.agents.spark.session_conf import conf

#: The types that Spark's cache supports. Types inside structs, arrays and maps are copied.
_TAKEN: Final = (
    *(T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType),
    *(T.DecimalType, T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType),
    *(T.StructType, T.ArrayType, T.MapType),
)
#: Compression takes 1.5 times as long as storing.
_UNCOMPRESSED: Final = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}


def in_columns(frame: DataFrame) -> DataFrame:
    """Return `frame` in a local checkpoint that its first job fills; as bytes for other types.

    Spark does not list it as cached, so other plans neither read nor release it.
    """
    if not all(type(field.dataType) in _TAKEN for field in frame.schema.fields):
        return frame.localCheckpoint(eager=False, storageLevel=AS_BYTES)
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    sql = jvm.org.apache.spark.sql
    # "Deserialized" for the JVM: in memory, columns are byte arrays anyway.
    level = jvm.org.apache.spark.storage.StorageLevel.MEMORY_AND_DISK()
    with conf(spark, _UNCOMPRESSED):
        # Each plan class has its own method `apply`, which hides that of the companion object.
        made = getattr(getattr(sql.execution.columnar, "InMemoryRelation$"), "MODULE$")
        relation = made.apply(level, frame._jdf.queryExecution(), jvm.scala.Option.empty())
        columns = relation.cacheBuilder().cachedColumnBuffers()
    # Lost blocks are not evaluated again: the result could differ.
    columns.localCheckpoint()
    return frame_of(spark, relation)
