"""A Spark driver whose cancelled flights are dead letters: in files, or in a topic of Kafka.

The records at the positions of STOPS stop their tasks, which are those of the expression TASK.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester import Agent, LogAndContinue, LogAndPause

APPLICATION, PIPELINE = "flights", "departures"
SCHEMA = "position BIGINT, origin STRING, flight STRING, dep_time STRING"
Step = Callable[[dict[str, Any]], dict[str, Any]]


def departed(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the minute of the day of the departure; raise ValueError for `NA`."""
    hours, minutes = divmod(int(row["dep_time"]), 100)
    return {**row, "minute": hours * 60 + minutes}


def checked(stops: Sequence[int]) -> Step:
    """Return a step that raises ValueError for the records at some positions."""

    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["position"] in stops:
            raise ValueError("stops its task")
        return row

    return check


def main(folder: Path, errors: dict[str, Any], jars: str) -> None:
    """Run the pipeline over `folder`/input until it is killed or requested to stop."""
    builder = (
        SparkSession.builder.appName(APPLICATION)
        .master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.daemon.module", "tests.spark.daemon")
    )
    spark = (builder.config("spark.jars", jars) if jars else builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    source = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "input"))
    )
    task = F.expr(os.environ.get("TASK", "origin"))
    stops = json.loads(os.environ.get("STOPS", "[]"))
    agent = Agent(spark, application=APPLICATION, errors=errors)
    departures = (
        agent.pipeline(PIPELINE, source, task=task, position="position", key="flight")
        .process(
            "departed",
            departed,
            schema=f"{SCHEMA}, minute INT",
            on_error=LogAndContinue(),
        )
        .process("checked", checked(stops), schema=f"{SCHEMA}, minute INT", on_error=LogAndPause())
        .write(sink(folder))
    )
    with agent:
        departures.start(checkpoint=str(folder / "checkpoint"))
        agent.await_termination()


def sink(folder: Path) -> Any:
    """Return a sink that is idempotent by number."""

    def write(df: DataFrame, number: int) -> None:
        df.write.mode("overwrite").parquet(str(folder / "sink" / f"number={number:09d}"))

    return write


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(os.environ["ERRORS"]), os.environ.get("JARS", ""))
