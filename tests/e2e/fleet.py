"""A real Spark driver beside others of its application: `fleet FOLDER NAME CHECKPOINT ANSWER`.

It reads FOLDER/in-CHECKPOINT and prints how it ended, as one line of JSON. A record `bad` fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from agents import Agent, ApplicationLatched, LogAndFail, UncaughtAnswer

APPLICATION = "fleet"


def check(row: dict[str, Any]) -> dict[str, Any]:
    """Fail on what is bad."""
    if row["value"] == "bad":
        raise ValueError("bad")
    return row


def main(folder: Path, name: str, checkpoint: str, answer: str) -> dict[str, object]:
    """Run until it ends; return how it did."""
    spark = (
        SparkSession.builder.appName(name)
        .master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    asked: list[str] = []

    def handler(exception: BaseException) -> UncaughtAnswer:
        asked.append(str(exception))
        return UncaughtAnswer[answer]

    source = (
        spark.readStream.schema("task STRING, position BIGINT, value STRING")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / f"in-{checkpoint}"))
    )
    agent = Agent(spark, application=APPLICATION, on_uncaught=handler)
    pipeline = (
        agent.pipeline(f"lines-{checkpoint}", source, task="task", position="position")
        .process("check", check, on_error=LogAndFail())
        .write(lambda df, number: df.write.mode("append").json(str(folder / f"out-{name}")))
    )
    try:
        with agent:
            pipeline.start(checkpoint=str(folder / checkpoint))
            ending = agent.await_termination()
    except ApplicationLatched as exc:
        return {"name": name, "latched": str(exc), "asked": asked}
    return {"name": name, "ending": ending, "state": agent.state.value, "asked": asked}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *sys.argv[2:])), flush=True)
