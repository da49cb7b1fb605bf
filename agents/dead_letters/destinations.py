"""Destinations of dead letters: files in a folder, or any other Spark sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.dead_letters.read_back import (
    DELTA,
    SUCCESS,
    DeadLetterRequest,
    StoredDeadLetters,
    complete_files,
    read_delta,
    read_files,
)
from arrester.agents.journal.entries import DeadLetters
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.frames.local_checkpoint import Checkpoints
from arrester.agents.spark.jvm.session import has_data_source
from arrester.agents.spark.jvm.stores.driver_files import rows_on_driver, write_folder
from arrester.agents.spark.jvm.stores.hadoop import create_empty, why_not_writable
from arrester.agents.spark.jvm.stores.hadoop_storage import storage
from arrester.domain.commands.redrive import READABLE_FILES
from arrester.domain.errors import ArresterError, InvalidValue

#: Spark's default cuts times in JSON to milliseconds. The time of a dead letter is part of its
#: identity.
_JSON_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
#: The version of the columns of dead letters in files. A table has the columns that it was made
#: with.
LAYOUT, LAYOUT_VERSION = "layout_version", 1
_MARK_SUCCESS = "mapreduce.fileoutputcommitter.marksuccessfuljobs"


class DeadLettersUnusable(ArresterError):
    """The configured destination cannot be used. The message names the key and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedDeadLetters:
    """Dead letters of one task that a destination rejected, at least at the first attempt."""

    task: str | None
    #: Failed attempts.
    failures: int
    #: The number of dead letters that wait for a further attempt.
    waiting: int
    problem: Problem
    #: The IDs of those that wait; None: all of the task's dead letters wait.
    ids: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Destination(ABC):
    """One destination of dead letters."""

    spark: SparkSession
    #: The name of the format in events and on pages.
    format: str
    #: Whether the destination also needs the records' original bytes.
    raw: bool = False

    @abstractmethod
    def prepare(self) -> None:
        """Check at the start of a run that the destination can be used.

        Raises DeadLettersUnusable.
        """

    @abstractmethod
    def location(self, dead_letters: DeadLetters) -> str:
        """Return the place where these dead letters are found."""

    @abstractmethod
    def write(self, rows: DataFrame, dead_letters: DeadLetters) -> list[RejectedDeadLetters]:
        """Write the dead letters; return the rejected ones.

        A repeated call changes nothing, or repeats them under the same IDs.
        """

    def read(self, request: DeadLetterRequest, checkpoints: Checkpoints) -> StoredDeadLetters:
        """Return dead letters that were written, evaluated in local checkpoints.

        Raises InvalidValue for a destination that cannot be read back, and DeadLettersUnreadable.
        """
        allowed = (
            f"{', '.join(READABLE_FILES)}, {DELTA} with a path, or a topic, to read dead letters "
            "back; read them from their destination and give them to agent.redrive"
        )
        raise InvalidValue("errors.dlq.format", self.format, allowed)


@dataclass(frozen=True, kw_only=True)
class SparkDestination(Destination):
    """Any Spark sink in append mode: at least once; `id` identifies duplicates."""

    path: str | None
    options: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """Check that Spark has the format."""
        if not has_data_source(self.spark, self.format):
            raise DeadLettersUnusable(
                f"errors.dlq.format={self.format!r}: Spark has no such data source; add its package"
            )

    def location(self, dead_letters: DeadLetters) -> str:
        """Return the path or table if the settings name one, else the format."""
        places = (self.path, *(self.options.get(name) for name in ("path", "dbtable", "table")))
        return next((place for place in places if place), self.format)

    def write(self, rows: DataFrame, dead_letters: DeadLetters) -> list[RejectedDeadLetters]:
        """Append the dead letters; below a path, in a folder for each day."""
        dated = rows.withColumn("day", F.lit(dead_letters.day))
        writer = dated.write.format(self.format).options(**self.options).mode("append")
        if self.path is not None:
            writer.partitionBy("day").save(self.path)
        else:
            writer.save()
        return []

    def read(self, request: DeadLetterRequest, checkpoints: Checkpoints) -> StoredDeadLetters:
        """Return dead letters of a Delta table at a path."""
        path = self.path or self.options.get("path")
        if self.format != DELTA or path is None:
            return super().read(request, checkpoints)
        return read_delta(
            request, path, spark=self.spark, options=self.options, checkpoints=checkpoints
        )


@dataclass(frozen=True, kw_only=True)
class FolderDestination(SparkDestination):
    """Files below a path, one folder per day and entry. `_SUCCESS` marks a complete folder."""

    path: str

    def prepare(self) -> None:
        """Check that Spark has the format, and that files can be written to the path."""
        super().prepare()
        reason = why_not_writable(self.spark, self.path)
        if reason is not None:
            raise DeadLettersUnusable(
                f"errors.dlq.path={self.path!r}: no file can be written there ({reason}); give a "
                "folder that the driver and the executors can write to"
            )

    def location(self, dead_letters: DeadLetters) -> str:
        """Return the folder."""
        return f"{self.path}/{_day_folder(dead_letters)}"

    def write(self, rows: DataFrame, dead_letters: DeadLetters) -> list[RejectedDeadLetters]:
        """Write the folder, unless it is complete; an incomplete one is replaced."""
        folder = _day_folder(dead_letters)
        if not storage(self.spark, self.path).exists(f"{folder}/{SUCCESS}"):
            rows = rows.withColumn(LAYOUT, F.lit(LAYOUT_VERSION))
            self._write(rows, f"{self.path}/{folder}")
        return []

    def _write(self, rows: DataFrame, folder: str) -> None:
        local = rows_on_driver(rows, self.format)
        if local is not None:
            write_folder(local, folder, format=self.format, options=self._file_options)
            create_empty(self.spark, f"{folder}/{SUCCESS}")
        else:
            writer = rows.write.format(self.format).options(**self._file_options)
            writer.option(_MARK_SUCCESS, "true").mode("overwrite").save(folder)

    def read(self, request: DeadLetterRequest, checkpoints: Checkpoints) -> StoredDeadLetters:
        """Return dead letters of complete folders. Unreadable files are left out and named."""
        if self.format not in READABLE_FILES:
            return Destination.read(self, request, checkpoints)
        found = complete_files(request, storage(self.spark, self.path))
        return read_files(
            request,
            [f"{self.path}/{file}" for file in found],
            spark=self.spark,
            format=self.format,
            options=self._file_options,
            checkpoints=checkpoints,
        )

    @property
    def _file_options(self) -> Mapping[str, str]:
        return {**_JSON_OPTIONS, **self.options} if self.format == "json" else self.options


def _day_folder(dead_letters: DeadLetters) -> str:
    return f"day={dead_letters.day}/{dead_letters.name}"


def all_rejected(rows: DataFrame, problem: Problem) -> list[RejectedDeadLetters]:
    """Return all dead letters as rejected, by task."""
    return [
        RejectedDeadLetters(
            task=row["task"],
            failures=row["count"] * problem.attempts,
            waiting=row["count"],
            problem=problem,
        )
        for row in rows.groupBy("task").count().collect()
    ]
