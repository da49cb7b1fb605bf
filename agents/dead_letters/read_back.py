"""Read dead letters back from where a pipeline has written them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from arrester.agents.journal.storage import Storage
from arrester.agents.spark.frames.column_names import text_literal
from arrester.agents.spark.frames.local_checkpoint import Checkpoints
from arrester.agents.spark.jvm.exceptions.problems import problem_of_job
from arrester.agents.spark.jvm.stores.hadoop_storage import storage
from arrester.domain.errors import ArresterError
from arrester.domain.python_versions import UTC

#: The columns of dead letters that are read back, with their types.
TYPES: Final = {
    "id": T.StringType(),
    "checkpoint": T.StringType(),
    "task": T.StringType(),
    "position": T.LongType(),
    "stage": T.StringType(),
    "row": T.StringType(),
    "at": T.TimestampType(),
}
SCHEMA: Final = T.StructType([T.StructField(name, kind) for name, kind in TYPES.items()])
#: The format of tables that are read back.
DELTA: Final = "delta"
#: The log of a Delta table, which its first write creates.
_DELTA_LOG: Final = "_delta_log"
#: Spark creates this file after all others of a folder.
SUCCESS: Final = "_SUCCESS"
#: Beyond this many unreadable files, the folder or the cluster is the cause.
_UNREADABLE_FILES: Final = 10
_OPTIONS: Final = {
    # Damaged files are named, not ignored.
    **dict.fromkeys(("ignoreCorruptFiles", "ignoreMissingFiles"), "false"),
    "mode": "FAILFAST",
}


class DeadLettersUnreadable(ArresterError):
    """The dead letters cannot be read back. The message names the place and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRequest:
    """The dead letters to read back: of one checkpoint, decided between two times."""

    checkpoint: str
    ids: Sequence[str]
    since: datetime
    until: datetime

    @property
    def days(self) -> Iterator[date]:
        """The days whose folders may have them: one more at both sides.

        A folder has the day of its entry, and an operator's skip has its own time.
        """
        first, last = (
            each.astimezone(UTC).date() + timedelta(days=days)
            for each, days in ((self.since, -1), (self.until, 1))
        )
        return (first + timedelta(days=number) for number in range((last - first).days + 1))

    def of(self, frame: DataFrame) -> DataFrame:
        """Return those rows of a frame of dead letters, with the columns that are read back."""
        # As SQL: a Column of each literal would take a JVM call.
        literals = ", ".join(map(text_literal, self.ids)) or "NULL"
        return frame.where(f"id IN ({literals})").select(*TYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableFile:
    """A file of dead letters, or a message of a topic, that cannot be read, and why."""

    file: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeadLetters:
    """The dead letters that were found, evaluated, with the columns of `TYPES`.

    An id is missing if its dead letter is not there any more, or is in an unreadable file. A
    destination that stores at least once may have a dead letter several times.
    """

    rows: DataFrame
    unreadable: tuple[UnreadableFile, ...] = ()


def read_files(
    request: DeadLetterRequest,
    files: Sequence[str],
    *,
    spark: SparkSession,
    format: str,
    options: Mapping[str, str],
    checkpoints: Checkpoints,
) -> StoredDeadLetters:
    """Return the requested dead letters in some files. Unreadable files are left out and named.

    Raises DeadLettersUnreadable if many files are unreadable.
    """

    def frame_of(chosen: Sequence[str]) -> DataFrame:
        reader = spark.read.format(format).options(**{**options, **_OPTIONS}).schema(SCHEMA)
        return request.of(reader.load(list(chosen)))

    unreadable: list[UnreadableFile] = []
    frames = list(_readable(files, frame_of, spark, checkpoints, unreadable))
    rows = spark.createDataFrame([], SCHEMA)
    for frame in frames:
        rows = rows.unionByName(frame)
    return StoredDeadLetters(rows=rows, unreadable=tuple(unreadable))


def _readable(
    files: Sequence[str],
    frame_of: Callable[[Sequence[str]], DataFrame],
    spark: SparkSession,
    checkpoints: Checkpoints,
    unreadable: list[UnreadableFile],
) -> Iterator[DataFrame]:
    """Yield evaluated frames of all readable files: of all, or of halves after a failure."""
    if not files:
        return
    try:
        yield checkpoints.add(frame_of(files))
        return
    except Exception as exc:  # each format has its own exceptions
        failed = exc
    if len(files) == 1:
        text = _problem(spark, failed)
        unreadable.append(UnreadableFile(file=files[0], problem=text))
        if len(unreadable) > _UNREADABLE_FILES:
            raise DeadLettersUnreadable(
                f"more than {_UNREADABLE_FILES} files of dead letters cannot be read, such as "
                f"{files[0]}: {text}"
            ) from failed
        return
    middle = len(files) // 2
    for half in (files[:middle], files[middle:]):
        yield from _readable(half, frame_of, spark, checkpoints, unreadable)


def _problem(spark: SparkSession, exc: Exception) -> str:
    problem = problem_of_job(spark, exc)
    return f"{problem.exception_class}: {problem.message}".partition("\n")[0]


def complete_files(request: DeadLetterRequest, files: Storage) -> Iterator[str]:
    """Yield the files, as paths below the root, of complete folders that may have the requested."""
    for day in request.days:
        folder = f"day={day.isoformat()}"
        for entry in files.names(folder):
            if entry.startswith(f"{request.checkpoint}-"):
                names = files.names(f"{folder}/{entry}")
                if SUCCESS in names:
                    parts = (name for name in names if name.startswith("part-"))
                    yield from (f"{folder}/{entry}/{name}" for name in parts)


def read_delta(
    request: DeadLetterRequest,
    path: str,
    *,
    spark: SparkSession,
    options: Mapping[str, str],
    checkpoints: Checkpoints,
) -> StoredDeadLetters:
    """Return the requested dead letters in a Delta table; none if nothing was written yet.

    Raises DeadLettersUnreadable.
    """
    if not storage(spark, path).exists(_DELTA_LOG):
        return StoredDeadLetters(rows=spark.createDataFrame([], SCHEMA))
    days = ", ".join(f"DATE'{day.isoformat()}'" for day in request.days)
    try:
        table = spark.read.format(DELTA).options(**options).load(path)
        return StoredDeadLetters(rows=checkpoints.add(request.of(table.where(f"day IN ({days})"))))
    except Exception as exc:  # of Delta, and of the files of its table
        raise DeadLettersUnreadable(
            f"errors.dlq.path={path!r}: the table cannot be read: {_problem(spark, exc)}"
        ) from exc
