"""Source rows as JSON, and back: no value changes, and a field that is wrong is named."""

from __future__ import annotations

from functools import reduce

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.dead_letters.row_json import (
    PARSED_ROW,
    PROBLEM,
    row_as_json,
    unsupported_columns,
    with_parsed_rows,
)
from arrester.agents.spark.session_conf import conf

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
    "interval": "INTERVAL '-1 02:03:04.000005' DAY TO SECOND",
    "hours": "INTERVAL '26' HOUR",
    "months": "INTERVAL '-1-2' YEAR TO MONTH",
    "negative_zero": "-double(0)",
    "void": "NULL",
    "no_bytes": "X''",
    "no_fields": "named_struct()",
    "no_struct": "CAST(NULL AS struct<x: int>)",
    "names": r"named_struct('a.b', 1, 'c d', 2, 'q\"', 3)",
}


@pytest.mark.smoke
def test_every_value_is_read_back_as_it_was(spark: SparkSession) -> None:
    columns = ", ".join(f"{value} AS {name}" for name, value in VALUES.items())
    rows = spark.sql(f"SELECT struct(*) AS row FROM (SELECT {columns})")
    kind = rows.schema["row"].dataType
    assert isinstance(kind, T.StructType)
    texts = rows.select("row", F.expr(row_as_json("row", kind)).alias("json"))
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


#: In seconds: the years -9999 and 0001, the end of the Julian calendar, offsets with seconds until
#: 1883 and 1900, hours that are not there or are there twice, the years 9999 and 294246.
SECONDS = (
    *(-377_705_116_800, -62_135_596_801, -62_135_596_800, -12_219_292_801, -12_219_292_800),
    *(-2_717_668_236, -2_717_650_801, -2_208_988_800, -2_177_452_801, -1_000_000_000, -1, 0),
    *(1_710_054_000, 1_730_615_400, 1_325_203_200, 253_402_300_799, 253_402_300_800),
    9_223_286_400_000,
)
ZONES = (
    *("UTC", "Asia/Shanghai", "Africa/Monrovia", "Europe/Amsterdam", "America/New_York"),
    *("Pacific/Apia", "Asia/Kolkata", "Australia/Lord_Howe", "+05:45"),
)
TIMES = (
    "named_struct('at', at, 'local', CAST(at AS timestamp_ntz), 'day', CAST(at AS date), "
    "'nested', array(map('key', named_struct('at', at))))"
)


@pytest.mark.smoke
def test_times_of_any_zone_and_year_are_read_back_exactly(spark: SparkSession) -> None:
    micros = [(second * 1_000_000 + part,) for second in SECONDS for part in (0, 1, 999_999)]
    moments = spark.createDataFrame(micros, "micros long").coalesce(1)
    rows = moments.withColumn("at", F.timestamp_micros("micros")).select(F.expr(TIMES).alias("row"))
    kind = rows.schema["row"].dataType
    assert isinstance(kind, T.StructType)
    text, was, read = F.expr(row_as_json("row", kind)), F.col("row"), F.col(PARSED_ROW)
    is_same = [was[name].eqNullSafe(read[name]) for name in ("at", "local", "day")]
    nested = was["nested"][0]["key"]["at"] == read["nested"][0]["key"]["at"]
    policies = dict.fromkeys(ZONES, "CORRECTED") | {"LEGACY": "LEGACY"}
    for zone, policy in policies.items():
        settings = {
            "spark.sql.session.timeZone": ZONES[1] if zone == "LEGACY" else zone,
            "spark.sql.legacy.timeParserPolicy": policy,
        }
        with conf(spark, settings):
            parsed = with_parsed_rows(rows.withColumn("json", text), "json", kind)
            # The writer of Spark 2 knows no sign of a year, and has another calendar before 1583.
            tried = F.lit(policy == "CORRECTED") | F.year("row.at").between(1583, 9998)
            is_wrong = tried & ~reduce(Column.__and__, [*is_same, nested, F.col(PROBLEM).isNull()])
            wrong = [row["json"] for row in parsed.where(is_wrong).select("json").collect()]
        assert (zone, wrong) == (zone, [])


