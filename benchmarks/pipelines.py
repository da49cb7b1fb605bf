"""A guarded pipeline and the same one in plain PySpark: parquet → streaming query → parquet."""

from __future__ import annotations

import logging
import os
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import cycle, islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType

from arrester import Agent, LogAndContinue
from arrester.agents.definition.builder import PipelineBuilder
from arrester.agents.definition.stores.files import Files, StagedFiles
from arrester.examples import flights_data
from arrester.examples.flights import MAXIMUM_DELAY_MINUTES, SCHEMA, plausible
from benchmarks.lateness import DELAY, row_with_lateness, with_lateness

#: The column of the distance in the value.
FLOWN = 15
INPUT = "position BIGINT, origin STRING, flight STRING, value STRING"
#: Run to the end, with an output folder, a checkpoint, and a function to call after each sink call.
Run = Callable[[Path, str, Callable[[], None]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The same work twice: on a DataFrame, and as steps of a pipeline."""

    plain: Callable[[DataFrame], DataFrame]
    guarded: Callable[[PipelineBuilder], PipelineBuilder]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flights:
    """Flights as parquet files, each of which becomes one micro-batch.

    A small, clean file comes first, for the work that a run does only once.
    """

    rows: int
    files: int = 4
    #: Every n-th flight did not depart; 0: all did.
    dirty_every: int = 0
    #: A single flight that did not depart.
    dirty_at: int = -1
    #: The first flights, which did not depart.
    dirty_first: int = 0
    #: Of the first, clean file.
    first_rows: int = 1_000

    @property
    def dirty(self) -> int:
        """The number of flights that did not depart."""
        return sum(self.is_dirty(position) for position in range(self.rows))

    def is_dirty(self, position: int) -> bool:
        """Whether the flight at this position did not depart."""
        if position < 0:
            return False
        every = self.dirty_every and position % self.dirty_every == 0
        return bool(every) or position == self.dirty_at or position < self.dirty_first

    @property
    def name(self) -> str:
        """The name of their folder."""
        dirty = f"{self.dirty_every}-{self.dirty_at}-{self.dirty_first}"
        return f"input-{self.rows}-{self.files}-{dirty}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """The time of a run."""

    #: Seconds from its start to its end.
    total: float
    #: Medians of its micro-batches after the first: seconds, and CPU seconds of all processes,
    #: between the ends of two calls of the sink.
    batch: float
    cpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same flights, plain and guarded."""

    plain: Took
    guarded: Took


@dataclass(slots=True, kw_only=True)
class World:
    """A Spark session, and a folder with the inputs."""

    spark: SparkSession
    folder: Path
    #: Rows of the inputs.
    rows: int

    def input(self, flights: Flights) -> Path:
        """Return the folder of these flights, written once."""
        folder = self.folder / flights.name
        if not folder.exists():
            _write(flights, folder)
        return folder

    def source(self, flights: Flights) -> DataFrame:
        """Return them as a stream, one file per micro-batch."""
        reader = self.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.input(flights)))

    def took(self, run: Run, flights: Flights) -> Took:
        """Return the time of `run`; raise RuntimeError unless all valid rows were written."""
        output = self.folder / "output"
        shutil.rmtree(output, ignore_errors=True)
        ends: list[tuple[float, float]] = []
        begin = time.perf_counter()
        run(
            output,
            str(self.folder / "checkpoint" / str(time.time_ns())),
            lambda: ends.append((time.perf_counter(), cpu_seconds())),
        )
        total = time.perf_counter() - begin
        written = self.spark.read.parquet(str(output / "*")).count()
        if written != flights.first_rows + flights.rows - flights.dirty:
            raise RuntimeError(f"{written} rows were written, of {flights}")
        gaps = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(ends)]
        return Took(
            total=total,
            batch=median(seconds for seconds, _ in gaps),
            cpu=median(cpu for _, cpu in gaps),
        )

    def pair(
        self,
        stage: Stage,
        flights: Flights,
        *,
        atomic: bool,
        files: bool = False,
        clean: Flights | None = None,
        errors: Mapping[str, object] | None = None,
    ) -> Pair:
        """Return the times of a stage, plain and guarded, in random order.

        The plain run gets the flights `clean`, if given: it cannot skip records.
        """
        both = {
            "plain": lambda: self.took(self.plainly(stage, clean or flights), clean or flights),
            "guarded": lambda: self.took(
                self.guarded(stage, flights, atomic=atomic, files=files, errors=errors), flights
            ),
        }
        return Pair(**{name: both[name]() for name in random.sample(sorted(both), 2)})

    def guarded(
        self,
        stage: Stage,
        flights: Flights,
        *,
        atomic: bool,
        files: bool = False,
        errors: Mapping[str, object] | None = None,
    ) -> Run:
        """Return a run of a guarded pipeline; `files`: by `.write_files`."""

        def run(output: Path, checkpoint: str, at: Callable[[], None]) -> None:
            agent = Agent(self.spark, application="benchmarks", errors=errors)
            source = self.source(flights)
            builder = agent.pipeline("departures", source, task="origin", position="position")
            guarded = stage.guarded(builder)
            with agent, called_after_writes(at) if files else nullcontext():
                if files:
                    pipeline = guarded.write_files(output, number_column="number")
                else:
                    pipeline = guarded.write(file_sink(output, at=at), atomic=atomic)
                pipeline.start(checkpoint, trigger={"availableNow": True})
                agent.await_termination()

        return run

    def plainly(self, stage: Stage, flights: Flights) -> Run:
        """Return a run of the same without Arrester."""

        def run(output: Path, checkpoint: str, at: Callable[[], None]) -> None:
            query = (
                self.source(flights)
                .writeStream.foreachBatch(file_sink(output, stage.plain, at=at))
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        return run


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its process_ids: Spark's JVM and its workers."""
    above: dict[int, int] = {}
    used: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                text = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                above[int(name)] = int(text[1])
                used[int(name)] = sum(map(int, text[11:15]))
    process_ids: set[int] = set()
    found = {os.getpid()}
    while found:
        process_ids |= found
        found = {pid for pid, parent in above.items() if parent in process_ids} - process_ids
    return sum(used[pid] for pid in process_ids) / os.sysconf("SC_CLK_TCK")


#: A driver that is its own executor, and one with an executor in another process.
LOCAL, CLUSTER = "local[2]", "local-cluster[1,2,2048]"


def session(
    master: str = LOCAL, *, jars: str = "", settings: Mapping[str, Any] | None = None
) -> SparkSession:
    """Return a Spark session of two threads without log output; `jars` as in `spark.jars`."""
    spark = (
        SparkSession.builder.appName("benchmarks")
        .master(master)
        .config("spark.executor.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.jars", jars)
        .config("spark.sql.ansi.enabled", "true")  # as in Spark 4; 3.5 needs a value
        .config(map=dict(settings or {}))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    with suppress(ImportError):  # before 4.0, there is no such logger
        from pyspark.logger import PySparkLogger

        # Spark logs each exception that it raises in Python there, too.
        PySparkLogger.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    return spark


def _write(flights: Flights, folder: Path) -> None:
    folder.mkdir(parents=True)
    clean = cycle([row for row in flights_data.rows() if _is_clean(str(row["value"]))])
    numbers = [0, *range(1, flights.files + 1)]
    ends = [0, *(flights.rows * number // flights.files for number in numbers[1:])]
    for number in numbers:
        begin, end = (ends[number - 1], ends[number]) if number else (-flights.first_rows, 0)
        some = [
            _dirty(row, position) if flights.is_dirty(position) else row | {"position": position}
            for position, row in zip(range(begin, end), islice(clean, end - begin), strict=True)
        ]
        path = folder / f"{number:04d}.parquet"
        pq.write_table(pa.Table.from_pylist(some, schema=flights_data.COLUMNS), path)
        # The source orders files by the time of modification.
        os.utime(path, (time.time(), time.time() - 1_000 + number))


def _dirty(row: dict[str, Any], position: int) -> dict[str, Any]:
    fields = str(row["value"]).split(",")
    fields[DELAY] = "NA"
    return row | {"position": position, "value": ",".join(fields)}


def _is_clean(value: str) -> bool:
    fields = value.split(",")
    return "NA" not in fields and int(fields[DELAY]) <= MAXIMUM_DELAY_MINUTES


def file_sink(
    output: Path,
    stage: Callable[[DataFrame], DataFrame] = lambda df: df,
    *,
    at: Callable[[], None] = lambda: None,
) -> Callable[[DataFrame, int], None]:
    """Return a sink that writes a folder for each number, and then calls `at`."""

    def write(df: DataFrame, number: int) -> None:
        stage(df).write.mode("overwrite").parquet(str(output / f"number={number}"))
        at()

    return write


@contextmanager
def called_after_writes(at: Callable[[], None]) -> Iterator[None]:
    """Call `at` whenever `.write_files` has made a micro-batch visible."""
    with ExitStack() as patches:
        for owner, name in ((Files, "__call__"), (StagedFiles, "publish")):
            method = getattr(owner, name)

            def write(*arguments: Any, method: Callable[..., None] = method) -> None:
                method(*arguments)
                at()

            patches.enter_context(patch.object(owner, name, write))
        yield


def _parsed(df: DataFrame) -> DataFrame:
    return df.withColumn("departure", F.from_csv("value", SCHEMA, {"mode": "FAILFAST"}))


def _json() -> Column:
    """Return the columns of a flight as a JSON text, parsed."""
    text = F.to_json(F.struct(*(column.split()[0] for column in INPUT.split(", "))))
    return F.from_json(text, INPUT, {"mode": "FAILFAST"})


def _parsed_json(df: DataFrame) -> DataFrame:
    return df.withColumn("departure", _json())


def _cast(df: DataFrame) -> DataFrame:
    fields = F.split("value", ",")
    return df.withColumns({"late": fields[DELAY].cast("int"), "flown": fields[FLOWN].cast("int")})


def _checked(df: DataFrame) -> DataFrame:
    parsed = _parsed(df)
    return parsed.mapInArrow(_each_row, parsed.schema)


def _each_row(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Call the author's function with each row as a dict."""
    for batch in batches:
        rows: list[dict[str, Any]] = [plausible(row) for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=batch.schema)


_LATENESS = f"{INPUT}, late INT"


def _lateness(df: DataFrame) -> DataFrame:
    return df.mapInArrow(with_lateness, _LATENESS)


def _lateness_of_each_row(df: DataFrame) -> DataFrame:
    late = StructField("late", IntegerType())
    types = to_arrow_schema(StructType([*df.schema, late]))

    def each_row(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [row_with_lateness(row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=types)

    return df.mapInArrow(each_row, _LATENESS)


def _parsing(builder: PipelineBuilder) -> PipelineBuilder:
    expression = F.from_csv("value", SCHEMA)
    return builder.deserialize("departure", expression, on_error=LogAndContinue())


def _casting(builder: PipelineBuilder) -> PipelineBuilder:
    fields = F.split("value", ",")
    late, flown = fields[DELAY].cast("int"), fields[FLOWN].cast("int")
    return builder.columns("numbers", late=late, flown=flown, on_error=LogAndContinue())


PARSE = Stage(plain=_parsed, guarded=_parsing)
CASTS = Stage(plain=_cast, guarded=_casting)
STRICT_JSON = Stage(
    plain=_parsed_json,
    guarded=lambda builder: builder.deserialize("departure", _json(), strict=True),
)
PYTHON = Stage(
    plain=_checked,
    guarded=lambda builder: _parsing(builder).process("plausible", plausible),
)
PYTHON_ONLY = Stage(
    plain=_lateness_of_each_row,
    guarded=lambda builder: builder.process(
        "late", row_with_lateness, schema=_LATENESS, on_error=LogAndContinue()
    ),
)
NATIVE_TRANSFORM = Stage(
    plain=_cast,
    guarded=lambda builder: builder.transform("numbers", _cast, on_error=LogAndContinue()),
)
PYTHON_TRANSFORM = Stage(
    plain=_lateness,
    guarded=lambda builder: builder.transform("late", _lateness, on_error=LogAndContinue()),
)
