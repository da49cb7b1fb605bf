"""Spark's web UI names pipeline, input and phase of each job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from arrester.agents.definition.builder import define
from arrester.agents.handlers import LogAndPause
from arrester.agents.run.thread import PipelineThread
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.events import ResumeHow
from tests.agents.pipeline_bench import SCHEMA, Bench, Row, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark


def jobs_of(spark: SparkSession, since: int = -1) -> dict[int, tuple[str | None, str | None]]:
    """Return description and group of each job after `since`."""
    context: Any = spark.sparkContext._jsc.sc()
    found = context.statusStore().jobsList(spark._jvm.java.util.ArrayList())  # type: ignore[union-attr]
    jobs = [found.apply(index) for index in range(found.size())]
    return {
        int(job.jobId()): (text_in(job.description()), text_in(job.jobGroup()))
        for job in jobs
        if job.jobId() > since
    }


def text_in(option: Any) -> str | None:
    return str(option.get()) if option.isDefined() else None


def last_job(spark: SparkSession) -> int:
    return max(jobs_of(spark), default=-1)


def test_jobs_are_described_by_batch_and_phase(bench: Bench) -> None:
    repaired = str(bench.folder / "repaired")

    def check(row: Row) -> Row:
        import os

        if row["value"] == "bad" and not os.path.exists(repaired):
            raise ValueError("bad")
        return row

    write = sink_to(bench.folder / "out")

    def sink(df: DataFrame, number: int) -> None:
        write(df, number)
        # The author's own description stays.
        df.sparkSession.sparkContext.setJobDescription("mine")
        df.count()

    since = last_job(bench.spark)
    bench.add(("a", 0, "x"))
    bench.add(("a", 1, "bad"), ("b", 0, "x"))
    step = bench.define().process("check", check, on_error=LogAndPause())
    thread: PipelineThread = bench.start(step.write(sink, atomic=True))
    bench.wait_for_input()
    Path(repaired).touch()
    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    wait_until(lambda: not thread.tasks()[0].held)
    bench.stop()

    jobs = list(jobs_of(bench.spark, since).values())
    described = {text for text, _ in jobs}
    assert described == {
        "mine",
        "lines: batch 0, fast path",
        "lines: batch 1, fast path",
        "lines: batch 1, evaluate",
        "lines: batch 1, store decision",
        "lines: batch 1, write",
        "lines: held records, read",
        "lines: held records, fast path",
    }
    groups = {group for text, group in jobs if text is not None and text.startswith("lines: batch")}
    [run_id] = groups
    assert run_id == str(thread._query_loop.query._started.result().runId)  # type: ignore[attr-defined]  # Spark's query has one
    assert {group for text, group in jobs if text and "held" in text} == {"lines: held records"}


def test_the_authors_own_job_group_of_a_static_run_stays(bench: Bench) -> None:
    since = last_job(bench.spark)
    source = bench.spark.createDataFrame([("a", 0, "x")], SCHEMA)
    pipeline = define("lines", source, task="task", position="position").write(
        sink_to(bench.folder / "out")
    )

    def start() -> None:
        bench.spark.sparkContext.setJobGroup("mine", "my own")
        bench.thread(pipeline).start(bench.checkpoint)

    starter = InheritableThread(target=start, daemon=True)
    starter.start()
    starter.join()
    wait_until(lambda: not bench.threads[0].is_running)

    found = set(jobs_of(bench.spark, since).values())
    assert ("lines: batch 0, write", "mine") in found
    assert {group for _, group in found} == {"mine"}
