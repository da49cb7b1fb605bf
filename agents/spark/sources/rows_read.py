"""Whether a function of a DataFrame has read all of its rows.

A function may return without an exception although it read nothing or only some rows, or caught the
exception of a failed job. Executors count the rows that are read.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from pyspark.sql import DataFrame

from arrester.agents.spark.jvm.job_status import read_to_the_end
from arrester.agents.spark.jvm.plans.row_counter import RowCounter
from arrester.agents.spark.jvm.stored_rows import row_count
from arrester.domain.errors import ArresterError


class RowsUnread(ArresterError):
    """A function returned without having read all rows of its DataFrame."""

    def __init__(self, *, read: int, given: int) -> None:
        super().__init__(
            f"it returned after reading {read:,} of {given:,} rows: finish the write before it "
            "returns (.save(), .join() of threads), do not catch its exceptions, or declare "
            "partial=True if it reads a part on purpose"
        )


def call_with_all_rows(function: Callable[[DataFrame], object], frame: DataFrame) -> None:
    """Call `function` with `frame`; raises RowsUnread if it returns before it has read all rows.

    It may read them more than once. If its jobs do not show that it read all, one more job counts
    the rows, and raises the exceptions of `frame`.
    """
    spark = frame.sparkSession
    counter = RowCounter(spark, name=None, counts_failed_tasks=False)
    tag = f"arrester-read-{uuid4().hex}"
    spark.sparkContext.addJobTag(tag)
    try:
        function(counter.counted(frame))
    finally:
        spark.sparkContext.removeJobTag(tag)
    if counter.count and read_to_the_end(spark, tag):
        return
    given, read = row_count(frame), counter.count
    if read < given:
        raise RowsUnread(read=read, given=given)
