"""A real Spark driver beside others of its application: `fleet FOLDER NAME ANSWER CHECKPOINT …`.

For each checkpoint it has a pipeline, which reads FOLDER/in-CHECKPOINT. It prints how it ended, as
one line of JSON. A record `bad` fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from arrester import Agent, LogAndFail, StartRefused, UncaughtAnswer
from arrester.agents.definition.pipeline import Pipeline

APPLICATION = "fleet"


def check(row: dict[str, Any]) -> dict[str, Any]:
    """Fail on what is bad."""
    if row["value"] == "bad":
        raise ValueError("bad")
    return row


def main(folder: Path, name: str, answer: str, *checkpoints: str) -> dict[str, object]:
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

    agent = Agent(spark, application=APPLICATION, on_uncaught=handler)
    try:
        with agent:
            threads = [
                agent.start_pipeline(guarded(agent, spark, folder, name, each), str(folder / each))
                for each in checkpoints
            ]
            ending = agent.await_termination(raises=False)
    except StartRefused as exc:
        return {"name": name, "latched": str(exc), "asked": asked}
    return {
        "name": name,
        "ending": ending,
        "state": agent.state.value,
        "running": sum(each.is_running for each in threads),
        "asked": asked,
    }


def guarded(
    agent: Agent, spark: SparkSession, folder: Path, name: str, checkpoint: str
) -> Pipeline:
    """Return a pipeline of the driver."""
    source = (
        spark.readStream.schema("task STRING, position BIGINT, value STRING")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / f"in-{checkpoint}"))
    )
    out = str(folder / f"out-{name}" / checkpoint)
    return (
        agent.pipeline(f"lines-{checkpoint}", source, task="task", position="position")
        .process("check", check, on_error=LogAndFail())
        .write(lambda df, number: df.write.mode("append").json(out))
    )


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *sys.argv[2:])), flush=True)
