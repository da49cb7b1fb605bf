"""A few rows on the driver, where to ask for them again is no job; and how many rows there are."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.spark.catalyst import analysed, frame_of
from arrester.agents.spark.local_checkpoint import PLACE_BITS


def gathered(frame: DataFrame) -> DataFrame:
    """Return a frame of the rows that `frame` has now, in their order.

    They are the JVM's own rows: nothing is lost on a way through Python.
    """
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    execution = frame._jdf.queryExecution()
    rows = execution.executedPlan().executeCollect()
    relation = jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation(
        execution.analyzed().output(),
        jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(rows),
        False,
        jvm.scala.Option.empty(),
    )
    return frame_of(spark, relation)


def at_most(frame: DataFrame, rows: int) -> DataFrame:
    """Return `frame` with no more than so many rows of each partition.

    By their numbers: the counter of a limit has another name in the code of each plan, which is
    compiled anew for that, by Janino and then by the JVM.
    """
    return frame.where((F.monotonically_increasing_id() % (1 << PLACE_BITS)) < rows)


def rows_in(frame: DataFrame) -> int:
    """Return how many rows a gathered frame has: no job."""
    return int(analysed(frame).data().size())


def number_of(frame: DataFrame) -> int:
    """Return how many rows there are, counted where they are: no shuffle brings a total together.

    The local checkpoint that is made by this job is whole afterwards.
    """
    return int(frame._jdf.queryExecution().toRdd().count())
