"""The demo: a guarded pipeline over a year of real flights, with one task per airport.

Departures with the delay `NA` fail to parse. They are skipped and written as dead letters. A delay
of more than 15 hours is implausible: its airport is PAUSED until an operator resumes it.

    python -m arrester.examples.flights [--folder .arrester/flights] [--rows-per-second 500]
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester import Agent, LogAndContinue, LogAndPause
from arrester.examples import flights_data

SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, "
    "arr_time STRING, sched_arr_time INT, arr_delay STRING, carrier STRING, flight INT, "
    "tailnum STRING, origin STRING, dest STRING, air_time STRING, distance INT, hour INT, "
    "minute INT, time_hour TIMESTAMP"
)
MAXIMUM_DELAY_MINUTES = 15 * 60
EVERY_SECOND = {"processingTime": "1 second"}


class ImplausibleDelay(Exception):
    """The delay of a departure is too long to be accepted without a check."""


def plausible(row: dict[str, Any]) -> dict[str, Any]:
    """Return the flight unchanged; raise ImplausibleDelay if it left more than 15 hours late."""
    late = row["departure"]["dep_delay"]
    if late > MAXIMUM_DELAY_MINUTES:
        raise ImplausibleDelay(f"left {late} minutes late, more than {MAXIMUM_DELAY_MINUTES}")
    return row


def main() -> int:
    """Run until a command stops the pipeline; return 0, or raise the exception that ended it."""
    options = _options()
    folder: Path = options.folder.resolve()
    files = flights_data.prepare(folder / "input", rows_per_file=options.rows_per_second)
    spark = (
        SparkSession.builder.appName("flights")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.ansi.enabled", "true")  # as in Spark 4; 3.5 needs a value
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    source = (
        spark.readStream.schema("position BIGINT, origin STRING, flight STRING, value STRING")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(files))
    )
    agent = Agent(
        spark,
        application="flights",
        errors={
            "errors.log.enable": True,
            "errors.dlq.enable": True,
            "errors.dlq.format": "parquet",
            "errors.dlq.path": str(folder / "dead-letters"),
        },
    )
    departures = (
        agent.pipeline("departures", source, task="origin", position="position", key="flight")
        .deserialize("departure", F.from_csv("value", SCHEMA), on_error=LogAndContinue())
        .process("plausible", plausible, on_error=LogAndPause())
        .write(lambda df, number: _write(df, folder / "departures" / f"batch={number:09d}"))
    )
    with agent:
        departures.start(checkpoint=str(folder / "checkpoint"), trigger=EVERY_SECOND)
        agent.await_termination()
    return 0


def _write(df: DataFrame, path: Path) -> None:
    """Write one micro-batch to the folder of its number, so that a repetition replaces it."""
    df.write.mode("overwrite").parquet(str(path))


def _options() -> argparse.Namespace:
    home = Path(os.environ.get("ARRESTER_HOME", ".arrester"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=home / "flights")
    parser.add_argument("--rows-per-second", type=int, default=500)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
