"""A driver over the files that the chaos adds: `python -m tests.chaos.driver FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester import Agent, LogAndContinue, LogAndPause
from tests.chaos.records import APPLICATION, BAD, PIPELINE, SCHEMA, STOP


def main(folder: Path) -> None:
    """Run the pipeline until an operator shuts it down."""
    # The JVM and its Python workers keep the right clock: a JVM hangs under libfaketime.
    os.environ.pop("LD_PRELOAD", None)
    spark = (
        SparkSession.builder.master("local[2, 4]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2)
    source = reader.json(str(folder / "in"))
    repaired = str(folder / "repaired")

    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == STOP and not os.path.exists(repaired):
            raise ValueError("the cause is not repaired yet")
        return row

    errors = {"errors.dlq.enable": True, "errors.dlq.path": str(folder / "dead-letters")}
    agent = Agent(spark, application=APPLICATION, errors=errors)
    valid = F.when(F.col("value") == BAD, F.raise_error(F.lit("a bad value")))
    pipeline = (
        agent.pipeline(PIPELINE, source, task="task", position="position")
        .deserialize("checked", valid.otherwise(F.col("value")), on_error=LogAndContinue())
        .process("check", check, on_error=LogAndPause())
        .write_files(str(folder / "sink"), number_column="number")
    )
    with agent:
        pipeline.start(str(folder / "checkpoint"))
        agent.await_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
