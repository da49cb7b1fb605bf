"""Python steps: each exception or invalid result fails its record, and no other one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.batch.fast_path import FastPath
from arrester.agents.batch.slow_path import evaluate
from arrester.agents.failures.payload import Redaction
from arrester.agents.spark.session_conf import conf
from arrester.domain.error_policy.policy import Policy
from arrester.domain.errors import InvalidValue
from tests.agents.batch.static_batches import by_function, discard, failures, lines, pipeline_of

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def test_a_float_for_a_long_is_a_failure_that_names_field_and_type(spark: SparkSession) -> None:
    def half(row: Row) -> Row:
        return {"n": 1.5 if row["value"] == "half" else 1}

    [failed] = by_function(spark, half, "half", "whole", schema="n BIGINT").values()

    assert failed.problem.exception_class == "WrongType"
    assert failed.problem.message == "field n is bigint; got float 1.5"
    assert str(failed.problem.frame).endswith("in half")


def test_a_float_that_would_become_infinite_is_a_failure(spark: SparkSession) -> None:
    """Arrow silently turns it into infinity in a FLOAT column."""

    def wide(row: Row) -> Row:
        return {"n": float(row["value"])}

    failed = by_function(spark, wide, "1e300", "1e3", "-inf", schema="n FLOAT")

    assert [failed[0].problem.message, len(failed)] == ["field n: 1e+300 does not fit float", 1]


def test_a_spark_row_instead_of_a_dict_is_refused_with_advice(spark: SparkSession) -> None:
    def typed(row: Row) -> Any:
        return SparkRow(**row)

    [failed] = by_function(spark, typed, "x").values()

    assert str(failed.problem.message).endswith(": row.asDict(recursive=True) is one")


@pytest.mark.parametrize(
    ("zone", "first", "last"),
    [("Europe/Berlin", -62_135_600_008, 253_402_297_199), ("-05:00", None, 253_402_318_799)],
)
def test_a_step_gets_the_first_and_the_last_time_of_python(
    spark: SparkSession, zone: str, first: int | None, last: int
) -> None:
    """The year 0 and the year 10000 in UTC are the years 1 and 9999 in the zone."""

    def seen(row: Row) -> Row:
        return {"at": row["at"], "text": row["at"] and str(row["at"].replace(tzinfo=None))}

    with conf(spark, {"spark.sql.session.timeZone": zone}):
        at = F.timestamp_seconds(F.when(F.col("position") == 0, first).otherwise(last))
        source = lines(spark, "first", "last").withColumn("at", at)
        step = pipeline_of(source).process("seen", seen, schema="at TIMESTAMP, text STRING")
        pipeline = step.write_files("nowhere")
        evaluated = evaluate(source, pipeline)
        frame = evaluated.passed(pipeline).select("text", F.unix_seconds("at").alias("at"))
        found = {(row.text, row.at) for row in frame.collect()}
        evaluated.release()
    of_first = "0001-01-01 00:00:00" if first else None
    assert found == {(of_first, first), ("9999-12-31 23:59:59", last)}


@pytest.mark.parametrize(
    ("zone", "hour"), [("UTC+01:00", 13), ("GMT+2", 14), ("Z", 12), ("PST", 4), ("-09:30", 2)]
)
def test_a_step_gets_right_times_in_any_zone_of_java(
    spark: SparkSession, zone: str, hour: int
) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def hours(row: Row) -> Row:
        times = [row["at"], row["nested"]["times"][0], dict(row["nested"]["by_name"])["a"]]
        return {
            "hours": [time.hour for time in times],
            "at": row["at"],
            "same": set(times) == {noon},
        }

    with conf(spark, {"spark.sql.session.timeZone": zone}):
        at = F.timestamp_micros(F.lit(int(noon.timestamp()) * 1_000_000))
        nested = F.struct(F.array(at).alias("times"), F.create_map(F.lit("a"), at).alias("by_name"))
        source = lines(spark, "x").withColumns({"at": at, "nested": nested})
        pipeline = (
            pipeline_of(source)
            .process("hours", hours, schema="hours ARRAY<INT>, at TIMESTAMP, same BOOLEAN")
            .write_files("nowhere")
        )
        fast_path = FastPath.of(pipeline, Policy())
        assert fast_path is not None
        evaluated = evaluate(source, pipeline)
        for frame in (fast_path.frame(source), evaluated.passed(pipeline)):
            [row] = frame.select("hours", "same", F.unix_seconds("at").alias("at")).collect()
            assert row.asDict() == {"hours": [hour] * 3, "same": True, "at": noon.timestamp()}
        evaluated.release()


def test_a_zone_that_python_lacks_is_refused_by_its_setting(spark: SparkSession) -> None:
    with (
        conf(spark, {"spark.sql.session.timeZone": "+01:02:03"}),
        pytest.raises(
            InvalidValue, match=r"spark.sql.session.timeZone: '\+01:02:03' is not allowed"
        ),
    ):
        pipeline_of(lines(spark, "x")).process("same", lambda row: row)


def test_any_exception_of_a_step_fails_its_record_only(spark: SparkSession) -> None:
    def raising(row: Row) -> Any:
        class Unpicklable(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

            def __reduce__(self) -> Any:
                raise TypeError("never")

        def deeper(n: int) -> int:
            return deeper(n + 1) + 1

        match row["value"]:
            case "exit":
                raise SystemExit(1)
            case "interrupt":
                raise KeyboardInterrupt
            case "close":
                raise GeneratorExit
            case "unpicklable":
                raise Unpicklable
            case "deep":
                deeper(0)
            case "text":
                return "text"
            case "list":
                return [1]
            case "extra":
                return {**row, "extra": 1}
            case "less":
                del row["task"]
            case "generator":
                return ({**row, "position": 1 // n} for n in (1, 0))
        return row

    kinds = ["exit", "ok", "interrupt", "close", "unpicklable", "deep", "text", "list", "extra"]
    failed = by_function(spark, raising, *kinds, "less", "generator", "ok")

    assert {position: each.problem.exception_class for position, each in failed.items()} == {
        0: "SystemExit",
        2: "KeyboardInterrupt",
        3: "GeneratorExit",
        4: failed[4].problem.exception_class,
        5: "RecursionError",
        6: "WrongType",
        7: "WrongType",
        8: "WrongType",
        9: "WrongType",
        10: "ZeroDivisionError",
    }
    assert failed[4].problem.message == "(no text: its __str__ raised RuntimeError)"
    assert failed[8].problem.message == "field extra is not in the schema; add it by schema="
    assert failed[0].row.value == "exit"


def test_a_value_that_python_cannot_represent_fails_its_record(spark: SparkSession) -> None:
    """Latin-1 bytes as text, and times that Python does not have."""
    source = lines(spark, "fine", "latin", "date", "time", "array", "held").selectExpr(
        "*",
        "if(value IN ('latin', 'held'), cast(x'C4' as string), 'text') as text",
        "if(value = 'date', date'9999-12-31' + 1, date'2026-01-02') as d",
        "if(value = 'time', timestamp_micros(300000000000000000), now()) as t",
        "if(value = 'array', array(date'9999-12-31' + 2), array()) as ds",
    )
    pipeline = pipeline_of(source).process("step", lambda row: row).write(discard)

    failed = failures(source, pipeline)

    assert set(failed) == {1, 2, 3, 4, 5}
    assert {each.problem.exception_class for each in failed.values()} == {"Unreadable"}
    assert {each.stage for each in failed.values()} == {"process:step"}
    columns = {position: each.problem.message.split(" (")[0] for position, each in failed.items()}
    assert columns == {
        1: "column text",
        2: "column d",
        3: "column t",
        4: "column ds",
        5: "column text",
    }
    assert failed[1].row.text == "\ufffd"
    assert failed[2].row.d == "+10000-01-01"
    assert failed[4].row.ds == ["+10000-01-02"]
    Redaction().body(failed[3].row.asDict(), stack=None)
    evaluated = evaluate(source, pipeline)
    assert [row.value for row in evaluated.passed(pipeline).collect()] == ["fine"]


def test_records_that_are_not_evaluated_are_not_read(spark: SparkSession) -> None:
    source = lines(spark, "fine", "held").selectExpr(
        "value as task", "position", "if(value = 'held', cast(x'C4' as string), value) as value"
    )
    pipeline = pipeline_of(source).process("step", lambda row: row).write(discard)

    evaluated = evaluate(source, pipeline, blocked=["held"])

    assert (evaluated.failed, evaluated.held) == (0, 1)


def test_reported_texts_of_a_failure_are_valid_unicode(spark: SparkSession) -> None:
    def raising(row: Row) -> Any:
        class Shy:
            def __repr__(self) -> str:
                raise RuntimeError("no text")

        match row["value"]:
            case "raised":
                raise ValueError("half \udc80")
            case "pairs":
                return {"n": [1], "text": ""}
            case "shy":
                return {"n": Shy(), "text": ""}
            case "listed":
                return [Shy()]
            case "returned":
                return {"n": {}, "text": "\udc80"}
            case "field":
                return {"n": {}, "text": "", "\udc80": 1}
        return {"n": [("a", 1)], "text": "x"}

    kinds = ["raised", "pairs", "shy", "listed", "returned", "field", "fine"]
    failed = by_function(spark, raising, *kinds, schema="n MAP<STRING, INT>, text STRING")

    assert set(failed) == {0, 1, 2, 3, 4, 5}
    assert failed[0].problem.message == "half ?"
    assert "ValueError: half ?" in str(failed[0].problem.stack)
    assert failed[1].problem.message == "field n is map<string,int>, of pairs; got int 1"
    assert "its __repr__ raised RuntimeError" in failed[2].problem.message
    assert "its __repr__ raised RuntimeError" in failed[3].problem.message
    assert failed[4].problem.message.startswith("field text is string: ")
    assert {each.problem.exception_class for each in list(failed.values())[1:]} == {"WrongType"}


def test_values_of_all_types_pass_a_step_unchanged(spark: SparkSession) -> None:
    source = lines(spark, "1", "2").selectExpr(
        "*",
        "timestamp'2026-01-02 03:04:05.678901' as t",
        "timestamp_ntz'2026-01-02 03:04:05' as n",
        "date'2026-01-02' as d",
        "cast(value as decimal(10, 3)) as m",
        "array(1, null) as xs",
        "map('a', named_struct('b', 1.5d)) as ms",
        "cast(value as binary) as b",
        "cast(1.25 as float) as f",
    )
    pipeline = pipeline_of(source).process("same", lambda row: row).write(discard)

    evaluated = evaluate(source, pipeline)

    assert evaluated.failed == 0
    key = "position"
    assert evaluated.passed(pipeline).orderBy(key).collect() == source.orderBy(key).collect()
