"""A query with a Python function: its micro-batches after the release, and its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from arrester.agents.spark.foreach_batch import ForeachBatchQuery, OnBatch
from arrester.agents.stop_signal import BatchEnded, BatchStopped
from tests.patience import wait_until

pytestmark = pytest.mark.spark


def started(spark: SparkSession, folder: Path, on_batch: OnBatch) -> ForeachBatchQuery:
    source = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    writer = source.writeStream.option("checkpointLocation", str(folder))
    return ForeachBatchQuery(writer, on_batch)


def committed(folder: Path) -> list[str]:
    return [commit.name for commit in (folder / "commits").glob("[0-9]*")]


def test_a_released_query_commits_nothing(spark: SparkSession, tmp_path: Path) -> None:
    batches: list[int] = []
    query = started(spark, tmp_path, lambda frame, batch: batches.append(batch))
    wait_until(lambda: bool(batches))
    query.stop()
    done = len(batches)
    frame: Any = None
    with pytest.raises(BatchEnded):
        query(frame, 2)
    assert len(batches) == done


def test_a_batch_that_stops_its_query_is_not_committed_and_did_not_fail(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It may be the first one, which runs before the start of the query has returned."""

    def stops(frame: DataFrame, batch: int) -> None:
        raise BatchStopped("the pipeline stopped")

    query = started(spark, tmp_path, stops)
    wait_until(lambda: not query.isActive)
    query.stop()
    assert query.exception() is None
    assert committed(tmp_path) == []
