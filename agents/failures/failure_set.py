"""The failed records of a micro-batch without their rows, as input of decisions.

A few are collected on the driver once; later queries about them need no job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.executor.columns import (
    ENTRY,
    ERROR,
    FATE,
    ORDINAL,
    POSITION,
    ROW,
    SOURCE,
    TASK,
)
from arrester.agents.failures import aggregate_in_spark, aggregate_on_driver
from arrester.agents.failures.aggregate_in_spark import Coordinates, FailureGroup, FailureReport
from arrester.agents.failures.aggregate_on_driver import DriverRecord
from arrester.agents.failures.failed_record import FailedRecord, explained, fetched
from arrester.agents.journal.entries import Cursor
from arrester.agents.spark.local_checkpoint import ID, PLACE_BITS, checkpointed, numbered, release
from arrester.agents.spark.local_relation import at_most, gathered, rows_in

#: At most this many are collected on the driver, at some hundred bytes each.
FEW: Final = 20_000
#: For longer lists Spark makes a set (`spark.sql.optimizer.inSetConversionThreshold`).
_SHORT: Final = 10
#: Possibly long texts that decide nothing.
_TEXTS = ("message", "stack")


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Failed records of an evaluated frame. Each has a number, ID, that identifies its row."""

    #: TASK, ENTRY, POSITION, FATE, ERROR without its texts, ORDINAL and ID.
    light: DataFrame
    #: The complete frame, with the same numbers.
    frame: DataFrame
    #: Whether they may be collected on the driver.
    few: bool
    #: Rows that were collected together with others: at most one frame, and its numbers.
    _along: list[tuple[Set[int], DataFrame]] = field(default_factory=list, repr=False)

    @classmethod
    def collect_few(cls, frame: DataFrame, *, partitions: int) -> Failures | None:
        """Return the failed records of `frame`, collected by one job; None: possibly too many.

        This job also completes the local checkpoint.
        """
        whole = numbered(frame)
        share = FEW // max(1, partitions)
        some = gathered(at_most(_light(whole.where(has_failed())), share + 1))
        found = cls(light=some, frame=whole, few=True)
        of_each = Counter(each.id >> PLACE_BITS for each in found.listed)
        return None if max(of_each.values(), default=0) > share else found

    @classmethod
    def of(cls, frame: DataFrame, *, failed: int) -> Failures:
        """Return the failed records of `frame`, of which there are at most this many."""
        whole = numbered(frame)
        return cls(light=_light(whole.where(has_failed())), frame=whole, few=are_few(failed))

    @cached_property
    def listed(self) -> Sequence[DriverRecord]:
        """The records in Python, only if they are few."""
        assert self.few
        return [DriverRecord.of(row, row[ID]) for row in self.light.collect()]

    @cached_property
    def records(self) -> DataFrame:
        """The records as a frame, on the driver if they are few."""
        return gathered(self.light) if self.few else self.light

    @property
    def rows(self) -> DataFrame:
        """The failed records with their rows."""
        return self.frame.where(has_failed())

    def has_any_of(self, numbers: Collection[int]) -> bool:
        """Whether one of them failed at one of these steps."""
        if self.few:
            return any(each.number in numbers for each in self.listed)
        return not self.light.where(F.col(FATE).isin(*numbers)).isEmpty()

    def groups(self, by_class: Collection[int]) -> list[FailureGroup]:
        """Return the records by task, step and kind; for steps in `by_class` also by cause."""
        if self.few:
            return aggregate_on_driver.grouped(self.listed, by_class)
        return aggregate_in_spark.grouped(self.light, by_class)

    def report(
        self,
        *,
        limit: int,
        described: Collection[Coordinates],
        pause_offsets: Mapping[str, Cursor],
        dead: Set[str],
    ) -> FailureReport:
        """Return the report about them; see
        `arrester.agents.failures.aggregate_in_spark.report`."""
        if self.few:
            return aggregate_on_driver.report(
                self.listed,
                limit=limit,
                described=described,
                pause_offsets=pause_offsets,
                dead=dead,
            )
        return aggregate_in_spark.report(
            self.light, limit=limit, described=described, pause_offsets=pause_offsets, dead=dead
        )

    def in_one(self, records: DataFrame) -> DataFrame:
        """Return some of the records in one partition, if they are few."""
        return records.coalesce(1) if self.few else records

    @contextmanager
    def persisted(self, records: DataFrame) -> Iterator[DataFrame]:
        """Give some of the records as they are now, for several queries."""
        if self.few:
            yield gathered(records)
            return
        block = checkpointed(records)
        try:
            yield block
        finally:
            release([block])

    def where(self, condition: Column) -> Failures:
        """Return the records for which the condition holds."""
        return replace(self, light=self.records.where(condition))

    def load(self, pipeline: Pipeline, records: DataFrame) -> list[FailedRecord]:
        """Return a few of the records with their rows and problems, in the order of `records`."""
        return self.load_by_id(pipeline, [row[ID] for row in records.select(ID).collect()])

    def load_by_id(self, pipeline: Pipeline, ids: Sequence[int]) -> list[FailedRecord]:
        """Return the records with these numbers, with their rows and problems, in this order."""
        if not ids:
            return []
        wanted = set(ids)
        for numbers, rows in self._along:
            if wanted <= numbers:
                small = rows if wanted == numbers else rows.where(is_in(ID, ids))
                break
        else:
            small = fetched(pipeline, self.frame.where(is_in(ID, ids)))
        by_id = dict(zip(sorted(ids), explained(pipeline, small), strict=True))
        return [by_id[each] for each in ids]

    def none_other_than(self, pipeline: Pipeline, others: Column, *, limit: int) -> bool:
        """Whether no row is one of these `others`, none of which has failed.

        The job that checks this also collects the records to report in full, up to `limit` per
        cause.
        """
        told = self.report(limit=limit, described=(), pause_offsets={}, dead=frozenset())
        wanted = F.expr(is_in(ID, told.examples)) if told.examples else F.lit(False)
        rows = self.frame.where(wanted | others).withColumn(ROW, F.when(wanted, F.col(ROW)))
        # One more row than wanted shows that there are others. A power of two, because the number
        # is part of the generated code, which is compiled for each number.
        small = fetched(pipeline, rows, beside=ID, most=1 << len(told.examples).bit_length())
        if rows_in(small) > len(told.examples):
            return False
        self._along[:] = [(frozenset(told.examples), small)]
        return True


def are_few(rows: int) -> bool:
    """Whether this many rows may be collected on the driver."""
    return rows <= FEW


@cache
def has_failed() -> Column:
    """Return whether a row represents a failed record."""
    return (F.col(ORDINAL) == 0) & (F.col(FATE) >= SOURCE)


def is_in(name: str, numbers: Collection[int]) -> str:
    """Return, as SQL, whether a column has one of these numbers.

    In this form the numbers are not part of Spark's generated code, so other numbers need no
    compilation. For a short list they otherwise would be.
    """
    listed = ", ".join(f"{each}L" for each in numbers)
    if len(numbers) <= _SHORT:
        return f"array_contains(array({listed}), {name})"
    return f"{name} IN ({listed})"


def _light(frame: DataFrame) -> DataFrame:
    """Return the numbered rows of an evaluated frame without long texts."""
    return frame.select(ID, TASK, ENTRY, POSITION, FATE, ORDINAL, _without_texts())


@cache
def _without_texts() -> Column:
    error = F.col(ERROR)
    for name in _TEXTS:
        error = error.withField(name, F.lit(None).cast("string"))
    return error.alias(ERROR)
