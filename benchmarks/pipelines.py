"""A guarded pipeline beside the same one written plainly: parquet → streaming query → parquet."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from agents import Agent
from examples import flights_data
from examples.flights import MOST_MINUTES_LATE, SCHEMA, plausible

FILES = 4
INPUT = "position BIGINT, origin STRING, flight STRING, value STRING"
PLAIN_NATIVE, GUARDED_NATIVE = "native parse, plain", "native parse, guarded"
PLAIN_PYTHON, GUARDED_PYTHON = "Python step, plain", "Python step, guarded"
Measurement = Callable[[], float]


def measurements(spark: SparkSession, folder: Path, *, rows: int) -> dict[str, Measurement]:
    """Return what there is to measure, by name: each gives rows per second."""
    source = _input(folder / "input", rows)

    def measured(run: Callable[[SparkSession, Path, Path], None]) -> float:
        output = folder / "output"
        shutil.rmtree(output, ignore_errors=True)
        begin = time.perf_counter()
        run(spark, source, output)
        seconds = time.perf_counter() - begin
        written = spark.read.parquet(str(output / "*")).count()
        if written != rows:
            raise RuntimeError(f"{written} rows were written, {rows} were to be")
        return rows / seconds

    runs = {
        PLAIN_NATIVE: partial(_plain, _parsed),
        GUARDED_NATIVE: partial(_guarded, False),
        PLAIN_PYTHON: partial(_plain, _checked),
        GUARDED_PYTHON: partial(_guarded, True),
    }
    return {name: partial(measured, run) for name, run in runs.items()}


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


def _input(folder: Path, rows: int) -> Path:
    """Write `rows` clean flights as parquet files, each of which becomes one micro-batch."""
    folder.mkdir()
    clean = cycle([row for row in flights_data.rows() if _is_clean(str(row["value"]))])
    for number in range(FILES):
        begin, end = rows * number // FILES, rows * (number + 1) // FILES
        some = [
            row | {"position": position}
            for position, row in zip(range(begin, end), islice(clean, end - begin), strict=True)
        ]
        table = pa.Table.from_pylist(some, schema=flights_data.COLUMNS)
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


def _is_clean(value: str) -> bool:
    fields = value.split(",")
    return "NA" not in fields and int(fields[5]) <= MOST_MINUTES_LATE


def _source(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def _sink(output: Path, df: DataFrame, number: int) -> None:
    df.write.mode("overwrite").parquet(str(output / f"number={number}"))


def _guarded(python: bool, spark: SparkSession, source: Path, output: Path) -> None:
    agent = Agent(spark, application="benchmarks")
    pipeline = agent.pipeline(
        "departures", _source(spark, source), task="origin", position="position", key="flight"
    ).deserialize("departure", F.from_csv("value", SCHEMA))
    if python:
        pipeline = pipeline.process("plausible", plausible)
    with agent:
        pipeline.write(partial(_sink, output)).start(
            str(output.with_name("checkpoint") / str(time.time_ns())),
            trigger={"availableNow": True},
        )
        agent.await_termination()
    if agent.exception:
        raise agent.exception


def _plain(
    stage: Callable[[DataFrame], DataFrame], spark: SparkSession, source: Path, output: Path
) -> None:
    def write(df: DataFrame, number: int) -> None:
        _sink(output, stage(df), number)

    checkpoint = output.with_name("checkpoint") / str(time.time_ns())
    query = (
        _source(spark, source)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _parsed(df: DataFrame) -> DataFrame:
    return df.withColumn("departure", F.from_csv("value", SCHEMA, {"mode": "FAILFAST"}))


def _checked(df: DataFrame) -> DataFrame:
    parsed = _parsed(df)
    return parsed.mapInArrow(_each_row, parsed.schema)


def _each_row(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Call the author's function with each row as a dict, as fast as Arrow lets plain Python."""
    for batch in batches:
        rows: list[dict[str, Any]] = [plausible(row) for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=batch.schema)
