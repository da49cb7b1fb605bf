"""The work of an agent written by hand: skip invalid records, and write them as dead letters."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.examples.flights import SCHEMA
from benchmarks.lateness import DELAY
from benchmarks.pipelines import FLOWN, PARSE, Flights, Pair, Run, World, file_sink

#: The name of a column that is true for an invalid record.
_INVALID = "invalid"
_TEXT = "unparsed"


def parsed(df: DataFrame) -> DataFrame:
    """Parse the value, and mark invalid records."""
    options = {"columnNameOfCorruptRecord": _TEXT}
    departure = F.from_csv("value", f"{SCHEMA}, {_TEXT} STRING", options)
    whole = df.withColumn("departure", departure)
    whole = whole.withColumn(_INVALID, F.col(f"departure.{_TEXT}").isNotNull())
    return whole.withColumn("departure", F.col("departure").dropFields(_TEXT))


def cast(df: DataFrame) -> DataFrame:
    """Cast two fields of the value, and mark invalid records."""
    numbers = df.withColumns({"late": _number(DELAY), "flown": _number(FLOWN)})
    return numbers.withColumn(_INVALID, F.col("late").isNull() | F.col("flown").isNull())


def _number(field: int) -> Column:
    return F.expr(f"try_cast(split(value, ',')[{field}] AS INT)")


def batch_function(
    stage: Callable[[DataFrame], DataFrame],
    write: Callable[[DataFrame, int], None],
    dead_letters: Path,
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that evaluates each record once."""

    def write_batch(df: DataFrame, number: int) -> None:
        records = stage(df).persist()
        try:
            invalid = records.where(_INVALID).select(df.columns)
            folder = str(dead_letters / f"number={number}")
            invalid.write.mode("overwrite").parquet(folder)
            write(records.where(f"NOT {_INVALID}").drop(_INVALID), number)
        finally:
            records.unpersist()

    return write_batch


def pair(world: World, flights: Flights) -> Pair:
    """Return the times of a parse into files, by hand and guarded, in random order."""
    errors = dead_letters_in(world.folder / "dead-letters")
    guarded = world.guarded(PARSE, flights, atomic=True, files=True, errors=errors)
    both = {"plain": _into_files(world, flights), "guarded": guarded}
    names = random.sample(sorted(both), 2)
    return Pair(**{name: world.took(both[name], flights) for name in names})


def dead_letters_in(folder: Path) -> Mapping[str, object]:
    """Return the settings of an agent that writes dead letters into a folder."""
    return {"errors.dlq.enable": True, "errors.dlq.path": str(folder)}


def _into_files(world: World, flights: Flights) -> Run:
    def run(output: Path, checkpoint: str, at: Callable[[], None]) -> None:
        write_batch = batch_function(parsed, file_sink(output, at=at), Path(f"{checkpoint}-dead"))
        query = world.source(flights).writeStream.foreachBatch(write_batch)
        query = query.option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()

    return run