def test_times_that_an_earlier_release_has_written_are_read(spark: SparkSession) -> None:
    texts = [
        ("2024-01-02T05:04:05.000001+02:00",),
        ("1900-01-01T00:00:00.000000+08:05",),
        ("2024-01-02T03:04:05.000001Z",),
    ]
    rows = spark.createDataFrame(texts, "at string").select(F.to_json(F.struct("at")).alias("json"))
    schema = T.StructType([T.StructField("at", T.TimestampType())])
    read = with_parsed_rows(rows, "json", schema).select(PROBLEM, F.unix_micros(PARSED_ROW + ".at"))
    assert [tuple(row) for row in read.collect()] == [
        (None, 1_704_164_645_000_001),
        (None, -2_209_017_900_000_000),
        (None, 1_704_164_645_000_001),
    ]


#: Bytes as text, by position, and whether they are UTF-8.
BYTES = (
    *((b"Gr\xc3\xb6\xc3\x9fe", True), ("a\ufffdb".encode(), True), (b"", True), (None, True)),
    *((b"Gr\xf6\xdfe", False), (b"a\xffb", False), (b"\xed\xa0\x80", False), (b"\xc3", False)),
    *((b"\xc0\x80", False), (b"\xf0\x9f\x98", False), ("\ufffd".encode() + b"\xff", False)),
)
TEXTS = {
    "text": "text",
    "in a list": "array('x', text)",
    "in a `struct`": "named_struct('a.b', named_struct('c', text))",
    "in a map": "map('x', array(text))",
    "a key": "map(coalesce(text, 'x'), 1)",
    "in a list of lists": "array(array('x'), array('y', text))",
}


@pytest.mark.smoke
def test_text_that_is_no_utf8_is_named_and_not_read_back_as_other_text(
    spark: SparkSession,
) -> None:
    rows = spark.createDataFrame(
        [(position, text) for position, (text, _) in enumerate(BYTES)], "position INT, text BINARY"
    ).withColumn("text", F.col("text").cast("string"))
    for name, sql in TEXTS.items():
        named = rows.select("position", F.struct("position", F.expr(sql).alias(name)).alias("row"))
        kind = named.schema["row"].dataType
        assert isinstance(kind, T.StructType)
        texts = named.withColumn("json", F.expr(row_as_json("row", kind)))
        problem = with_parsed_rows(texts, "json", kind).select("position", "json", PROBLEM)
        problems = {row["position"]: row[PROBLEM] for row in problem.collect()}
        wanted = f"{name} is not UTF-8; give it another value, without the member"
        for position, (_, is_utf8) in enumerate(BYTES):
            found = problems[position]
            assert (found is None) if is_utf8 else found.startswith(wanted), (name, position, found)


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


def test_columns_that_json_changes_are_unsupported(spark: SparkSession) -> None:
    columns = "a INT, m MAP<INT, STRING>, s STRUCT<n: ARRAY<MAP<DATE, INT>>>"
    schema = spark.createDataFrame([], columns).schema
    assert [each.partition(" ")[0] for each in unsupported_columns(schema)] == ["m", "s"]
    for kind, *arguments in (("VariantType",), ("GeometryType", 4326), ("GeographyType", 4326)):
        if not hasattr(T, kind):  # new in 4.0 and in 4.1
            continue
        value = getattr(T, kind)(*arguments)
        nested = [
            value,
            T.ArrayType(value),
            T.MapType(T.StringType(), value),
            T.StructType().add("v", value),
        ]
        for each in nested:
            schema = T.StructType().add("v", each).add("n", T.IntegerType())
            assert [name.partition(" ")[0] for name in unsupported_columns(schema)] == ["v"]
