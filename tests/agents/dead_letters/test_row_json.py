"""Source rows as JSON, and back: no value changes, and a field that is wrong is named."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.dead_letters.row_json import (
    PARSED_ROW,
    PROBLEM,
    as_json,
    unsupported_columns,
    with_parsed_rows,
)

pytestmark = pytest.mark.spark

#: One value of each kind, by the name of its column.
VALUES = {
    "moment": "timestamp'2024-03-10 01:59:59.123456'",
    "twice": "timestamp_micros(1730615400123456)",
    "early": "timestamp'1890-01-01 00:00:00.000001'",
    "local": "timestamp_ntz'2024-01-02 03:04:05.000001'",
    "date": "date'0001-01-01'",
    "bytes": "X'00FF10'",
    "no_number": "double('NaN')",
    "infinite": "float('-Infinity')",
    "double": "double(0.1) + double(0.2)",
    "decimal": "CAST(12345678901234567890.123456789012345678 AS decimal(38, 18))",
    "small": "tinyint(-128)",
    "large": "9223372036854775807L",
    "text": r"'a\"b\\c\n\u0000é😀'",
    "empty": "''",
    "nothing": "CAST(NULL AS int)",
    "map": "map('a', 1, 'b', NULL)",
    "array": "array(1, NULL)",
    "struct": "named_struct('x', 1, 'y', CAST(NULL AS string), 'z', "
    "array(named_struct('q', timestamp'2024-01-01 00:00:00.000001')))",
    "interval": "INTERVAL '1 02:03:04.000005' DAY TO SECOND",
}


@pytest.mark.smoke
def test_every_value_is_read_back_as_it_was(spark: SparkSession) -> None:
    columns = ", ".join(f"{value} AS {name}" for name, value in VALUES.items())
    rows = spark.sql(f"SELECT struct(*) AS row FROM (SELECT {columns})")
    kind = rows.schema["row"].dataType
    assert isinstance(kind, T.StructType)
    texts = rows.select("row", F.expr(as_json("row")).alias("json"))
    read = with_parsed_rows(texts, "json", kind)
    # As text: Python has no NaN that equals itself, and no microseconds before 1970.
    [found] = read.select(
        F.col(PROBLEM).alias("problem"),
        *[F.col(f"row.{name}").cast("string").alias(f"{name}_was") for name in VALUES],
        *[F.col(PARSED_ROW)[name].cast("string").alias(f"{name}_is") for name in VALUES],
    ).collect()
    assert found["problem"] is None
    was, now = ({name: found[f"{name}_{suffix}"] for name in VALUES} for suffix in ("was", "is"))
    assert now == was


COLUMNS = (
    "id INT, `a.b` STRING, place STRUCT<x: INT, stops: ARRAY<STRUCT<at: TIMESTAMP>>>, "
    "tags MAP<STRING, STRUCT<n: INT>>"
)
GOOD = (
    '{"id": 1, "a.b": "x", "place": {"x": 1, "stops": [{"at": "2024-01-01T00:00:00Z"}]}, '
    '"tags": {"t": {"n": 1}}}'
)


PROBLEMS = [
    (GOOD, None),
    ('{"id": null, "a.b": null, "place": null, "tags": null}', None),
    (None, "the row is NULL"),
    ("[1]", "the row is not a JSON object"),
    ("{", "the row is not a JSON object"),
    (GOOD.replace('"id": 1, ', ""), "id is missing"),
    (GOOD.replace('"a.b"', '"a.c"'), "a.b is missing, a.c is not a field of the source"),
    (GOOD.replace('"x": 1, ', ""), "place.x is missing"),
    (
        GOOD.replace('{"at"', '{"when"'),
        "place.stops.at is missing, place.stops.when is not a field of the source",
    ),
    (GOOD.replace('{"n": 1}', '{"n": 1, "m": 2}'), "tags.m is not a field of the source"),
    (GOOD.replace('"id": 1', '"id": "NA"'), "id is not int"),
    (GOOD.replace('"id": 1', '"id": 3000000000'), "id is not int"),
    (GOOD.replace("2024-01-01T", "someday"), "a nested value has another type"),
]


def test_a_wrong_field_is_named(spark: SparkSession) -> None:
    schema = spark.createDataFrame([], COLUMNS).schema
    rows = spark.createDataFrame([(text,) for text, _ in PROBLEMS], "json string").coalesce(1)
    found = with_parsed_rows(rows, "json", schema).collect()
    assert [(row["json"], row[PROBLEM]) for row in found] == PROBLEMS


def test_maps_without_text_keys_are_unsupported(spark: SparkSession) -> None:
    columns = "a INT, m MAP<INT, STRING>, s STRUCT<n: ARRAY<MAP<DATE, INT>>>"
    schema = spark.createDataFrame([], columns).schema
    assert [each.partition(" ")[0] for each in unsupported_columns(schema)] == ["m", "s"]
