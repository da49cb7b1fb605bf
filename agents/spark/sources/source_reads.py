"""The number of records of a source that a write reads, however often it reads them.

Executors count the rows that they read. A store of ours reads once. An author's function may look
at some rows first, or write twice: then Spark's status has the rows that each of its stages read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import uuid4

from pyspark.sql import DataFrame

from arrester.agents.spark.jvm.job_status import accumulated_by_stage
from arrester.agents.spark.jvm.plans.row_counter import RowCounter
from arrester.agents.spark.jvm.stored_rows import row_count

#: The name of the accumulator in Spark's task status.
_NAME: Final = "arrester.source_rows"


class Reads(Protocol):
    """The rows that a write reads."""

    @property
    def frame(self) -> DataFrame:
        """What the write gets."""
        ...

    def watched(self) -> AbstractContextManager[None]:
        """Watch the jobs of the block, which contains the write."""
        ...

    def count(self) -> int:
        """Return the number of records that the write read."""
        ...


@dataclass(frozen=True, slots=True)
class UncountedReads:
    """Rows whose number is known, or is not needed."""

    frame: DataFrame

    def watched(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def count(self) -> int:
        """Return 0."""
        return 0


class SourceReads:
    """Counts the records that one write reads from `source`.

    A write that reads once may use a `counter` that counted earlier ones: its parts in the JVM take
    milliseconds. Spark's status has the sum of all.
    """

    def __init__(self, source: DataFrame, *, counter: RowCounter | None) -> None:
        self._source = source
        self._tag = f"arrester-source-{uuid4().hex}" if counter is None else None
        self._counter = counter or RowCounter(
            source.sparkSession, name=_NAME, counts_failed_tasks=False
        )
        self._before = 0 if counter is None else counter.count
        #: The same rows, each counted when it is read.
        self.frame = self._counter.counted(source)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the jobs of the block, which contains the write."""
        context = self._source.sparkSession.sparkContext
        if self._tag is None:
            yield
            return
        context.addJobTag(self._tag)
        try:
            yield
        finally:
            context.removeJobTag(self._tag)

    def count(self) -> int:
        """Return the number of records.

        One more job counts them if the write read nothing, for example because the number of the
        micro-batch is stored already, or in jobs that do not show what they read.
        """
        read = self._counter.count - self._before
        if read and self._tag is not None:
            by_stage = accumulated_by_stage(self._source.sparkSession, self._tag, _NAME)
            read = max(by_stage, default=0)
        return read or row_count(self._source)
