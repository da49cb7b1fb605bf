"""The failed records of a micro-batch without their rows: they are decided about by this.

A few of them are brought to the driver once; whatever is asked of them then is no job.
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
from arrester.agents.failures.aggregate_in_spark import Coordinates, Group, Told
from arrester.agents.failures.aggregate_on_driver import Listed
from arrester.agents.failures.failed_record import FailedRecord, explained, fetched
from arrester.agents.journal.entries import Cursor
from arrester.agents.spark.local_checkpoint import ID, PLACE_BITS, checkpointed, numbered, release
from arrester.agents.spark.local_relation import at_most, gathered, rows_in

#: So many are brought to the driver at most: some hundred bytes each.
FEW: Final = 20_000
#: Of more, Spark makes a set (`spark.sql.optimizer.inSetConversionThreshold`).
_SHORT: Final = 10
#: May be long, and nothing is decided by them.
_TEXTS = ("message", "stack")


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Failed records of an evaluated frame, each with a number of its own, ID, for its row."""

    #: TASK, ENTRY, POSITION, FATE, ERROR without its texts, ORDINAL and ID.
    light: DataFrame
    #: The whole frame, with the same numbers.
    frame: DataFrame
    #: Whether they may be brought to the driver.
    few: bool
    #: Rows of some of them that were brought along with others: at most one frame, and its numbers.
    _along: list[tuple[Set[int], DataFrame]] = field(default_factory=list, repr=False)

    @classmethod
    def brought_from(cls, frame: DataFrame, *, partitions: int) -> Failures | None:
        """Return those of `frame`, brought to the driver by one job; None: there may be too many.

        The local checkpoint that is made by this job is whole afterwards.
        """
        whole = numbered(frame)
        share = FEW // max(1, partitions)
        some = gathered(at_most(_light(whole.where(has_failed())), share + 1))
        found = cls(light=some, frame=whole, few=True)
        of_each = Counter(each.id >> PLACE_BITS for each in found.listed)
        return None if max(of_each.values(), default=0) > share else found

    @classmethod
    def of(cls, frame: DataFrame, *, failed: int) -> Failures:
        """Return those of `frame`, of whose records so many, or fewer, have failed."""
        whole = numbered(frame)
        return cls(light=_light(whole.where(has_failed())), frame=whole, few=are_few(failed))

    @cached_property
    def listed(self) -> Sequence[Listed]:
        """The records in Python: only where they are few."""
        assert self.few
        return [Listed.of(row, row[ID]) for row in self.light.collect()]

    @cached_property
    def records(self) -> DataFrame:
        """The records as a frame; few of them are on the driver."""
        return gathered(self.light) if self.few else self.light

    @property
    def rows(self) -> DataFrame:
        """The failed records with their rows."""
        return self.frame.where(has_failed())

    def has_any_of(self, numbers: Collection[int]) -> bool:
        """Whether one of them has failed at one of these steps."""
        if self.few:
            return any(each.number in numbers for each in self.listed)
        return not self.light.where(F.col(FATE).isin(*numbers)).isEmpty()

    def groups(self, by_class: Collection[int]) -> list[Group]:
        """Return them by task, step and kind; of steps in `by_class` by their cause, too."""
        if self.few:
            return aggregate_on_driver.grouped(self.listed, by_class)
        return aggregate_in_spark.grouped(self.light, by_class)

    def told(
        self,
        *,
        limit: int,
        described: Collection[Coordinates],
        cuts: Mapping[str, Cursor],
        dead: Set[str],
    ) -> Told:
        """Return what is told of them; see `arrester.agents.failures.aggregate_in_spark.told`."""
        if self.few:
            return aggregate_on_driver.told(
                self.listed, limit=limit, described=described, cuts=cuts, dead=dead
            )
        return aggregate_in_spark.told(
            self.light, limit=limit, described=described, cuts=cuts, dead=dead
        )

    def in_one(self, records: DataFrame) -> DataFrame:
        """Return some of the records for what has to see them together: few need no shuffle."""
        return records.coalesce(1) if self.few else records

    @contextmanager
    def kept(self, records: DataFrame) -> Iterator[DataFrame]:
        """Give some of the records as they are now, with what was found out about them."""
        if self.few:
            yield gathered(records)
            return
        block = checkpointed(records)
        try:
            yield block
        finally:
            release([block])

    def where(self, condition: Column) -> Failures:
        """Return those of which the condition holds."""
        return replace(self, light=self.records.where(condition))

    def bring(self, pipeline: Pipeline, records: DataFrame) -> list[FailedRecord]:
        """Return a few of the records with their rows and reasons, in the order of `records`."""
        return self.brought(pipeline, [row[ID] for row in records.select(ID).collect()])

    def brought(self, pipeline: Pipeline, ids: Sequence[int]) -> list[FailedRecord]:
        """Return the records of these numbers with their rows and reasons, in this order."""
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

    def no_others(self, pipeline: Pipeline, others: Column, *, limit: int) -> bool:
        """Whether no row is one of these `others`, none of which has failed.

        The job that looks for them brings what is described first, so many of each cause, along.
        """
        told = self.told(limit=limit, described=(), cuts={}, dead=frozenset())
        wanted = F.expr(is_in(ID, told.examples)) if told.examples else F.lit(False)
        rows = self.frame.where(wanted | others).withColumn(ROW, F.when(wanted, F.col(ROW)))
        # More than are wanted: one of the others is among them, however many there are. A power of
        # two: the number stands in generated code, which is compiled for each anew.
        small = fetched(pipeline, rows, beside=ID, most=1 << len(told.examples).bit_length())
        if rows_in(small) > len(told.examples):
            return False
        self._along[:] = [(frozenset(told.examples), small)]
        return True


def are_few(rows: int) -> bool:
    """Whether so many rows may be brought to the driver."""
    return rows <= FEW


@cache
def has_failed() -> Column:
    """Return whether a row stands for a record that has failed."""
    return (F.col(ORDINAL) == 0) & (F.col(FATE) >= SOURCE)


def is_in(name: str, numbers: Collection[int]) -> str:
    """Return, as SQL, whether a column has one of these numbers.

    However many they are, they do not stand in the code that Spark generates for it: other numbers
    need no other code. Of a short list they would.
    """
    listed = ", ".join(f"{each}L" for each in numbers)
    if len(numbers) <= _SHORT:
        return f"array_contains(array({listed}), {name})"
    return f"{name} IN ({listed})"


def _light(frame: DataFrame) -> DataFrame:
    """Return the numbered rows of an evaluated frame without what may be long."""
    return frame.select(ID, TASK, ENTRY, POSITION, FATE, ORDINAL, _without_texts())


@cache
def _without_texts() -> Column:
    error = F.col(ERROR)
    for name in _TEXTS:
        error = error.withField(name, F.lit(None).cast("string"))
    return error.alias(ERROR)
