"""A failing record is found by few jobs, for all kinds of code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.batch.slow_path import evaluate
from arrester.agents.execution.bisection import Bisection, NoSingleRecord, evaluating
from arrester.agents.spark.frames.local_checkpoint import ID, numbered
from arrester.agents.spark.job_attempts import AttemptFailed, run_job, with_row_counter
from arrester.agents.spark.jvm.job_status import FailedJob
from arrester.agents.spark.session_conf import conf, small_batches
from arrester.agents.worker.columns import OUTCOME, POSITION
from tests.agents.batch.static_batches import discard, lines, pipeline_of
from tests.parameters import long_for

pytestmark = pytest.mark.spark

Function = Callable[[DataFrame], DataFrame]
_ROWS = 10_000
_FAILING = 7_123
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: On by default since Spark 4.2.
_ARROW_UDF = "spark.sql.execution.pythonUDF.arrow.enabled"


def native(df: DataFrame) -> DataFrame:
    return df.withColumn("n", F.col("value").cast("int"))


def by_udf(df: DataFrame) -> DataFrame:
    return df.withColumn("n", F.udf(lambda text: int(text), "int")("value"))


def by_pickled_udf(df: DataFrame) -> DataFrame:
    return df.withColumn("n", F.udf(lambda text: int(text), "int", useArrow=False)("value"))


def by_pandas(df: DataFrame) -> DataFrame:
    def numbers(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            yield frame.assign(id=frame["value"].astype(int))

    return df.mapInPandas(numbers, df.schema)


def by_arrow(df: DataFrame) -> DataFrame:
    def numbers(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            [int(value) for value in batch["value"].to_pylist()]
            yield batch

    return df.mapInArrow(numbers, df.schema)


def filtering(df: DataFrame) -> DataFrame:
    def odd(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            yield frame[frame["value"].astype(int) % 2 == 1]

    return df.mapInPandas(odd, df.schema)


def exploding(df: DataFrame) -> DataFrame:
    def twice(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            yield frame.assign(id=frame["value"].astype(int)).loc[frame.index.repeat(2)]

    return df.mapInPandas(twice, df.schema)


def crashing(df: DataFrame) -> DataFrame:
    def crash(frames: Iterator[Any]) -> Iterator[Any]:
        import os

        for frame in frames:
            if (frame["value"] == "x").any():
                os._exit(1)
            yield frame

    return df.mapInPandas(crash, df.schema)


#: The most jobs by which the failing row is found.
JOBS_OF: dict[str, tuple[Function, int]] = {
    "native": (native, 2),
    "udf": (by_udf, 2),
    "pickled": (by_pickled_udf, 2),
    "pandas": (by_pandas, 2),
    "arrow": (by_arrow, 2),
    # The number of their returned rows is not exact; the partition is spread.
    "filtering": (filtering, 6),
    "exploding": (exploding, 6),
    "crashing": (crashing, 6),
}

LONG = ["exploding", "filtering", "pandas", "pickled"]


def failed_job(base: DataFrame, operation: Function) -> tuple[DataFrame, FailedJob]:
    rows = numbered(base)

    def run() -> None:
        with_row_counter(operation(rows.drop(ID))).write.format("noop").mode("overwrite").save()

    with pytest.raises(AttemptFailed) as raised:
        run_job(base.sparkSession, run)
    return rows, raised.value.failed


@pytest.mark.parametrize("kind", long_for(JOBS_OF, LONG))
def test_a_failing_record_is_found_by_few_jobs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each failed Python job ends its workers, and starting new ones costs more than the job."""
    if kind == "udf" and spark.conf.get(_ARROW_UDF) != "true":
        pytest.skip("rows of a UDF are pickled here, in batches of a fixed size: more jobs")
    value = F.when(F.col("id") == _FAILING, "x").otherwise(F.col("id").cast("string"))
    base = spark.range(0, _ROWS, 1, 2).withColumn("value", value).localCheckpoint(eager=True)
    function, jobs = JOBS_OF[kind]
    monkeypatch.setattr("arrester.agents.execution.bisection.JOBS", jobs)

    def operation(frame: DataFrame) -> DataFrame:
        return function(frame.drop(ID))

    with conf(spark, {_BATCH: "1000"}):
        rows, failed = failed_job(base, function)
        failing = Bisection(evaluating(operation)).find(rows, failed)
        assert spark.conf.get(_BATCH) == "1000"

    assert [row["id"] for row in rows.where(F.col(ID) == failing.id).collect()] == [_FAILING]


def test_no_record_is_searched_by_more_jobs_than_allowed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrester.agents.execution.bisection.JOBS", 0)
    base = spark.range(0, 2, 1, 1).withColumn("value", F.lit("x")).localCheckpoint(eager=True)
    rows, failed = failed_job(base, native)
    with pytest.raises(NoSingleRecord, match="more of its records fail than 0 jobs could find"):
        Bisection(evaluating(lambda frame: native(frame.drop(ID)))).find(rows, failed)


@pytest.mark.parametrize(("kind", "failing"), [("shuffle", 0), ("coalesce", 2)])
def test_a_task_that_reads_other_partitions_gives_no_hint(
    spark: SparkSession, kind: str, failing: int
) -> None:
    """Its number is that of a partition with one good row."""
    value = F.when(F.col("id") == failing, "x").otherwise("1")
    base = spark.range(0, 4, 1, 4).withColumn("value", value).localCheckpoint(eager=True)

    def operation(frame: DataFrame) -> DataFrame:
        rows_only = frame.drop(ID)
        return native(
            rows_only.repartition(4, F.lit(1)) if kind == "shuffle" else rows_only.coalesce(2)
        )

    rows, failed = failed_job(base, operation)
    assert failed.partition != failing
    record = Bisection(evaluating(operation), is_probe=kind == "coalesce").find(rows, failed)
    assert [row["id"] for row in rows.where(F.col(ID) == record.id).collect()] == [failing]


def test_failing_records_are_found_one_after_the_other(spark: SparkSession) -> None:
    """Isolated records are excluded: returned rows are counted without them."""
    values = ["x" if n in (3, 70) else str(n) for n in range(90)]
    source = lines(spark, *values).coalesce(1)
    pipeline = pipeline_of(source).transform("numbers", renamed(by_arrow)).write(discard)

    evaluated = evaluate(source, pipeline)

    failed = evaluated.frame.where(F.col(OUTCOME) == 1).orderBy(POSITION).collect()
    assert [row[POSITION] for row in failed] == [3, 70]


def renamed(function: Function) -> Function:
    """Return it for lines, with `position` as `id`."""
    return lambda df: function(df.select(F.col("position").alias("id"), "value"))


def test_the_batch_size_of_the_session_is_restored_after_an_exception(spark: SparkSession) -> None:
    before = spark.conf.get(_BATCH)
    with pytest.raises(ZeroDivisionError), small_batches(spark):
        assert spark.conf.get(_BATCH) != before
        raise ZeroDivisionError
    assert spark.conf.get(_BATCH) == before
