"""A guarded pipeline beside the same one written plainly: parquet → streaming query → parquet."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from agents import Agent, LogAndContinue
from agents.builder import PipelineBuilder
from examples import flights_data
from examples.flights import MOST_MINUTES_LATE, SCHEMA, plausible

INPUT = "position BIGINT, origin STRING, flight STRING, value STRING"
#: A departure that from_csv cannot read, as flights that never left have it.
DELAY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The same work twice: on a DataFrame, and as steps of a pipeline."""

    plain: Callable[[DataFrame], DataFrame]
    guarded: Callable[[PipelineBuilder], PipelineBuilder]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flights:
    """Flights as parquet files, each of which becomes one micro-batch; dirty ones on request."""

    rows: int
    files: int = 4
    #: Every so many flights one did not depart; 0: all did.
    dirty_every: int = 0
    #: A single flight that did not depart.
    dirty_at: int = -1

    @property
    def dirty(self) -> int:
        """How many did not depart."""
        return sum(self.is_dirty(position) for position in range(self.rows))

    def is_dirty(self, position: int) -> bool:
        """Whether the flight at this position did not depart."""
        every = self.dirty_every and position % self.dirty_every == 0
        return bool(every) or position == self.dirty_at


@dataclass(slots=True, kw_only=True)
class World:
    """Where benchmarks run: a Spark, and a folder with the inputs that were asked for."""

    spark: SparkSession
    folder: Path
    #: Of the ratios' inputs.
    rows: int
    inputs: dict[Flights, Path] = field(default_factory=dict)

    def input(self, flights: Flights) -> Path:
        """Return the folder of these flights, written once."""
        if flights not in self.inputs:
            self.inputs[flights] = _written(self.folder / f"input{len(self.inputs)}", flights)
        return self.inputs[flights]

    def source(self, flights: Flights) -> DataFrame:
        """Return them as a stream, a file for each micro-batch."""
        reader = self.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.input(flights)))

    def seconds(self, run: Callable[[Path, str], None], flights: Flights) -> float:
        """Return how long `run` takes to write all that can be read; it is counted afterwards."""
        output = self.folder / "output"
        shutil.rmtree(output, ignore_errors=True)
        begin = time.perf_counter()
        run(output, str(self.folder / "checkpoint" / str(time.time_ns())))
        seconds = time.perf_counter() - begin
        written = self.spark.read.parquet(str(output / "*")).count()
        if written != flights.rows - flights.dirty:
            raise RuntimeError(f"{written} rows were written, of {flights}")
        return seconds

    def pair(
        self, stage: Stage, flights: Flights, *, atomic: bool, clean: Flights | None = None
    ) -> tuple[float, float]:
        """Return the seconds of a stage written plainly and guarded, in any order.

        What is written plainly gets the flights `clean`, if they are given: it knows no others.
        """
        both = {
            "plain": lambda: self.seconds(self.plainly(stage, clean or flights), clean or flights),
            "guarded": lambda: self.seconds(self.guarded(stage, flights, atomic=atomic), flights),
        }
        found = {name: both[name]() for name in random.sample(sorted(both), 2)}
        return found["plain"], found["guarded"]

    def guarded(
        self,
        stage: Stage,
        flights: Flights,
        *,
        atomic: bool,
        at: Callable[[], None] = lambda: None,
    ) -> Callable[[Path, str], None]:
        """Return a run of a guarded pipeline; `at` is called when a micro-batch is written."""

        def run(output: Path, checkpoint: str) -> None:
            agent = Agent(self.spark, application="benchmarks")
            source = self.source(flights)
            begun = agent.pipeline("departures", source, task="origin", position="position")
            sink = _sink(output, lambda df: df, at)
            with agent:
                stage.guarded(begun).write(sink, atomic=atomic).start(
                    checkpoint, trigger={"availableNow": True}
                )
                agent.await_termination()
            if agent.exception:
                raise agent.exception

        return run

    def plainly(
        self, stage: Stage, flights: Flights, *, at: Callable[[], None] = lambda: None
    ) -> Callable[[Path, str], None]:
        """Return a run of the same without Arrester."""

        def run(output: Path, checkpoint: str) -> None:
            query = (
                self.source(flights)
                .writeStream.foreachBatch(_sink(output, stage.plain, at))
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        return run


def session() -> SparkSession:
    """Return a Spark of two threads that says nothing."""
    spark = (
        SparkSession.builder.appName("benchmarks")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _written(folder: Path, flights: Flights) -> Path:
    folder.mkdir(parents=True)
    clean = cycle([row for row in flights_data.rows() if _is_clean(str(row["value"]))])
    for number in range(flights.files):
        begin = flights.rows * number // flights.files
        end = flights.rows * (number + 1) // flights.files
        some = [
            _dirty(row, position) if flights.is_dirty(position) else row | {"position": position}
            for position, row in zip(range(begin, end), islice(clean, end - begin), strict=True)
        ]
        table = pa.Table.from_pylist(some, schema=flights_data.COLUMNS)
        pq.write_table(table, folder / f"{number:04d}.parquet")
    return folder


def _dirty(row: dict[str, Any], position: int) -> dict[str, Any]:
    fields = str(row["value"]).split(",")
    fields[DELAY] = "NA"
    return row | {"position": position, "value": ",".join(fields)}


def _is_clean(value: str) -> bool:
    fields = value.split(",")
    return "NA" not in fields and int(fields[DELAY]) <= MOST_MINUTES_LATE


def _sink(
    output: Path, stage: Callable[[DataFrame], DataFrame], at: Callable[[], None]
) -> Callable[[DataFrame, int], None]:
    def write(df: DataFrame, number: int) -> None:
        stage(df).write.mode("overwrite").parquet(str(output / f"number={number}"))
        at()

    return write


def _parsed(df: DataFrame) -> DataFrame:
    return df.withColumn("departure", F.from_csv("value", SCHEMA, {"mode": "FAILFAST"}))


def _cast(df: DataFrame) -> DataFrame:
    fields = F.split("value", ",")
    return df.withColumns({"late": fields[DELAY].cast("int"), "flown": fields[15].cast("int")})


def _checked(df: DataFrame) -> DataFrame:
    parsed = _parsed(df)
    return parsed.mapInArrow(_each_row, parsed.schema)


def _each_row(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Call the author's function with each row as a dict, as fast as Arrow lets plain Python."""
    for batch in batches:
        rows: list[dict[str, Any]] = [plausible(row) for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=batch.schema)


def _lateness(df: DataFrame) -> DataFrame:
    return df.mapInArrow(_late, f"{INPUT}, late INT")


def _late(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        late = [int(value.split(",")[DELAY]) for value in batch["value"].to_pylist()]
        yield batch.append_column("late", pa.array(late, pa.int32()))


def _parsing(begun: PipelineBuilder) -> PipelineBuilder:
    expression = F.from_csv("value", SCHEMA)
    return begun.deserialize("departure", expression, on_error=LogAndContinue())


def _casting(begun: PipelineBuilder) -> PipelineBuilder:
    fields = F.split("value", ",")
    late, flown = fields[DELAY].cast("int"), fields[15].cast("int")
    return begun.columns("numbers", late=late, flown=flown, on_error=LogAndContinue())


PARSE = Stage(plain=_parsed, guarded=_parsing)
CASTS = Stage(plain=_cast, guarded=_casting)
PYTHON = Stage(
    plain=_checked,
    guarded=lambda begun: _parsing(begun).process("plausible", plausible),
)
NATIVE_TRANSFORM = Stage(
    plain=_cast,
    guarded=lambda begun: begun.transform("numbers", _cast, on_error=LogAndContinue()),
)
PYTHON_TRANSFORM = Stage(
    plain=_lateness,
    guarded=lambda begun: begun.transform("late", _lateness, on_error=LogAndContinue()),
)
