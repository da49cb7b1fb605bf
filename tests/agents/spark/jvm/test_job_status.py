"""Which task a failed job is attributed to, as Spark's status store has it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.job_status import ending_task, failed_job


class _Some:
    def __init__(self, value: int | None) -> None:
        self._value = value

    def isDefined(self) -> bool:
        return self._value is not None

    def get(self) -> int | None:
        return self._value


class _Date:
    def __init__(self, ms: int) -> None:
        self._ms = ms

    def getTime(self) -> int:
        return self._ms


class _Task:
    def __init__(self, *, attempt: int, launched_ms: int, duration_ms: int | None) -> None:
        self._attempt = attempt
        self._launched_ms = launched_ms
        self._duration_ms = duration_ms

    def attempt(self) -> int:
        return self._attempt

    def launchTime(self) -> _Date:
        return _Date(self._launched_ms)

    def duration(self) -> _Some:
        return _Some(self._duration_ms)


def test_the_task_that_used_the_most_attempts_ends_the_stage() -> None:
    first = _Task(attempt=0, launched_ms=0, duration_ms=10)
    last = _Task(attempt=3, launched_ms=40, duration_ms=10)
    other = _Task(attempt=2, launched_ms=20, duration_ms=10)
    assert ending_task([first, last, other]) is last


def test_of_tasks_with_as_many_attempts_the_first_end_counts() -> None:
    long = _Task(attempt=0, launched_ms=0, duration_ms=60)
    short = _Task(attempt=0, launched_ms=20, duration_ms=10)
    assert ending_task([long, short]) is short
    assert ending_task([short, long]) is short


def test_a_task_without_a_duration_ends_when_it_was_launched() -> None:
    unknown = _Task(attempt=0, launched_ms=5, duration_ms=None)
    known = _Task(attempt=0, launched_ms=0, duration_ms=10)
    assert ending_task([known, unknown]) is unknown


def test_a_failed_job_has_the_partition_of_its_failed_task(spark: SparkSession) -> None:
    def fail_in_the_third(index: int, rows: Any) -> Any:
        if index == 2:
            time.sleep(0.05)
            raise ValueError("third")
        return rows

    tag = "test-job-status"
    context = spark.sparkContext
    context.addJobTag(tag)
    try:
        rows = context.parallelize(range(8), 4)
        with pytest.raises(Exception) as caught:
            rows.mapPartitionsWithIndex(fail_in_the_third).count()
    finally:
        context.removeJobTag(tag)
    failed = failed_job(context, tag, caught.value, counter="none")
    assert failed.partition == 2
    assert failed.raised is caught.value
