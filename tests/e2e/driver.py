"""A real Spark driver for the loop's tests: the first flights of the year, guarded.

Files in its folder steer it: `repaired` makes the check believe late departures, `crash` makes the
process kill itself once, right after the sink has written a micro-batch in which the sink's number
is at least the number in the file.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester import Agent, LogAndContinue, LogAndPause
from arrester.examples import flights
from arrester.examples.flights import SCHEMA, ImplausibleDelay, plausible

APPLICATION = "flights"
PIPELINE = "departures"


def main(folder: Path) -> None:
    """Run the pipeline over `folder`/input until it is requested to stop."""
    master = os.environ.get("SPARK_MASTER")
    spark = (
        SparkSession.builder.appName(APPLICATION)
        .master(master or "local[2]")
        # The executors of a cluster have nothing of ours.
        .config("spark.python.daemon.module", "pyspark.daemon" if master else "tests.spark.daemon")
        .config("spark.driver.host", os.environ.get("SPARK_DRIVER_HOST", "127.0.0.1"))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    cloudpickle.register_pickle_by_value(flights)  # type: ignore[no-untyped-call]
    source = (
        spark.readStream.schema("position BIGINT, origin STRING, flight STRING, value STRING")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "input"))
    )
    errors = {"errors.dlq.enable": True, "errors.dlq.path": str(folder / "dead-letters")}
    agent = Agent(spark, application=APPLICATION, errors=errors)
    departures = (
        agent.pipeline(PIPELINE, source, task="origin", position="position", key="flight")
        .deserialize("departure", F.from_csv("value", SCHEMA), on_error=LogAndContinue())
        .process("plausible", checker(folder / "repaired"), on_error=LogAndPause())
        .write(sink(folder))
    )
    with agent:
        departures.start(checkpoint=str(folder / "checkpoint"))
        agent.await_termination()


def checker(repaired: Path) -> Any:
    """Return the demo's check, until its cause is repaired."""

    def check(row: dict[str, Any]) -> dict[str, Any]:
        try:
            return plausible(row)
        except ImplausibleDelay:
            if repaired.exists():
                return row
            raise

    return check


def sink(folder: Path) -> Any:
    """Return a sink that is idempotent by number, and may crash the process behind its write."""

    def write(df: DataFrame, number: int) -> None:
        df.write.mode("overwrite").parquet(str(folder / "sink" / f"number={number:09d}"))
        crash = folder / "crash"
        if crash.exists() and number >= int(crash.read_text()):
            crash.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    return write


if __name__ == "__main__":
    main(Path(sys.argv[1]))
