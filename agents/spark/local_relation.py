"""A few rows on the driver, which are read again without a job; and row counts."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.spark.catalyst import analysed, frame_of
from arrester.agents.spark.local_checkpoint import PLACE_BITS


def gathered(frame: DataFrame) -> DataFrame:
    """Return a frame of the present rows of `frame`, in order.

    They are the JVM's own rows, so nothing is lost in a conversion to Python.
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
    """Return `frame` with at most this many rows of each partition.

    By row number: the code of a limit contains a new name in each plan, which Janino and the JVM
    would compile again.
    """
    return frame.where((F.monotonically_increasing_id() % (1 << PLACE_BITS)) < rows)


def rows_in(frame: DataFrame) -> int:
    """Return the number of rows of a gathered frame, without a job."""
    return int(analysed(frame).data().size())


def number_of(frame: DataFrame) -> int:
    """Return the number of rows, counted without a shuffle.

    This job also completes the local checkpoint.
    """
    return int(frame._jdf.queryExecution().toRdd().count())
