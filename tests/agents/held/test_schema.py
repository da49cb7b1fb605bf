"""The source's columns change while records are held: they are converted, or the run ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndPause
from arrester.agents.held.schema import HeldRowsMismatch, RowSchemas, converted, with_all_columns
from arrester.agents.journal.storage import LocalStorage
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.spark.frames.ddl import parse_ddl
from arrester.agents.worker.columns import ROW
from arrester.domain.events import ResumeHow, TaskPaused
from arrester.domain.state.states import ThreadStatus
from tests.agents.pipeline_bench import Bench, read_sink, sink_to
from tests.parameters import long_for
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def reading(bench: Bench, schema: str, *, atomic: bool) -> Pipeline:
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
        sink_to(bench.folder / "out"), atomic=atomic
    )


def columns(schema: str) -> T.StructType:
    parsed = parse_ddl(schema)
    assert isinstance(parsed, T.StructType)
    return parsed


def test_fields_of_structs_are_converted_as_columns(spark: SparkSession) -> None:
    stored = "STRUCT<Id: INT, b: STRUCT<a: INT, c: ARRAY<STRUCT<x: INT>>>, d: STRING>"
    held = [((0, (1, [(2,)]), "gone"),), ((1, None, "gone"),)]
    frame = spark.createDataFrame(held, f"{ROW} {stored}")
    wanted = columns("b STRUCT<c: ARRAY<STRUCT<x: BIGINT, y: STRING>>, a: INT, e: DATE>, id BIGINT")

    rows = [row[ROW].asDict(recursive=True) for row in converted(frame, wanted).collect()]

    assert sorted(rows, key=lambda row: row["id"]) == [
        {"b": {"c": [{"x": 2, "y": None}], "a": 1, "e": None}, "id": 0},
        {"b": None, "id": 1},
    ]
    with pytest.raises(HeldRowsMismatch, match=r"b\.c as struct<x:int>, .* as string"):
        converted(frame, columns("b STRUCT<c: ARRAY<STRING>>"))
    with pytest.raises(HeldRowsMismatch, match="held rows have d as string"):
        converted(frame, columns("d DATE"))


def test_rows_of_several_schemas_become_dead_letters_unconverted(spark: SparkSession) -> None:
    kinds = ("STRUCT<a: INT, b: STRING>", "STRUCT<a: STRUCT<x: INT>, c: INT>")
    rows = ((1, "b"), ((2,), 3))
    frames = [
        spark.createDataFrame([(row,)], f"{ROW} {kind}")
        for row, kind in zip(rows, kinds, strict=True)
    ]
    one, other = with_all_columns(frames)
    united = [row[ROW].asDict() for row in one.unionByName(other).collect()]
    assert united == [{"a": "1", "b": "b", "c": None}, {"a": '{"x":2}', "b": None, "c": 3}]


def test_schemas_of_held_rows_are_read_without_parquet(spark: SparkSession, tmp_path: Path) -> None:
    kind = columns("a INT, b STRING")
    files = LocalStorage(str(tmp_path))
    name = RowSchemas(files).save(kind)
    assert RowSchemas(files).save(kind) == name != RowSchemas(files).save(columns("a INT"))
    assert RowSchemas(files).of(f"{1:020d}-0a1b2c3d-{name}") == kind


@pytest.mark.parametrize("atomic", long_for([False, True], [False]))
def test_held_records_are_converted_to_a_changed_source_or_stay_held(
    bench: Bench, atomic: bool
) -> None:
    """First an incompatible type: the task waits. Then removed, new and wider columns."""
    bench.add(("a", 1, "bad"), ("a", 2, "x"))
    bench.start(reading(bench, "task STRING, position INT, value STRING", atomic=atomic))
    bench.wait_for_input()
    bench.stop()

    # They stay held for any command except a resume after them.
    instance = uuid4()
    other = "task STRING, position INT, value STRUCT<a: INT>"
    thread = bench.start(reading(bench, other, atomic=atomic), instance=instance)
    wait_until(lambda: bench.outbox.of(TaskPaused)[1:] != [])
    held = bench.outbox.of(TaskPaused)[-1]
    assert held.failure is not None
    message = "held rows have value as string, the source has it as struct<a:int> now"
    assert message in held.failure.message and held.position == 1
    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    wait_until(lambda: bench.outbox.of(TaskPaused)[2:] != [])
    assert thread.apply(
        TaskCommand("a", how=ResumeHow.SKIP, actor="ana", reason="of a former source")
    ).applied
    wait_until(lambda: bench.outbox.of(TaskPaused)[3:] != [])
    assert bench.outbox.of(TaskPaused)[-1].position == 2
    assert (thread.state, bench.ends) == (ThreadStatus.RUNNING, [])
    [dead_letter] = bench.dead_letters()
    assert json.loads(dead_letter["row"]) == {"task": "a", "position": 1, "value": "bad"}
    bench.stop()

    (bench.folder / "repaired").touch()
    wider = "position BIGINT, value STRING, task STRING, extra STRING"
    thread = bench.start(reading(bench, wider, atomic=atomic))
    out = bench.folder / "out"
    wait_until(lambda: len(read_sink(out)) == 1)
    assert thread.state is ThreadStatus.RUNNING
    bench.stop()
    assert [(row["position"], row["value"]) for _, row in read_sink(out)] == [(2, "x")]
    assert all("extra" not in row for _, row in read_sink(out))
