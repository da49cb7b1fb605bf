"""Frames of rows that the driver has are those that Spark makes of them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from arrester.agents.spark.errors import Problem, error_row
from arrester.agents.spark.frames.local_frame import local_frame
from arrester.agents.worker.columns import ERROR_TYPE

_SCHEMA = (
    T.StructType()
    .add("key", T.StringType())
    .add("entry", T.IntegerType())
    .add("position", T.LongType())
    .add("held", T.BooleanType())
    .add("error", ERROR_TYPE)
)
ERROR = error_row(Problem(exception_class="ValueError", message="NA · no number", took_ms=2**40))


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [("JFK", 1, -(2**63), True, ERROR), (None, None, None, None, None)],
        [(str(number), number, number, False, None) for number in range(1_000)],
    ],
)
def test_a_frame_has_the_rows(spark: SparkSession, rows: list[tuple[object, ...]]) -> None:
    frame = local_frame(spark, rows, _SCHEMA)
    assert frame.schema == _SCHEMA
    assert frame.collect() == spark.createDataFrame(rows, _SCHEMA).collect()


def test_a_message_may_have_half_of_a_surrogate_pair(spark: SparkSession) -> None:
    broken = error_row(Problem(exception_class="ValueError", message="half: \ud83d"))
    frame = local_frame(spark, [("JFK", 1, 2, False, broken), ("LGA", 1, 3, False, ERROR)], _SCHEMA)
    first, second = (row["error"]["message"] for row in frame.collect())
    assert first.startswith("half: ") and second == ERROR["message"]
