"""Destinations of dead letters: files in a folder, or any other Spark sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.journal.entries import DeadLetters
from arrester.agents.journal.storage import FileExists
from arrester.agents.spark.catalyst import has_data_source
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.hadoop import storage
from arrester.controlplane.domain.errors import ArresterError

_PENDING = "_pending"


class DeadLettersUnusable(ArresterError):
    """The configured destination cannot be used. The message names the key and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedLetters:
    """Dead letters of one task that a destination rejected, permanently or at the first attempt."""

    task: str | None
    #: Failed attempts.
    failures: int
    #: The number of dead letters that are still pending.
    waiting: int
    problem: Problem
    #: Of the pending ones; None: all of the task's.
    ids: tuple[str, ...] | None = None


class Destination(Protocol):
    """One destination of dead letters."""

    @property
    def format(self) -> str:
        """The name of the format in events and on pages."""
        ...

    @property
    def raw(self) -> bool:
        """Whether the destination also needs the records' original bytes."""
        ...

    def prepare(self) -> None:
        """Check at the start of a run that it can be used; raises DeadLettersUnusable."""
        ...

    def name(self, letters: DeadLetters) -> str:
        """Return the place where these dead letters are found."""
        ...

    def write(self, frame: DataFrame, letters: DeadLetters) -> list[RejectedLetters]:
        """Write the dead letters; return the rejected ones.

        A repeated call changes nothing, or repeats them under the same IDs.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderDestination:
    """Files below a path, one folder per day and entry, each visible as a whole and once."""

    spark: SparkSession
    path: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    raw: bool = False

    def prepare(self) -> None:
        """Check that Spark has the format."""
        _require_format(self.spark, self.format)

    def name(self, letters: DeadLetters) -> str:
        """Return the folder."""
        return f"{self.path}/day={letters.day}/{letters.name}"

    def write(self, frame: DataFrame, letters: DeadLetters) -> list[RejectedLetters]:
        """Write a folder that Spark readers ignore, then move it to its day."""
        files = storage(self.spark, self.path)
        pending, place = f"{_PENDING}/{letters.name}", f"day={letters.day}/{letters.name}"
        if not files.exists(place):
            writer = frame.write.format(self.format).options(**self.options)
            writer.mode("overwrite").save(f"{self.path}/{pending}")
            try:
                files.move(pending, place)
            except FileExists:
                files.delete(pending)
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkDestination:
    """Any other Spark sink in append mode: at least once; `id` identifies duplicates."""

    spark: SparkSession
    path: str | None
    format: str
    options: Mapping[str, str]
    raw: bool = False

    def prepare(self) -> None:
        """Check that Spark has the format."""
        _require_format(self.spark, self.format)

    def name(self, letters: DeadLetters) -> str:
        """Return the table or path, if the options name it."""
        known = (self.path, *(self.options.get(name) for name in ("path", "dbtable", "table")))
        return next((each for each in known if each), self.format)

    def write(self, frame: DataFrame, letters: DeadLetters) -> list[RejectedLetters]:
        """Append the dead letters; by day, if there is a path."""
        dated = frame.withColumn("day", F.lit(letters.day))
        writer = dated.write.format(self.format).options(**self.options).mode("append")
        if self.path is not None:
            writer.partitionBy("day").save(self.path)
        else:
            writer.save()
        return []


def all_rejected(frame: DataFrame, problem: Problem) -> list[RejectedLetters]:
    """Return that all dead letters were rejected."""
    counts = frame.groupBy("task").count().collect()
    return [
        RejectedLetters(
            task=row["task"],
            failures=row["count"] * problem.attempts,
            waiting=row["count"],
            problem=problem,
        )
        for row in counts
    ]


def _require_format(spark: SparkSession, name: str) -> None:
    """Raise DeadLettersUnusable at the start of a run if Spark has no data source `name`."""
    if not has_data_source(spark, name):
        raise DeadLettersUnusable(
            f"errors.dlq.format={name!r}: Spark has no such data source; add its package"
        )
