"""Where dead letters go: files by folder, or any other Spark sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.journal.entries import DeadLetters
from arrester.agents.journal.storage import FileTaken
from arrester.agents.spark.catalyst import has_data_source
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.hadoop import storage
from arrester.controlplane.domain.errors import ArresterError

_PENDING = "_pending"


class DeadLettersUnusable(ArresterError):
    """Dead letters cannot go where the configuration says; the message names the key and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Dead letters of one task that were not taken: at all, or not at once."""

    task: str | None
    #: Failed attempts.
    failures: int
    #: How many are still to be written.
    waiting: int
    problem: Problem
    #: Of those that wait; None: all of the task's.
    ids: tuple[str, ...] | None = None


class Place(Protocol):
    """One place of dead letters."""

    @property
    def format(self) -> str:
        """What events and pages call it."""
        ...

    @property
    def raw(self) -> bool:
        """Whether the records' own bytes are wanted beside the rows."""
        ...

    def prepare(self) -> None:
        """Look at the start of a run whether it can be used; raises DeadLettersUnusable."""
        ...

    def name(self, letters: DeadLetters) -> str:
        """Return where these letters are to be found."""
        ...

    def write(self, frame: DataFrame, letters: DeadLetters) -> list[Refused]:
        """Write the letters; return what was refused.

        Asked again after it was done, it changes nothing, or repeats them under the same ids.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderPlace:
    """Files below a path, by day: a folder for each entry, there as a whole and once."""

    spark: SparkSession
    path: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    raw: bool = False

    def prepare(self) -> None:
        """Look for the format."""
        _require_format(self.spark, self.format)

    def name(self, letters: DeadLetters) -> str:
        """Return the folder."""
        return f"{self.path}/day={letters.day}/{letters.name}"

    def write(self, frame: DataFrame, letters: DeadLetters) -> list[Refused]:
        """Write a folder that Spark readers pass over, then move it to its day."""
        files = storage(self.spark, self.path)
        pending, place = f"{_PENDING}/{letters.name}", f"day={letters.day}/{letters.name}"
        if not files.exists(place):
            writer = frame.write.format(self.format).options(**self.options)
            writer.mode("overwrite").save(f"{self.path}/{pending}")
            try:
                files.move(pending, place)
            except FileTaken:
                files.delete(pending)
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPlace:
    """Any other Spark sink, appended to: at least once, to be told apart by `id`."""

    spark: SparkSession
    path: str | None
    format: str
    options: Mapping[str, str]
    raw: bool = False

    def prepare(self) -> None:
        """Look for the format."""
        _require_format(self.spark, self.format)

    def name(self, letters: DeadLetters) -> str:
        """Return the table or path, as far as the options say it."""
        known = (self.path, *(self.options.get(name) for name in ("path", "dbtable", "table")))
        return next((each for each in known if each), self.format)

    def write(self, frame: DataFrame, letters: DeadLetters) -> list[Refused]:
        """Append the letters; by day, where there is a path."""
        dated = frame.withColumn("day", F.lit(letters.day))
        writer = dated.write.format(self.format).options(**self.options).mode("append")
        if self.path is not None:
            writer.partitionBy("day").save(self.path)
        else:
            writer.save()
        return []


def all_waiting(frame: DataFrame, problem: Problem) -> list[Refused]:
    """Return that none of the letters was taken."""
    counts = frame.groupBy("task").count().collect()
    return [
        Refused(
            task=row["task"],
            failures=row["count"] * problem.attempts,
            waiting=row["count"],
            problem=problem,
        )
        for row in counts
    ]


def _require_format(spark: SparkSession, name: str) -> None:
    """Raise DeadLettersUnusable now, not at the first dead letter, where Spark knows no `name`."""
    if not has_data_source(spark, name):
        raise DeadLettersUnusable(
            f"errors.dlq.format={name!r}: Spark has no such data source; add its package"
        )
