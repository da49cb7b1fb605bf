"""The failed records of a micro-batch without their rows, as input of decisions.

A few are collected on the driver once; later queries about them need no job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures import aggregate
from arrester.agents.failures.aggregate import (
    HASH,
    Coordinates,
    FailureReport,
    FailureSummary,
    Ranking,
)
from arrester.agents.failures.failed_record import FailedRecord, diagnosed, fetched
from arrester.agents.failures.pause_offsets import place
from arrester.agents.failures.record_hash import RecordHash
from arrester.agents.journal.entries import Cursor
from arrester.agents.spark.frames.local_checkpoint import (
    ID,
    limit_per_partition,
    numbered,
)
from arrester.agents.spark.jvm.stored_rows import ROW_INDEX_BITS, local_row_count, to_driver
from arrester.agents.worker.columns import (
    ENTRY,
    ERROR,
    ORDINAL,
    OUTCOME,
    POSITION,
    ROW,
    SOURCE,
    TASK,
)

#: At most this many are collected on the driver, at some hundred bytes each.
DRIVER_LIMIT: Final = 20_000
#: For longer lists Spark makes a set (`spark.sql.optimizer.inSetConversionThreshold`).
_SHORT: Final = 10
#: Possibly long texts that decide nothing.
_TEXTS = ("message", "stack")


@dataclass(kw_only=True)
class FailureSet:
    """Failed records of an evaluated frame. Each has a number, ID, that identifies its row."""

    #: TASK, ENTRY, POSITION, OUTCOME, ERROR without its texts, ORDINAL, ID, HASH.
    compact: DataFrame
    #: The complete frame, with the same numbers.
    frame: DataFrame
    #: Whether they may be collected on the driver.
    is_small: bool
    #: The number of records that were evaluated; None: those of the frame.
    evaluated: int | None = None
    #: Rows that were collected together with others: at most one frame, and its numbers.
    _loaded: list[tuple[Set[int], DataFrame]] = field(default_factory=list, repr=False)
    #: The arguments of `rank`, and the ranking of many records by these.
    _ranked: tuple[object, Ranking] | None = field(default=None, repr=False)

    @classmethod
    def collect(
        cls, frame: DataFrame, *, partitions: int, record_hash: RecordHash | None
    ) -> FailureSet | None:
        """Return the failed records of `frame`, collected by one job; None: possibly too many.

        This job also completes the local checkpoint, and hashes the records.
        """
        limit = DRIVER_LIMIT // max(1, partitions)
        rows = numbered(frame)
        failed = _compact(rows.where(has_failed()), record_hash)
        compact = to_driver(limit_per_partition(failed, limit + 1))
        failures = cls(compact=compact, frame=rows, is_small=True)
        by_partition = Counter(each.id >> ROW_INDEX_BITS for each in failures.on_driver)
        return None if max(by_partition.values(), default=0) > limit else failures

    @classmethod
    def of(
        cls,
        frame: DataFrame,
        *,
        failed: int,
        record_hash: RecordHash | None = None,
        evaluated: int | None = None,
    ) -> FailureSet:
        """Return the failed records of `frame`, of which there are at most this many."""
        is_small = fits_driver(failed)
        failures = cls.of_numbered(numbered(frame), is_small=is_small, record_hash=record_hash)
        failures.evaluated = evaluated
        return failures

    @classmethod
    def of_numbered(
        cls, frame: DataFrame, *, is_small: bool, record_hash: RecordHash | None = None
    ) -> FailureSet:
        """Return the failed records of a frame whose rows have IDs."""
        compact = _compact(frame.where(has_failed()), record_hash)
        return cls(compact=compact, frame=frame, is_small=is_small)

    @cached_property
    def on_driver(self) -> Sequence[FailureSummary]:
        """The records in Python, only if they are few."""
        assert self.is_small
        return [
            FailureSummary.of(row)._replace(record_hash=row[HASH]) for row in self.compact.collect()
        ]

    @property
    def record_hashes(self) -> list[int] | None:
        """The hashes of the summaries; None if the records were collected without."""
        hashes = [each.record_hash for each in self.summaries if each.record_hash is not None]
        return hashes if len(hashes) == len(self.summaries) else None

    @cached_property
    def records(self) -> DataFrame:
        """The records as a frame; on the driver and in one partition if they are few."""
        return to_driver(self.compact).coalesce(1) if self.is_small else self.compact

    def at_driver(self) -> FailureSet:
        """Return the records collected by one job, if they are few."""
        return replace(self, compact=self.records)

    def rank(self, *, limit: int, in_full: Collection[Coordinates]) -> None:
        """Rank many records by one job, which serves the summaries and a report without pauses."""
        if not self.is_small:
            ranked = aggregate.ranked_in_spark(
                self.compact, limit=limit, in_full=in_full, pause_offsets={}
            )
            self._ranked = (limit, frozenset(in_full)), ranked

    @property
    def rows(self) -> DataFrame:
        """The failed records with their rows."""
        return self.frame.where(has_failed())

    def has_failed_at(self, numbers: Collection[int]) -> bool:
        """Whether one of them failed at one of these steps."""
        if self.is_small:
            return any(each.number in numbers for each in self.on_driver)
        return not self.compact.where(F.col(OUTCOME).isin(*numbers)).isEmpty()

    @cached_property
    def summaries(self) -> Sequence[FailureSummary]:
        """Each record, or of many the sums by task and cause."""
        if self.is_small:
            return self.on_driver
        if self._ranked is not None:
            return [row for _, row in self._ranked[1]]
        return aggregate.combined_in_spark(self.compact)

    def groups(self, by_class: Collection[int]) -> list[FailureSummary]:
        """Return the records by task, step and kind; for steps in `by_class` also by cause."""
        return aggregate.grouped(self.summaries, by_class)

    def report(
        self,
        *,
        limit: int,
        in_full: Collection[Coordinates] = (),
        pause_offsets: Mapping[str, Cursor] = MappingProxyType({}),
    ) -> FailureReport:
        """Return the report about the records that are not held; see `aggregate.report`."""
        if self.is_small:
            ranked = aggregate.ranked_on_driver(self.on_driver, pause_offsets)
        elif (
            self._ranked is not None
            and not pause_offsets
            and self._ranked[0] == (limit, frozenset(in_full))
        ):
            ranked = self._ranked[1]
        else:
            ranked = aggregate.ranked_in_spark(
                self.compact, limit=limit, in_full=in_full, pause_offsets=pause_offsets
            )
        return aggregate.report(ranked, limit=limit, in_full=in_full, pause_offsets=pause_offsets)

    def ordered(self) -> Iterator[FailureSummary]:
        """Yield the records in order, by task and position."""
        if self.is_small:
            yield from sorted(self.on_driver, key=lambda each: each.order)
            return
        ordered = self.compact.orderBy(F.col(TASK).asc_nulls_first(), place().asc())
        yield from map(FailureSummary.of, ordered.toLocalIterator())

    def where(self, condition: Column) -> FailureSet:
        """Return the records for which the condition holds."""
        return replace(self, compact=self.records.where(condition), _ranked=None)

    def load(self, pipeline: Pipeline, records: DataFrame) -> list[FailedRecord]:
        """Return a few of the records with their rows and problems, in the order of `records`."""
        return self.load_by_id(pipeline, [row[ID] for row in records.select(ID).collect()])

    def load_by_id(self, pipeline: Pipeline, ids: Sequence[int]) -> list[FailedRecord]:
        """Return the records with these numbers, with their rows and problems, in this order."""
        if not ids:
            return []
        for numbers, rows in self._loaded:
            if numbers >= set(ids):
                loaded = rows if len(numbers) == len(ids) else rows.where(is_in(ID, ids))
                break
        else:
            loaded = fetched(pipeline, self.frame.where(is_in(ID, ids)))
        by_id = dict(zip(sorted(ids), diagnosed(pipeline, loaded), strict=True))
        return [by_id[each] for each in ids]

    def has_no_other_rows(self, pipeline: Pipeline, others: Column, *, limit: int) -> bool:
        """Whether no row is one of these `others`, none of which has failed.

        The job that checks this also collects the records to report in full, up to `limit` per
        cause.
        """
        examples = self.report(limit=limit).examples
        is_example = F.expr(is_in(ID, examples)) if examples else F.lit(False)
        rows = self.frame.where(is_example | others)
        rows = rows.withColumn(ROW, F.when(is_example, F.col(ROW)))
        # One more row than examples shows that there are others. A power of two, because the number
        # is part of the generated code, which is compiled for each number.
        loaded = fetched(pipeline, rows, ID, most=1 << len(examples).bit_length())
        if local_row_count(loaded) > len(examples):
            return False
        self._loaded[:] = [(frozenset(examples), loaded)]
        return True


def fits_driver(rows: int) -> bool:
    """Whether this many rows may be collected on the driver."""
    return rows <= DRIVER_LIMIT


@cache
def has_failed() -> Column:
    """Return whether a row represents a failed record."""
    return (F.col(ORDINAL) == 0) & (F.col(OUTCOME) >= SOURCE)


def is_in(name: str, numbers: Collection[int]) -> str:
    """Return, as SQL, whether a column has one of these numbers.

    In this form the numbers are not part of Spark's generated code, so other numbers need no
    compilation. For a short list they otherwise would be.
    """
    listed = ", ".join(f"{each}L" for each in numbers)
    if len(numbers) <= _SHORT:
        return f"array_contains(array({listed}), {name})"
    return f"{name} IN ({listed})"


def _compact(frame: DataFrame, record_hash: RecordHash | None) -> DataFrame:
    """Return the numbered rows of an evaluated frame without long texts, each with its hash."""
    hashed = F.lit(None).cast("long") if record_hash is None else F.expr(record_hash.sql)
    columns = (ID, TASK, ENTRY, POSITION, OUTCOME, ORDINAL, _without_texts())
    return frame.select(*columns, hashed.alias(HASH))


@cache
def _without_texts() -> Column:
    error = F.col(ERROR)
    for name in _TEXTS:
        error = error.withField(name, F.lit(None).cast("string"))
    return error.alias(ERROR)
