"""A record that comes back from held rows, a mend or a dead letter is what the source gave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndPause
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.spark.session_conf import conf
from arrester.domain.errors import InvalidValue
from arrester.domain.events import ResumeHow
from tests.agents.pipeline_bench import Bench, read_sink, sink_to
from tests.agents.run.commands.test_redrive import command, dead_letters, mended, redrive
from tests.agents.run.test_pause_and_resume import refusing_bad
from tests.patience import wait_until

pytestmark = pytest.mark.spark

#: The years 0001, 1582 and 1900 with one microsecond, by position. Shanghai was at +08:05:43.
MICROS = (-62_135_596_799_999_999, -12_219_292_800_000_001, -2_208_988_799_999_999)


def pipeline(bench: Bench, repaired: Path, **columns: Column) -> Pipeline:
    """Return a pipeline that refuses bad records, with more columns in its source."""
    source, write = bench.source().withColumns(columns), sink_to(bench.folder / "out")

    def sink(df: DataFrame, number: int) -> None:
        if "variant" in df.columns:
            df = df.withColumn("kind", F.schema_of_variant("variant")).drop("variant")
        write(df.withColumn("at", F.unix_micros("at")), number)

    return (
        define("lines", source, task="task", position="position")
        .process("check", refusing_bad(repaired), on_error=LogAndPause())
        .write(sink)
    )


@pytest.mark.long
def test_old_times_are_exact_after_a_mend_and_a_redrive(bench: Bench) -> None:
    repaired = bench.folder / "repaired"
    at = F.element_at(F.array(*map(F.lit, MICROS)), (F.col("position") + 1).cast("int"))
    with conf(bench.spark, {"spark.sql.session.timeZone": "Asia/Shanghai"}):
        thread = bench.start(pipeline(bench, repaired, at=F.timestamp_micros(at)))
        bench.add(("mended", 0, "bad"), *(("mended", position, "x") for position in (1, 2)))
        bench.add(*(("redriven", position, "bad") for position in range(3)))
        bench.wait_for_input()
        patch = json.dumps([{"op": "replace", "path": "/value", "value": "good"}])
        assert thread.apply(TaskCommand("mended", how=ResumeHow.MEND, patch=patch)).applied
        skip = TaskCommand("redriven", how=ResumeHow.AT, target=3, actor="ana", reason="later")
        assert thread.apply(skip).applied
        wait_until(lambda: len(bench.dead_letters()) == 3, what="dead letters")
        repaired.touch()
        assert thread.apply(command(bench)).applied
        wait_until(lambda: len(bench.written()) == 6, what="all records")
        bench.stop()
    found = {
        (row["task"], row["position"]): row["at"] for _, row in read_sink(bench.folder / "out")
    }
    assert found == {
        (task, position): micros
        for task in ("mended", "redriven")
        for position, micros in enumerate(MICROS)
    }


@pytest.mark.skipif(not hasattr(F, "parse_json"), reason="VARIANT is new in 4.0")
def test_a_variant_is_held_exactly_and_never_taken_from_json(bench: Bench) -> None:
    repaired = bench.folder / "repaired"
    value = F.expr(
        "CASE position WHEN 0 THEN CAST(NULL AS VARIANT) WHEN 1 THEN parse_json('null')"
        " ELSE to_variant_object(named_struct('day', DATE'1900-01-01')) END"
    )
    thread = bench.start(pipeline(bench, repaired, variant=value, at=F.lit(None).cast("timestamp")))
    bench.add(*(("a", position, "bad") for position in range(3)), ("b", 0, "bad"))
    bench.wait_for_input()
    mend = thread.apply(TaskCommand("a", how=ResumeHow.MEND, patch="[]"))
    assert (mend.applied, "variant variant cannot be read from JSON" in mend.reason) == (
        False,
        True,
    )
    thread.apply(TaskCommand("b", how=ResumeHow.SKIP, actor="ana", reason="lost"))
    wait_until(lambda: len(bench.dead_letters()) == 1, what="the dead letter")
    with pytest.raises(InvalidValue, match="variant variant"):
        redrive(thread, dead_letters(bench))
    repaired.touch()
    thread.apply(TaskCommand("a", how=ResumeHow.RETRY))
    wait_until(lambda: bench.positions("a") == [0, 1, 2], what="held rows")
    bench.stop()
    rows = [row for _, row in read_sink(bench.folder / "out")]
    assert [row.get("kind") for row in rows] == [None, "VOID", "OBJECT<day: DATE>"]


def test_text_that_is_no_utf8_is_held_exactly_and_never_taken_from_json(bench: Bench) -> None:
    text = F.expr("CAST(X'4772F6DF65' AS STRING)")
    write = sink_to(bench.folder / "out")
    pipeline = (
        define("lines", bench.source().withColumn("text", text), task="task", position="position")
        .columns("numbers", number=F.col("value").cast("int"), on_error=LogAndPause())
        .write(lambda df, number: write(df.withColumn("text", F.hex("text")), number))
    )
    thread = bench.start(pipeline)
    bench.add(("a", 0, "bad"), ("a", 1, "1"), ("b", 0, "bad"))
    bench.wait_for_input()
    value = [{"op": "replace", "path": "/value", "value": "0"}]
    mend = thread.apply(TaskCommand("a", how=ResumeHow.MEND, patch=json.dumps(value)))
    assert not mend.applied
    assert "text is not UTF-8" in mend.reason
    thread.apply(TaskCommand("b", how=ResumeHow.SKIP, actor="ana", reason="later"))
    wait_until(lambda: len(bench.dead_letters()) == 1, what="the dead letter")
    result = redrive(thread, mended(dead_letters(bench), "0"))
    assert (result.redriven, result.invalid) == (0, 1)
    assert result.examples[0].problem.startswith("text is not UTF-8")
    repair = [
        {"op": "remove", "path": "/__arrester_not_utf8"},
        {"op": "replace", "path": "/text", "value": "Größe"},
    ]
    patch = json.dumps([*value, *repair])
    assert thread.apply(TaskCommand("a", how=ResumeHow.MEND, patch=patch)).applied
    wait_until(lambda: bench.positions("a") == [0, 1], what="held rows")
    bench.stop()
    texts = [row["text"] for _, row in read_sink(bench.folder / "out")]
    assert texts == ["4772C3B6C39F65", "4772F6DF65"]
