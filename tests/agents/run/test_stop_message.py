"""What leaves foreachBatch: at a stop, Spark looks through the whole message by a recursive regex.

`StreamExecution.isInterruptionException` overflows the stack over a Java trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import DataFrame

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.run.thread import PipelineThread
from tests.agents.pipeline_bench import Bench, wait_until

pytestmark = pytest.mark.spark

LINES = 20_000


@contextmanager
def stderr_of(jvm: Any) -> Iterator[Any]:
    """Give what the JVM prints: of a thread that dies of an error, its trace."""
    kept, before = jvm.java.io.ByteArrayOutputStream(), jvm.java.lang.System.err
    jvm.java.lang.System.setErr(jvm.java.io.PrintStream(kept, True))
    try:
        yield kept
    finally:
        jvm.java.lang.System.setErr(before)


def raise_in_java(jvm: Any) -> None:
    jvm.java.util.Objects.requireNonNull(None, "of a Java exception\n" * LINES)


def failing(bench: Bench, wait: Any) -> tuple[Pipeline, list[BaseException]]:
    """Return a pipeline whose sink waits, and raises what Java did; and what it raised."""
    raised: list[BaseException] = []

    def sink(df: DataFrame, number: int) -> None:
        wait()
        try:
            raise_in_java(bench.spark._jvm)
        except Py4JJavaError as exc:
            assert len(str(exc).splitlines()) > LINES
            raised.append(exc)
            raise

    bench.add(("a", 0, "1"))
    return bench.define().write(sink), raised


def assert_short(thread: PipelineThread) -> None:
    told = str(thread._query.exception())
    assert "BatchEnded: pipeline lines stopped" in told
    assert "of a Java exception" not in told and "Py4JJavaError" not in told


def test_spark_is_told_one_short_line_of_what_a_sink_raised(bench: Bench) -> None:
    pipeline, raised = failing(bench, lambda: None)
    thread = bench.start(pipeline)
    wait_until(lambda: bool(bench.deaths))
    assert bench.deaths[0].exception is raised[0]
    assert_short(thread)


def test_a_stop_over_a_trace_of_java_overflows_no_stack(bench: Bench) -> None:
    begun: list[bool] = []

    def until_stopped() -> None:
        begun.append(True)
        wait_until(lambda: not thread._query.isActive)

    pipeline, raised = failing(bench, until_stopped)
    with stderr_of(bench.spark._jvm) as kept:
        thread: PipelineThread = bench.start(pipeline)
        wait_until(lambda: bool(begun))
        thread.stop(timeout_seconds=2)
        wait_until(lambda: not thread.is_running)
        assert raised and bench.deaths == []
        assert_short(thread)
        assert "StackOverflowError" not in str(kept.toString())
