"""A text that has a time without a date is no TIMESTAMP: it would be another one each day."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.handlers import LogAndContinue
from arrester.agents.spark.jvm.plans.failfast import failfast, names_in
from arrester.agents.spark.jvm.plans.try_eval import guarded
from arrester.domain.errors import InvalidValue
from tests.agents.pipeline_bench import Bench, sink_to

pytestmark = pytest.mark.spark

CASTS = (
    *("CAST(text AS TIMESTAMP)", "to_timestamp(text)", "to_utc_timestamp(text, 'Asia/Tokyo')"),
    *("hour(text)", "CAST(trim(text) AS TIMESTAMP)", "CAST(nested.text AS TIMESTAMP)"),
    "transform(array(text), each -> CAST(each AS TIMESTAMP))[0]",
)
DATED = (
    *("2026-01-02 12:30", "2026-1-2 1:30", "2026-01-02T12:30:01.5Z", "2026-01-02 00:00:00+01:00"),
    *("2026", "2026-01", "+2026-01-02", " 2026-01-02 12:30 ", None),
)
NOT_DATED = ("12:30", "1:3", "T12:30:01.5", " 12:30", "12:30:00 UTC", "12:30 -08:00")


@pytest.mark.smoke
def test_a_time_without_a_date_fails_and_others_are_as_before(spark: SparkSession) -> None:
    texts = [(text,) for text in (*DATED, *NOT_DATED)]
    frame = spark.createDataFrame(texts, "text string").coalesce(1)
    frame = frame.withColumn("nested", F.struct("text"))
    never, numbered = F.lit(False), list(enumerate(CASTS))
    guards = [guarded(frame, F.expr(cast), unless=never).alias(f"g{n}") for n, cast in numbered]
    plain = [F.when(F.col("is_dated"), F.expr(cast)).alias(f"p{n}") for n, cast in numbered]
    is_dated = F.coalesce(F.col("text").isin(*DATED[:-1]), F.lit(True)).alias("is_dated")
    rows = frame.select("text", is_dated, "nested", *guards).select("*", *plain).collect()
    for row in rows:
        for number, cast in numbered:
            guard = row[f"g{number}"]
            wanted = (row[f"p{number}"],) if row["is_dated"] else None
            assert (cast, row["text"], guard) == (cast, row["text"], wanted)


def test_a_format_of_the_author_and_try_casts_are_left_to_spark(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("12:30",)], "text string")
    of_format, tried = (
        guarded(frame, F.expr(each), unless=F.lit(False))
        for each in ("unix_timestamp(text, 'HH:mm')", "TRY_CAST(text AS TIMESTAMP)")
    )
    [row] = frame.select(of_format, tried).collect()
    assert (row[0][0], row[1][0]) == (12 * 3600 + 30 * 60, None)


def test_the_mark_is_added_once_and_is_no_name_of_the_author(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "text string")
    cast = F.expr("CAST(text AS TIMESTAMP)")
    once = failfast(frame, cast)
    assert str(once.sql()).count("no date: ") == 1
    assert names_in(frame, cast) == ("text",)


@pytest.mark.parametrize(
    "cast",
    [
        "CAST(array(text) AS ARRAY<TIMESTAMP>)",
        "CAST(map('key', text) AS MAP<STRING, TIMESTAMP>)",
        "CAST(struct(1 AS n, array(text) AS texts) AS STRUCT<n: INT, texts: ARRAY<TIMESTAMP>>)",
    ],
)
def test_a_cast_of_texts_inside_a_column_is_refused(spark: SparkSession, cast: str) -> None:
    frame = spark.createDataFrame([], "text string, at timestamp")
    with pytest.raises(InvalidValue, match=r"transform\(texts, text -> CAST"):
        failfast(frame, F.expr(cast))
    failfast(
        frame, F.expr("CAST(array(struct(text, at)) AS ARRAY<STRUCT<x: STRING, y: TIMESTAMP>>)")
    )
    failfast(frame, F.expr("CAST(array(text) AS ARRAY<TIMESTAMP_NTZ>)"))


def test_the_dead_letter_shows_the_text(bench: Bench) -> None:
    pipeline = (
        bench.define()
        .columns("made", at=F.expr("CAST(value AS TIMESTAMP)"), on_error=LogAndContinue())
        .write(sink_to(bench.folder / "out"))
    )
    bench.start(pipeline)
    bench.add(("a", 0, "2026-01-02 12:30"), ("a", 1, "12:30"))
    bench.wait_for_input()
    assert bench.written() == [("a", 0)]
    [dead_letter] = bench.dead_letters()
    assert dead_letter["condition"] == "CAST_INVALID_INPUT"
    assert "'no date: 12:30'" in dead_letter["message"]
