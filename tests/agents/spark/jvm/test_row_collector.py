"""Collected rows are unchanged, have unique IDs, and are bounded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.frames.column_names import map_in_arrow, quoted
from arrester.agents.spark.frames.local_checkpoint import ID
from arrester.agents.spark.jvm.plans.catalyst import collected
from arrester.agents.spark.jvm.plans.row_collector import RowCollector
from arrester.agents.spark.jvm.stored_rows import of_arrow_streams
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.spark

#: Values of each kind of type, also some that Python cannot represent.
_VALUES = """
    id, true AS bool, 1Y AS tiny, 2S AS small, 3 AS int, float('nan') AS float, -0.0D AS double,
    12345678901234567890.123456789012345678 AS decimal, concat('añ', id) AS text,
    CAST(X'ff80' AS STRING) AS broken_text, X'00ff' AS binary, DATE'0001-01-01' AS first_date,
    DATE'1582-10-10' AS gap, TIMESTAMP'1582-10-10 01:02:03.123456' AS gap_timestamp,
    TIMESTAMP_NTZ'9999-12-31 23:59:59.999999' AS last_timestamp, INTERVAL '3' MONTH AS months,
    INTERVAL '1 02:03:04.5' DAY TO SECOND AS seconds,
    array(array(concat('a', id), NULL), NULL) AS arrays,
    map(concat('k', id), map(1, named_struct('x', X'01'))) AS maps,
    named_struct('a b', concat('x', id), 'c.d', array(struct(1, 'y'))) AS struct, NULL AS nothing,
    CAST(NULL AS STRING) AS no_text
"""


class Job:
    """The rows that one job leaves and collects."""

    def __init__(
        self,
        collector: RowCollector,
        frame: DataFrame,
        condition: str,
        *,
        rows: int = 100,
        size: int = 100_000,
    ) -> None:
        columns = {name: quoted(name) for name in frame.columns} | {
            ID: F.monotonically_increasing_id()
        }
        collector.begin()
        left = frame.where(collector.is_left(F.expr(condition), columns, rows=rows, size=size))
        self.left = sorted(row["id"] for row in left.select("id").collect())
        self.count = collector.count
        named = [column.alias(name) for name, column in columns.items()]
        self.rows = collector.rows(frame.select(*named))


def in_binary(frame: DataFrame) -> list[str]:
    """Return the rows in Spark's binary form: no conversion to Python hides a difference."""
    return sorted(str(row.toString()) for row in collected(frame))


@pytest.mark.smoke
def test_collected_rows_are_unchanged(spark: SparkSession) -> None:
    frame = spark.sql(f"SELECT {_VALUES} FROM range(0, 9, 1, 3)")
    collector = RowCollector(spark)

    job = Job(collector, frame, "id % 2 = 0")

    assert job.left == [1, 3, 5, 7]
    assert job.count == 5
    assert job.rows is not None
    assert len({row[ID] for row in job.rows.select(ID).collect()}) == 5
    assert in_binary(job.rows.drop(ID)) == in_binary(frame.where("id % 2 = 0"))
    assert job.rows.drop(ID).schema.simpleString() == frame.schema.simpleString()

    # The next job forgets them.
    assert Job(collector, frame, "false").count == 0
    job = Job(collector, frame, "id = 3")
    assert job.rows is not None
    assert in_binary(job.rows.drop(ID)) == in_binary(frame.where("id = 3"))


@pytest.mark.smoke
def test_rows_that_a_python_worker_packs_are_unchanged(spark: SparkSession) -> None:
    """Values that Python does not have, such as the date 1582-10-10, stay the same, too."""

    def packing(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_arrays([pa.array([bytes(stream.getvalue())])], ["packed"])

    frame = spark.sql(f"SELECT {_VALUES} FROM range(0, 9, 1, 3)").drop("months", "maps")
    packed = map_in_arrow(frame, packing, "packed BINARY")
    unpacked = of_arrow_streams(packed, "packed", frame.schema)
    assert in_binary(unpacked) == in_binary(frame)


@pytest.mark.parametrize("limits", [{"rows": 2}, {"size": 1_000}])
def test_each_task_collects_up_to_a_limit(spark: SparkSession, limits: dict[str, int]) -> None:
    frame = spark.sql("SELECT id, repeat('x', 500) AS text FROM range(0, 6, 1, 2)")
    collector = RowCollector(spark)

    job = Job(collector, frame, "true", **limits)
    assert job.left == []
    assert job.count == 6
    assert job.rows is None
    # Two tasks, each with two or fewer rows.
    assert collector._rows.value().size() <= 4

    assert Job(collector, frame, "id IN (0, 5)", rows=2, size=5_000).rows is not None


_REPEATING = """
from pyspark.sql import SparkSession, functions as F
from arrester.agents.spark.jvm.plans.row_collector import RowCollector

spark = SparkSession.builder.master("local[2, 4]").config("spark.ui.enabled", "false").getOrCreate()

def fail_once(batches):
    from pyspark import TaskContext

    yield from batches
    if TaskContext.get().attemptNumber() == 0:
        raise OSError("an executor is lost")

collector = RowCollector(spark)
collector.begin()
condition = collector.is_left(F.expr("id = 1"), {"id": F.col("id")}, rows=9, size=9_999)
rows = spark.range(0, 4, 1, 2).where(condition).mapInArrow(fail_once, "id BIGINT").collect()
print(sorted(row["id"] for row in rows), collector.count, collector._rows.value().size())
"""


@pytest.mark.long
def test_a_task_that_is_repeated_collects_its_rows_once() -> None:
    """The shared Spark of the tests repeats no task."""
    command = [sys.executable, "-c", _REPEATING]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert run.stdout.splitlines()[-1:] == ["[0, 2, 3] 1 1"], run.stderr
