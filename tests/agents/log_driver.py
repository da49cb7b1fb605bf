"""A driver process with Spark's default log level, whose log a test reads.

    python -m tests.agents.log_driver FOLDER SCENE...

It runs one scene after the other, and names each on stderr before it begins. Our own lines there
begin with "ours".
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.agent import Agent
from arrester.agents.definition.builder import PipelineBuilder
from arrester.agents.definition.pipeline import Pipeline, Trigger
from arrester.agents.handlers import LogAndContinue, LogAndPause, Record
from arrester.agents.journal.fencing import claim
from arrester.agents.journal.storage import LocalStorage
from arrester.agents.run.thread import PipelineThread
from arrester.domain.error_policy.policy import Response
from arrester.domain.identity.uuids import uuid7
from tests.agents.pipeline_bench import APPLICATION, SCHEMA, write_batch
from tests.histories import POLICY
from tests.patience import wait_until

Row = dict[str, Any]
BEGIN = "### "


class Repaired(Exception):
    """A failure that the platform repairs, by the configuration of the scene."""


class Scene:
    """A pipeline over files; each micro-batch is one `add`."""

    def __init__(self, spark: SparkSession, folder: Path, name: str) -> None:
        print(f"{BEGIN}{name}", file=sys.stderr, flush=True)
        self.spark = spark
        self.folder = folder / name.replace(" ", "-").replace(",", "")
        (self.folder / "in").mkdir(parents=True)
        self.checkpoint = self.folder / "checkpoint"
        self.agent = Agent(
            spark,
            application=APPLICATION,
            errors={"errors.self.healing.classes": f"{__name__}.Repaired"},
        )
        self._files = 0

    def define(self) -> PipelineBuilder:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2)
        source = reader.json(str(self.folder / "in"))
        return self.agent.pipeline("lines", source, task="task", position="position")

    def start(self, pipeline: Pipeline, *, trigger: Trigger | None = None) -> PipelineThread:
        self.thread = self.agent.start_pipeline(pipeline, str(self.checkpoint), trigger=trigger)
        # A scene waits for its micro-batches. Without a wait the end of its block logs a WARNING.
        self.agent.await_termination(0.0)
        return self.thread

    def add(self, *values: str) -> None:
        """Add a micro-batch of two files, and so of two tasks of Spark: of `values`, and a good
        one."""
        for task, each in (("a", values), ("b", ("1",))):
            self._files += 1
            rows = [
                {"task": task, "position": 100 * self._files + n, "value": value}
                for n, value in enumerate(each)
            ]
            draft = self.folder / "drafts"
            write_batch(draft, self._files, rows)
        for draft in sorted((self.folder / "drafts").iterdir()):
            draft.rename(self.folder / "in" / draft.name)

    def committed(self) -> int:
        folder = self.checkpoint / "commits"
        numbers = [int(each.name) for each in folder.glob("[0-9]*")] if folder.exists() else []
        return max(numbers, default=-1)

    def run(self, *values: str) -> None:
        """Add a micro-batch, and wait until the query has nothing to do.

        A stop before that may interrupt Hadoop, which then warns.
        """
        self.add(*values)
        wait_until(lambda: self.committed() >= self._files // 2 - 1, what="a commit")
        wait_until(self._is_idle, what="an idle query")

    def _is_idle(self) -> bool:
        query: Any = self.thread._query_loop.query
        return str(query._started.result().status["message"]).startswith("Waiting for")

    def sink(self, df: DataFrame, number: int) -> None:
        df.write.mode("overwrite").json(f"{self.folder}/out/{number:08d}")


def number() -> Any:
    return F.col("value").cast("int")


def checked(row: Row) -> Row:
    int(row["value"])
    return row


def one_failing_record(scene: Scene, *, python: bool, files: bool) -> None:
    pipeline = scene.define()
    if python:
        pipeline = pipeline.process("check", checked, on_error=LogAndContinue())
    else:
        pipeline = pipeline.deserialize("number", number(), on_error=LogAndContinue())
    with scene.agent:
        if files:
            scene.start(pipeline.write_files(str(scene.folder / "out"), number_column="batch"))
        else:
            scene.start(pipeline.write(scene.sink, atomic=True))
        scene.run("1")
        scene.run("2", "bad", "3")


def other_tasks_killed(scene: Scene) -> None:
    """While one task of the write fails, the other is busy, so that Spark kills it."""
    busy = str(scene.folder / "busy")

    def check(row: Row) -> Row:
        import os
        import time

        if row["task"] == "b" and not os.path.exists(busy):
            open(busy, "w").close()
            time.sleep(300)
        while not os.path.exists(busy):
            time.sleep(0.01)
        int(row["value"])
        return row

    with scene.agent:
        step = scene.define().process("check", check, on_error=LogAndContinue())
        scene.start(step.write(scene.sink, atomic=True))
        scene.run("bad")


def data_source_v2(scene: Scene) -> None:
    def write(df: DataFrame, number: int) -> None:
        df.write.format("noop").mode("overwrite").save()

    with scene.agent:
        step = scene.define().deserialize("number", number(), on_error=LogAndContinue())
        scene.start(step.write(write, atomic=True))
        scene.run("bad")


def pause_and_resume(scene: Scene) -> None:
    repaired = str(scene.folder / "repaired")

    def check(row: Row) -> Row:
        import os

        if row["value"] == "bad" and not os.path.exists(repaired):
            raise ValueError("bad")
        return row

    with scene.agent as agent:
        step = scene.define().process("check", check, on_error=LogAndPause())
        scene.start(step.write(scene.sink, atomic=True))
        scene.run("1", "bad", "2")
        print(f"{BEGIN}resume", file=sys.stderr, flush=True)
        Path(repaired).touch()
        [task] = agent.paused_tasks()
        assert agent.resume(task)
        wait_until(lambda: not agent.tasks()[0].held)
        scene.run("3")


def shutdown_in_a_micro_batch(scene: Scene) -> None:
    """The micro-batch is undecided, so it ends without a commit."""
    entered = threading.Event()

    class Slow:
        def handle(self, context: object, record: Record, error: object) -> Response:
            entered.set()
            wait_until(lambda: thread._stop_signal.is_requested)
            return Response.CONTINUE

    with scene.agent:
        step = scene.define().process("check", checked, on_error=Slow())
        thread = scene.start(step.write(scene.sink, atomic=True))
        scene.add("bad")
        assert entered.wait(200)
    assert scene.committed() == -1


def shutdown_in_a_write(scene: Scene) -> None:
    """The jobs of the fast path are cancelled."""
    busy = str(scene.folder / "busy")

    def check(row: Row) -> Row:
        import time

        open(busy, "w").close()
        time.sleep(300)
        return row

    with scene.agent:
        step = scene.define().process("check", check)
        scene.start(step.write(scene.sink, atomic=True))
        scene.add("1")
        wait_until(Path(busy).exists)
    assert scene.committed() == -1


def restart(scene: Scene) -> None:
    """A self-healing failure of the sink: the query starts again."""
    calls: list[int] = []

    def write(df: DataFrame, number: int) -> None:
        calls.append(number)
        if len(calls) < 3:
            raise Repaired("the platform repairs it")
        scene.sink(df, number)

    with scene.agent:
        scene.start(scene.define().write(write, atomic=True))
        scene.run("1")
    assert len(calls) == 3


def superseded(scene: Scene) -> None:
    with scene.agent:
        thread = scene.start(scene.define().write(scene.sink, atomic=True))
        scene.run("1")
        at = datetime.now(UTC)
        claim(
            LocalStorage(str(scene.checkpoint)),
            application=APPLICATION,
            pipeline="lines",
            checkpoint=thread.checkpoint_id,
            instance=uuid7(at),
            policy=POLICY,
            now=at,
        )
        scene.add("2")
        wait_until(lambda: not thread.is_running)
    assert scene.committed() == 0


def available_now(scene: Scene) -> None:
    scene.add("1")
    with scene.agent as agent:
        pipeline = scene.define().deserialize("number", number()).write(scene.sink, atomic=True)
        scene.start(pipeline, trigger={"availableNow": True})
        agent.await_termination()


def healthy(scene: Scene) -> None:
    with scene.agent:
        pipeline = scene.define().deserialize("number", number()).process("check", checked)
        scene.start(pipeline.write(scene.sink, atomic=True))
        scene.run("1")
        scene.run("2")


def broken_sink(scene: Scene) -> None:
    """An error of the author's own write, in a job of Spark: none of ours."""

    def write(df: DataFrame, number: int) -> None:
        broken = F.raise_error(F.lit("the sink is broken"))
        df.withColumn("value", broken).write.mode("overwrite").json(f"{scene.folder}/out")

    with scene.agent as agent:
        scene.start(scene.define().write(write, atomic=True))
        scene.add("1")
        agent.await_termination(raises=False)


#: The names of a failing record's scenes have its step and its sink.
SCENES: dict[str, Callable[[Scene], None]] = {
    "healthy": healthy,
    "native step, foreachBatch": partial(one_failing_record, python=False, files=False),
    "native step, file sink": partial(one_failing_record, python=False, files=True),
    "python step, foreachBatch": partial(one_failing_record, python=True, files=False),
    "python step, file sink": partial(one_failing_record, python=True, files=True),
    "data source v2": data_source_v2,
    "other tasks killed": other_tasks_killed,
    "pause": pause_and_resume,
    "restart": restart,
    "shutdown in a micro-batch": shutdown_in_a_micro_batch,
    "shutdown in a write": shutdown_in_a_write,
    "superseded": superseded,
    "availableNow": available_now,
    "broken sink": broken_sink,
}


def main(folder: Path, names: Sequence[str]) -> None:
    logging.basicConfig(
        level=logging.INFO, format="ours %(levelname)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.daemon.module", "tests.spark.daemon")
        .getOrCreate()
    )
    for name in names:
        SCENES[name](Scene(spark, folder, name))
    print(f"{BEGIN}end", file=sys.stderr, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
