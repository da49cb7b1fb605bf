"""`strict=True` of `.deserialize`: what Spark's `from_json` accepts in silence is a failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.definition.pipeline import PipelineInvalid
from arrester.agents.schema_registry.registry import SchemaFolder
from arrester.domain.errors import InvalidValue
from tests.agents.execution.test_isolated_rows import in_order, pipeline_of, results

pytestmark = pytest.mark.spark

SCHEMA = (
    T.StructType()
    .add("a", "integer", nullable=False)
    .add("day", "date")
    .add("time", "timestamp")
    .add("local", "timestamp_ntz")
    .add("s.t", T.StructType().add("b", "integer", nullable=False))
    .add("list", T.ArrayType(T.IntegerType(), containsNull=False))
    .add("map", T.MapType(T.StringType(), T.StructType().add("b", "integer", nullable=False)))
)
#: Texts, with the failure's condition and a part of its message.
ONE_DOCUMENT = {
    '{"a":1} {"a":2}': "MALFORMED_RECORD_IN_PARSING",
    '{"a":1},{"a":2}': "MALFORMED_RECORD_IN_PARSING",
    '{"a":1},null]{"a":2}': "MALFORMED_RECORD_IN_PARSING",
    '{"a":1},"x":{}': "exactly one JSON document",
    '{"a":1},"x":null} {"a":2}': "exactly one JSON document",
    '{"a":1}\n{"a":2}': "MALFORMED_RECORD_IN_PARSING",
    '{"a":1} x': "MALFORMED_RECORD_IN_PARSING",
    '{"a":1},': "MALFORMED_RECORD_IN_PARSING",
    '{"a":1}]': "MALFORMED_RECORD_IN_PARSING",
    '{"a":1}]}': "MALFORMED_RECORD_IN_PARSING",
    '{"a":1}}': "exactly one JSON document",
    '{"a":1}} x': "exactly one JSON document",
    "": "MALFORMED_RECORD_IN_PARSING",
    " ": "MALFORMED_RECORD_IN_PARSING",
    "null": "exactly one JSON document",
    '[{"a":1}]': "MALFORMED_RECORD_IN_PARSING",
}
REQUIRED = {
    "{}": "a",
    '{"a":null}': "a",
    '{"a":1,"s.t":{}}': "s.t.b",
    '{"a":1,"list":[1,null]}': "list[]",
    '{"a":1,"map":{"x":{"b":1},"y":{}}}': "map{}.b",
}
TIMES = tuple(
    f'{{"a":1,"{name}":"{text}"}}'
    for name, texts in {
        "day": ("20260101", "2026-01-02 abc", "2026-01-02T00:00:00", "2026"),
        "time": ("20260101", "12:30", "2026", "2026-01-02", "2026-01-02T03:04:05Z abc"),
        "local": ("2026-01-02T03:04:05Z", "12:30"),
    }.items()
    for text in texts
)
RIGHT = {
    '{"a":1}': {"a": 1},
    ' {"a":1}\n': {"a": 1},
    '{"a":1,"s.t":null,"list":null,"map":null}': {"a": 1},
    '{"a":1,"s.t":{"b":2},"list":[],"map":{"x":{"b":3}}}': {
        "a": 1,
        "s.t": {"b": 2},
        "list": [],
        "map": {"x": {"b": 3}},
    },
    '{"a":1,"day":"2026-01-02"}': {"a": 1, "day": "2026-01-02"},
    **{
        f'{{"a":1,"time":"{text}"}}': {"a": 1, "time": "2026-01-02T03:04:05.000Z"}
        for text in (
            "2026-01-02T03:04:05Z",
            "2026-01-02T04:04:05.000+01:00",
            "2026-01-02 04:04:05.000000+0100",
            "2026-01-02 03:04:05.000000000",
        )
    },
    '{"a":1,"time":"2026-01-02T03:04Z"}': {"a": 1, "time": "2026-01-02T03:04:00.000Z"},
    '{"a":1,"local":"2026-01-02T03:04:05.5"}': {"a": 1, "local": "2026-01-02T03:04:05.500"},
}


@pytest.mark.smoke
def test_the_text_is_one_document_with_its_required_fields(spark: SparkSession) -> None:
    failing = [*ONE_DOCUMENT, *REQUIRED, *TIMES]
    source = in_order(spark, *failing, *RIGHT)
    builder = pipeline_of(source).deserialize("v", F.from_json("value", SCHEMA), strict=True)

    passed, failed = results(source, builder.columns("text", json=F.to_json("v")), "json")

    assert {text: json.loads(value) for text, value in passed.items()} == RIGHT
    assert [failing[position] for position in sorted(failed)] == failing
    problems = {failing[position]: each.problem for position, each in failed.items()}
    for text, part in ONE_DOCUMENT.items():
        assert part in f"{problems[text].condition} {problems[text].message}", text
    for text in TIMES:
        assert str(problems[text].condition).startswith("MALFORMED_RECORD_IN_PARSING"), text
    for text, path in REQUIRED.items():
        assert problems[text].message.count(f"required field {path} has no value"), text


def test_null_stays_null(spark: SparkSession) -> None:
    source = in_order(spark, None)
    builder = pipeline_of(source).deserialize("v", F.from_json("value", SCHEMA), strict=True)

    passed, failed = results(source, builder, "v")

    assert list(passed.values()) == [None]
    assert failed == {}


@pytest.mark.parametrize(
    ("expression", "good", "bad"),
    [
        pytest.param("from_json(value, 'ARRAY<INT>')", "[1]", "[1] [2]", id="array"),
        pytest.param("from_json(value, 'MAP<STRING, INT>')", '{"b":1}', '{"b":1} x', id="map"),
        pytest.param(
            "from_json(value, 'a INT', map('allowComments', 'true'))",
            '{"a":1} // one',
            '{"a":1} // one\n{"a":2}',
            id="options",
        ),
        pytest.param(
            "from_json(concat(value, '}'), 'a INT')['a'] + 1",
            '{"a":1',
            '{"a":1}',
            id="part of an expression",
        ),
        pytest.param(
            "from_json(value, 'day DATE', map('enableDateTimeParsingFallback', 'false'))",
            '{"day":"2026-1-2"}',
            '{"day":"20260101"}',
            id="lenient times",
        ),
        pytest.param(
            "from_json(value, 'day DATE', map('dateFormat', 'yyyyMMdd'))",
            '{"day":"20260101"}',
            '{"day":"2026-01-01"}',
            id="format",
        ),
    ],
)
def test_any_type_and_option(spark: SparkSession, expression: str, good: str, bad: str) -> None:
    source = in_order(spark, bad, good, bad)
    parsed = F.expr(expression)

    passed, failed = results(source, pipeline_of(source).deserialize("v", parsed, strict=True), "v")

    assert passed == {good: in_order(spark, good).select(parsed).collect()[0][0]}
    assert set(failed) == {0, 2}


def test_other_expressions_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    builder = pipeline_of(in_order(spark, "1"))

    with pytest.raises(InvalidValue, match="from_json, if strict=True"):
        builder.deserialize("v", F.from_csv("value", "a INT"), strict=True)
    with pytest.raises(PipelineInvalid, match=r"deserialize 'v': strict=True is for from_json"):
        builder.deserialize("v", SchemaFolder(tmp_path).avro("value"), strict=True)
    with pytest.raises(PipelineInvalid, match=r"deserialize 'v': .*AMBIGUOUS_REFERENCE"):
        builder.deserialize("v", F.from_json("value", "a INT NOT NULL, A INT"), strict=True)
    with pytest.raises(InvalidValue, match="strict"):
        builder.deserialize("v", F.from_json("value", "a INT"), strict="yes")  # type: ignore[arg-type]
