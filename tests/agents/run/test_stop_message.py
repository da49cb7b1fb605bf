"""The exception that leaves foreachBatch: Spark applies a recursive regex to its message.

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
from tests.agents.pipeline_bench import Bench
from tests.patience import wait_until

pytestmark = pytest.mark.spark

LINES = 20_000


@contextmanager
def stderr_of(jvm: Any) -> Iterator[Any]:
    """Return the output of the JVM, such as the trace of a thread that died."""
    kept, before = jvm.java.io.ByteArrayOutputStream(), jvm.java.lang.System.err
    jvm.java.lang.System.setErr(jvm.java.io.PrintStream(kept, True))
    try:
        yield kept
    finally:
        jvm.java.lang.System.setErr(before)


def raise_in_java(jvm: Any) -> None:
    jvm.java.util.Objects.requireNonNull(None, "of a Java exception\n" * LINES)


def failing(bench: Bench, wait: Any) -> tuple[Pipeline, list[BaseException]]:
    """Return a pipeline whose sink waits and raises a Java exception; and the exception."""
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
    text = str(thread._query_loop.query.exception())
    assert "BatchEnded: pipeline lines failed" in text
    assert "of a Java exception" not in text and "Py4JJavaError" not in text


def test_spark_gets_one_short_line_about_an_exception_of_a_sink(bench: Bench) -> None:
    pipeline, raised = failing(bench, lambda: None)
    thread = bench.start(pipeline)
    wait_until(lambda: bool(bench.ends))
    assert bench.ends[0].exception is raised[0]
    assert_short(thread)


def test_a_stop_after_a_java_exception_overflows_no_stack(bench: Bench) -> None:
    begun: list[bool] = []

    def until_stopped() -> None:
        begun.append(True)
        wait_until(lambda: not thread._query_loop.query.isActive)

    pipeline, raised = failing(bench, until_stopped)
    with stderr_of(bench.spark._jvm) as kept:
        thread: PipelineThread = bench.start(pipeline)
        wait_until(lambda: bool(begun))
        thread.stop("stopped", timeout_seconds=2)
        wait_until(lambda: not thread.is_running)
        assert raised and bench.ends == []
        assert thread._query_loop.query.exception() is None
        assert "StackOverflowError" not in str(kept.toString())
