"""Rows that Spark has stored: blocks of local checkpoints, and rows on the driver."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.plans.catalyst import (
    analysed_plan,
    array_as_seq,
    frame_of,
    has_classic,
    node_name,
    partition_count,
    to_list,
)

#: The lower bits of a row's ID are its index in its partition, the bits above are the partition.
ROW_INDEX_BITS: Final = 33
_IN_MEMORY_RELATION = "org.apache.spark.sql.execution.columnar.InMemoryRelation"
_LOCAL_RELATION = "org.apache.spark.sql.catalyst.plans.logical.LocalRelation"


def lazy_columnar_checkpoint(frame: DataFrame) -> DataFrame:
    """Return `frame` in a local checkpoint in columns, which its first job fills."""
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    # "Deserialized" for the JVM: in memory, columns are byte arrays anyway.
    level = jvm_class(jvm, "org.apache.spark.storage.StorageLevel").MEMORY_AND_DISK()
    # Each plan class has its own method `apply`, which hides that of the companion object.
    relations = getattr(jvm_class(jvm, f"{_IN_MEMORY_RELATION}$"), "MODULE$")
    no_table = jvm_class(jvm, "scala.Option").empty()
    relation = relations.apply(level, frame._jdf.queryExecution(), no_table)
    # Lost blocks are not evaluated again: the result could differ.
    relation.cacheBuilder().cachedColumnBuffers().localCheckpoint()
    return frame_of(spark, relation)


def partitions_of(frame: DataFrame) -> int:
    """Return the number of partitions of a local checkpoint."""
    return int(_rdd(frame).getNumPartitions())


def partitions_of_input(frame: DataFrame) -> int:
    """Return the number of partitions in which Spark computes a frame without a shuffle.

    A micro-batch is planned already.
    """
    leaves = to_list(analysed_plan(frame).collectLeaves())
    if all(node_name(leaf) == "LogicalRDD" for leaf in leaves):
        return sum(int(leaf.rdd().getNumPartitions()) for leaf in leaves)
    return partition_count(frame)


def unpersist(frame: DataFrame) -> None:
    """Release the blocks of a local checkpoint."""
    _unpersist_rdd(frame.sparkSession.sparkContext, _rdd(frame))


def release_created_at(context: Any, call_site: str) -> None:
    """Release the blocks of local checkpoints that were created at a call site."""
    for stored in context._jsc.getPersistentRDDs().values():
        # The author's code may have cached other RDDs meanwhile.
        if stored.rdd().getCreationSite() == call_site and stored.rdd().isLocallyCheckpointed():
            _unpersist_rdd(context, stored)


def _unpersist_rdd(context: Any, rdd: Any) -> None:
    """Release an RDD's blocks. RDD.unpersist would warn that they cannot be computed again."""
    context._jsc.sc().unpersistRDD(rdd.id(), False)


def _rdd(frame: DataFrame) -> Any:
    """Return the RDD of a local checkpoint."""
    plan = analysed_plan(frame)
    is_columnar = node_name(plan) == "InMemoryRelation"
    return plan.cacheBuilder().cachedColumnBuffers() if is_columnar else plan.rdd()


def to_driver(frame: DataFrame) -> DataFrame:
    """Evaluate `frame`, and return a frame of its rows on the driver, in order.

    They stay rows of the JVM, so no conversion to Python changes them.
    """
    execution = frame._jdf.queryExecution()
    rows = execution.executedPlan().executeCollect()
    return on_driver(frame.sparkSession, execution.analyzed().output(), rows)


def on_driver(spark: SparkSession, output: Any, rows: Any) -> DataFrame:
    """Return a frame of an array of the JVM's rows, with the columns of a plan's output."""
    jvm: Any = spark._jvm
    # Since 4.0, a relation may be the data of a stream.
    no_stream = [jvm_class(jvm, "scala.Option").empty()] if has_classic(spark) else []
    relation = jvm_class(jvm, _LOCAL_RELATION)(output, array_as_seq(spark, rows), False, *no_stream)
    return frame_of(spark, relation)


def of_arrow_streams(rows: DataFrame, name: str, schema: T.StructType) -> DataFrame:
    """Return a frame on the driver of the rows in the Arrow streams of a column: one or more.

    The JVM reads them as it reads what a Python worker returns, so no value changes.
    """
    spark = rows.sparkSession
    streams = [row[name] for row in rows.select(name).collect()]
    utils = jvm_class(spark._jvm, "org.apache.spark.sql.api.python.PythonSQLUtils")
    with TemporaryDirectory(prefix="arrester-") as folder:
        file = Path(folder) / "rows"
        _join_streams(streams, file)
        batches = utils.readArrowStreamFromFile(str(file))
    session: Any = spark._jsparkSession
    frame = DataFrame(utils.toDataFrame(batches, schema.json(), session), spark)
    return to_driver(frame)


def _join_streams(streams: Sequence[bytes], file: Path) -> None:
    """Write the batches of all streams, whose schemas are equal, to a file."""
    # Not every driver has PyArrow: only Python steps need it.
    import pyarrow as pa

    with ExitStack() as stack:
        writer: Any = None
        for stream in streams:
            reader = stack.enter_context(pa.ipc.open_stream(stream))
            writer = writer or stack.enter_context(pa.ipc.new_stream(str(file), reader.schema))
            for batch in reader:
                writer.write_batch(batch)


def local_row_count(frame: DataFrame) -> int:
    """Return the number of rows of a frame on the driver, without a job."""
    return int(analysed_plan(frame).data().size())


def row_count(frame: DataFrame) -> int:
    """Return the number of rows, counted without a shuffle.

    The job also completes a local checkpoint that is not complete yet.
    """
    return int(frame._jdf.queryExecution().toRdd().count())
