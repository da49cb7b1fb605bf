"""The demo: two guarded pipelines over real flights, which come again and again.

`departures` has a task per airport. Departures with the delay `NA` fail to parse: they are skipped
and written as dead letters. A delay of more than 15 hours is implausible: its airport is PAUSED
until an operator resumes it. After five minutes the script itself skips the record, so that a demo
without an operator holds no more than that. `arrivals` reads the same flights into a sink that is
slow now and then, so that the pipeline is late.

    python -m arrester.examples.flights [--folder .arrester/flights] [--rows-per-second 100]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
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
EVERY_TWO_SECONDS = {"processingTime": "2 seconds"}
#: How long an airport waits for an operator.
PATIENCE = timedelta(minutes=5)
#: The newest micro-batches whose rows the sinks keep.
KEPT = 100
#: In each of so many micro-batches, the sink of `arrivals` waits so long.
LATE_EACH, LATE_SECONDS = 300, 200


class ImplausibleDelay(Exception):
    """The delay of a departure is too long to be accepted without a check."""


def plausible(row: dict[str, Any]) -> dict[str, Any]:
    """Return the flight unchanged; raise ImplausibleDelay if it left more than 15 hours late."""
    late = row["departure"]["dep_delay"]
    if late > MAXIMUM_DELAY_MINUTES:
        raise ImplausibleDelay(f"left {late} minutes late, more than {MAXIMUM_DELAY_MINUTES}")
    return row


def main() -> int:
    """Run until a command stops the pipelines; return 0, or raise the exception that ended one."""
    options = _options()
    folder: Path = options.folder.resolve()
    spark = (
        SparkSession.builder.appName("flights")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.ansi.enabled", "true")  # as in Spark 4; 3.5 needs a value
        # Spark writes a list of all files that it ever read, at each of so many micro-batches.
        .config("spark.sql.streaming.fileSource.log.compactInterval", "200")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    agent = Agent(
        spark,
        application="flights",
        version="1.0",
        errors={
            "errors.dlq.enable": True,
            "errors.dlq.format": "parquet",
            "errors.dlq.path": str(folder / "dead-letters"),
        },
    )
    feed = flights_data.Feed(folder / "feed", rows_per_second=options.rows_per_second)
    source = (
        spark.readStream.schema("position BIGINT, origin STRING, flight STRING, value STRING")
        .option("maxFilesPerTrigger", 10)
        .parquet(str(feed.folder))
    )
    with agent, feed:
        start_departures(agent, source, folder)
        start_arrivals(agent, source, folder)
        Thread(target=_skip_forgotten, args=(agent,), daemon=True).start()
        agent.await_termination()
    return 0


def start_departures(agent: Agent, source: DataFrame, folder: Path) -> None:
    """Start the pipeline of departures, with a task per airport."""
    departures = (
        agent.pipeline("departures", source, task="origin", position="position", key="flight")
        .deserialize("departure", F.from_csv("value", SCHEMA), on_error=LogAndContinue())
        .process("plausible", plausible, on_error=LogAndPause())
        .write(lambda df, number: _write(df, folder / "departures", number))
    )
    checkpoint = folder / "checkpoints" / "departures"
    departures.start(checkpoint=str(checkpoint), trigger=EVERY_TWO_SECONDS)


def start_arrivals(agent: Agent, source: DataFrame, folder: Path) -> None:
    """Start the pipeline of arrivals, whose sink is slow now and then."""

    def write(df: DataFrame, number: int) -> None:
        _write(df, folder / "arrivals", number)
        if number % LATE_EACH == LATE_EACH // 2:
            time.sleep(LATE_SECONDS)

    arrivals = (
        agent.pipeline("arrivals", source, task="origin", position="position", key="flight")
        .deserialize("arrival", F.from_csv("value", SCHEMA), on_error=LogAndContinue())
        .write(write)
    )
    checkpoint = folder / "checkpoints" / "arrivals"
    arrivals.start(checkpoint=str(checkpoint), trigger=EVERY_TWO_SECONDS)


def _write(df: DataFrame, folder: Path, number: int) -> None:
    """Write one micro-batch to the folder of its number, so that a repetition replaces it."""
    df.write.mode("overwrite").parquet(str(folder / f"batch={number:09d}"))
    shutil.rmtree(folder / f"batch={number - KEPT:09d}", ignore_errors=True)


def _skip_forgotten(agent: Agent) -> None:
    """Skip the records at which airports have been PAUSED for long, until the agent ends."""
    while agent.is_running:
        time.sleep(10)
        for task in agent.paused_tasks():
            is_by_hand = task.failure is None
            if not is_by_hand and task.since and datetime.now(UTC) - task.since > PATIENCE:
                agent.skip(task, reason="no operator came within five minutes", actor="the demo")


def _options() -> argparse.Namespace:
    home = Path(os.environ.get("ARRESTER_HOME", ".arrester"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=home / "flights")
    parser.add_argument("--rows-per-second", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
