"""The source's columns change while records are held: they fit, or the run says why not."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from agents.builder import define
from agents.handlers import LogAndPause
from agents.held_schema import HeldRowsMisfit, fitted
from agents.pipeline import Pipeline
from agents.worker.columns import ROW
from controlplane.domain.states import ThreadStatus
from tests.agents.engine.bench import Bench, read_sink, sink_to, wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def reading(bench: Bench, schema: str) -> Pipeline:
    flag = str(bench.folder / "repaired")

    def check(row: Row) -> Row:
        import os

        if row["value"] == "bad" and not os.path.exists(flag):
            raise ValueError("bad")
        return row

    (bench.folder / "in").mkdir(exist_ok=True)
    source = bench.spark.readStream.schema(schema).json(str(bench.folder / "in"))
    builder = define("lines", source, task="task", position="position", value="value")
    return builder.process("check", check, on_error=LogAndPause()).write(
        sink_to(bench.folder / "out")
    )


def columns(schema: str) -> T.StructType:
    parsed = T.StructType.fromDDL(schema)
    assert isinstance(parsed, T.StructType)
    return parsed


def test_fields_of_structs_fit_as_columns_do(spark: SparkSession) -> None:
    stored = "STRUCT<Id: INT, b: STRUCT<a: INT, c: ARRAY<STRUCT<x: INT>>>, d: STRING>"
    held = [((0, (1, [(2,)]), "gone"),), ((1, None, "gone"),)]
    frame = spark.createDataFrame(held, f"{ROW} {stored}")
    wanted = columns("b STRUCT<c: ARRAY<STRUCT<x: BIGINT, y: STRING>>, a: INT, e: DATE>, id BIGINT")

    rows = [row[ROW].asDict(recursive=True) for row in fitted(frame, wanted).collect()]

    assert sorted(rows, key=lambda row: row["id"]) == [
        {"b": {"c": [{"x": 2, "y": None}], "a": 1, "e": None}, "id": 0},
        {"b": None, "id": 1},
    ]
    with pytest.raises(HeldRowsMisfit, match=r"b\.c as struct<x:int>, .* as string"):
        fitted(frame, columns("b STRUCT<c: ARRAY<STRING>>"))
    with pytest.raises(HeldRowsMisfit, match="held rows have d as string"):
        fitted(frame, columns("d DATE"))


def test_held_records_fit_the_columns_of_a_changed_source_or_are_kept(bench: Bench) -> None:
    """First a type that they do not fit: nothing is lost. Then columns gone, new and wider."""
    bench.add(("a", 1, "bad"), ("a", 2, "x"))
    bench.start(reading(bench, "task STRING, position INT, value STRING"))
    bench.wait_for_input()
    bench.stop()

    bench.start(reading(bench, "task STRUCT<a: INT>, position INT, value STRING"))
    wait_until(lambda: bool(bench.deaths))
    [death] = bench.deaths
    assert isinstance(death.exception, HeldRowsMisfit)
    assert "held rows have task as string, the source has it as struct<a:int> now" in death.reason

    (bench.folder / "repaired").touch()
    wider = "position BIGINT, value STRING, task STRING, extra STRING"
    thread = bench.start(reading(bench, wider))
    out = bench.folder / "out"
    wait_until(lambda: len(read_sink(out)) == 2)
    assert thread.state is ThreadStatus.RUNNING
    bench.stop()
    assert [(row["position"], row["value"]) for _, row in read_sink(out)] == [(1, "bad"), (2, "x")]
    assert all("extra" not in row for _, row in read_sink(out))
