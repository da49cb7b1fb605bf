"""Error groups by the innermost cause, from failures of real steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.failures.fingerprints import failure_at
from arrester.agents.handlers import LogAndContinue
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.jvm.plans.catalyst import collected
from arrester.agents.spark.jvm.plans.native_evaluator import NativeEvaluator
from arrester.domain.events import Failure, FailuresCounted, RecordFailed, RecordsDeadLettered
from arrester.domain.failure_text import short, title
from tests.agents.batch.static_batches import by_function
from tests.agents.pipeline_bench import Bench, sink_to
from tests.test_failure_classes import rows

pytestmark = pytest.mark.spark

MALFORMED: Final = "MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION"
_JSON: Final = (
    "from_json(value, 'a INT, b INT, d DATE, n STRUCT<x: DOUBLE, b: BOOLEAN>, m MAP<STRING, STRUCT"
    "<y: INT>>, c DECIMAL(5, 2)')"
)
_CSV: Final = "from_csv(value, 'a INT, d DATE')"
_XML: Final = "from_xml(value, 'a INT, d DATE')"
#: For each cause on the page: texts, and the expression that fails for each.
EXAMPLES: Final = {
    "SparkRuntimeException CANNOT_PARSE_JSON_FIELD": (_JSON, ['{"a":"x"}', '{"a":[1]}']),
    "SparkRuntimeException INVALID_JSON_ROOT_FIELD": (_JSON, ["null"]),
    "SparkRuntimeException MALFORMED_CSV_RECORD": (_CSV, ["1", "1,2026-01-02,3"]),
    "SparkDateTimeException CAST_INVALID_INPUT": (_JSON, ['{"d":"x"}', '{"d":"2026-13-45"}']),
    "SparkArithmeticException NUMERIC_VALUE_OUT_OF_RANGE": (_JSON, ['{"c":1234.5}']),
    # The second has a DateTimeException as its cause.
    "DateTimeParseException": (_CSV, ["1,x", "1,2026-13-45"]),
    "NumberFormatException": (_CSV, ["x,2026-01-02", "NA,x"]),
    "InputCoercionException": (_JSON, ['{"a":3000000000}']),
    "CannotParseJSONFieldException": (_JSON, ["5", '"x"']),
    "JsonParseException": (_JSON, ["x", '{"a":\x01}']),
    "JsonEOFException": (_JSON, ['{"a":1', '{"a":']),
    "WstxUnexpectedCharException": (_XML, ["x"]),
    "WstxEOFException": (_XML, ["<r><a>1", ""]),
}


def problem(spark: SparkSession, expression: str, text: str) -> Problem:
    frame = spark.createDataFrame([(text,)], "value string")
    [found] = NativeEvaluator(frame, [{"made": F.expr(expression)}]).problems(collected(frame))
    assert found is not None, text
    return found


def failure(spark: SparkSession, expression: str, text: str) -> Failure:
    return failure_at("deserialize", problem(spark, expression, text))


def inner_names(failure: Failure) -> str:
    condition = (failure.inner_condition or "").partition(".")[0]
    return f"{short(failure.inner_class or '')} {condition}".strip()


def listed() -> list[str]:
    """Return name and condition of each row of the page's table."""
    found, name = [], ""
    for cells in rows("Causes of parse failures"):
        name = cells[0][0] if cells[0] else name
        found += [f"{name} {condition}".strip() for condition in cells[1] or [""]]
    return found


def test_each_cause_of_the_page_is_one_group(spark: SparkSession) -> None:
    assert sorted(listed()) == sorted(EXAMPLES)
    groups = {}
    for name, (expression, texts) in EXAMPLES.items():
        found = [failure(spark, expression, text) for text in texts]
        assert {inner_names(each) for each in found} == {name}
        assert {each.condition for each in found} == {MALFORMED}
        [groups[name]] = {each.fingerprint for each in found}
    assert len(set(groups.values())) == len(EXAMPLES)
    assert all(group.startswith("2-") for group in groups.values())


@pytest.mark.smoke
def test_fields_of_the_schema_divide_groups_and_names_of_a_record_do_not(
    spark: SparkSession,
) -> None:
    texts = {
        '{"a":"x"}': "a",
        '{"b":"x"}': "b",
        '{"n":{"b":1}}': "b",
        '{"n":{"x":"NA"}}': "x",
        '{"n":5}': "n",
        # A record that looks like a message about another field.
        """{"b":"field name 'a' and the value"}""": "b",
    }
    found = {text: failure(spark, _JSON, text) for text in texts}
    assert {text: each.field for text, each in found.items()} == texts
    assert {title(each).partition(":")[0] for each in found.values()} == {
        "JSON value of another type"
    }
    assert len({each.fingerprint for each in found.values()}) == 4
    keys = [failure(spark, _JSON, f'{{"m":{{"{key}":5}}}}') for key in ("k1", "k2", "customer 3")]
    assert {each.field for each in keys} == {None}
    assert len({each.fingerprint for each in keys}) == 1


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        ("CAST(value AS INT)", ["x", "1.5"]),
        ("to_date(value, 'yyyy-MM-dd')", ["x", "2026-13-45"]),
        ("1 / CAST(value AS INT)", ["0"]),
        ("CAST(value AS INT) + 1", ["2147483647"]),
        ("assert_true(value = 'x')", ["y"]),
    ],
)
def test_a_failure_with_its_own_reason_stays_in_its_group(
    spark: SparkSession, expression: str, texts: list[str]
) -> None:
    found = [failure(spark, expression, text) for text in texts]
    assert {(each.inner_class, each.field) for each in found} == {(None, None)}
    [group] = {each.fingerprint for each in found}
    assert group.startswith("1-")


def test_an_exception_of_python_is_identified_by_its_frame(spark: SparkSession) -> None:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"number": int(row["value"])}
        except ValueError as exc:
            raise RuntimeError(f"no number: {row['value']}") from exc

    found = by_function(spark, check, "x", "y", schema="number INT")
    problems = [each.problem for each in found.values()]
    assert {(each.exception_class, each.inner_class) for each in problems} == {
        ("RuntimeError", None)
    }
    [group] = {failure_at("process:step", each).fingerprint for each in problems}
    assert group.startswith("1-") and all("in check" in str(each.frame) for each in problems)


def test_a_wrong_date_and_cut_json_are_two_groups_of_a_run(bench: Bench, tmp_path: Path) -> None:
    texts = ['{"d":"2026-01-02"}', '{"d":"x"}', '{"d":']
    bench.add(*[("a", n, texts[n % 3]) for n in range(60)])
    pipeline = (
        bench.define()
        .deserialize("day", F.from_json("value", "d DATE"), on_error=LogAndContinue())
        .write(sink_to(bench.folder / "out"))
    )
    bench.start(pipeline, errors_examples_limit=10)
    bench.wait_for_input()
    bench.stop()

    failed = [each.failure for each in bench.outbox.of(RecordFailed)]
    groups = {each.fingerprint: inner_names(each) for each in failed}
    assert sorted(groups.values()) == [
        "JsonEOFException",
        "SparkDateTimeException CAST_INVALID_INPUT",
    ]
    assert {each.failure.fingerprint for each in bench.outbox.of(FailuresCounted)} == set(groups)
    written = [each.records for each in bench.outbox.of(RecordsDeadLettered)]
    assert {name for each in written if each for name in each.fingerprints} == set(groups)
