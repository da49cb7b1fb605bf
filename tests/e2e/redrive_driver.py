"""A Spark driver whose cancelled flights are dead letters: in files, or in a topic of Kafka."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from arrester import Agent, LogAndContinue

APPLICATION, PIPELINE = "flights", "departures"


def departed(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the minute of the day of the departure; raise ValueError for `NA`."""
    hours, minutes = divmod(int(row["dep_time"]), 100)
    return {**row, "minute": hours * 60 + minutes}


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
        spark.readStream.schema("position BIGINT, origin STRING, flight STRING, dep_time STRING")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "input"))
    )
    agent = Agent(spark, application=APPLICATION, errors=errors)
    departures = (
        agent.pipeline(PIPELINE, source, task="origin", position="position", key="flight")
        .process(
            "departed",
            departed,
            schema="position BIGINT, origin STRING, flight STRING, dep_time STRING, minute INT",
            on_error=LogAndContinue(),
        )
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
