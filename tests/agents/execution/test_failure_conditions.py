"""The classes and conditions of native functions in docs/reference/failure-classes.md."""

from __future__ import annotations

import re
from typing import Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.errors import Problem
from arrester.agents.spark.jvm.classes import class_object
from arrester.agents.spark.jvm.plans.catalyst import collected
from arrester.agents.spark.jvm.plans.native_evaluator import NativeEvaluator
from arrester.domain.error_policy.classify import DEFAULT_TABLE
from tests.services import REPOSITORY
from tests.test_failure_classes import rows

pytestmark = pytest.mark.spark

HEADING: Final = "Failed records of native steps"
POLICY: Final = "spark.sql.legacy.timeParserPolicy"
VERSIONS: Final = REPOSITORY / "docs" / "reference" / "versions.md"
#: For each name and condition of the page: values, as SQL, and an expression that fails for each.
EXAMPLES: Final = {
    "SparkNumberFormatException CAST_INVALID_INPUT": ("'x'", "CAST(value AS INT)"),
    "SparkDateTimeException CAST_INVALID_INPUT": ("'x'", "CAST(value AS DATE)"),
    "SparkDateTimeException CANNOT_PARSE_TIMESTAMP": ("'x'", "to_date(value, 'yyyy-MM-dd')"),
    "SparkDateTimeException DATETIME_FIELD_OUT_OF_BOUNDS": ("30", "make_date(2026, 2, value)"),
    "SparkDateTimeException INVALID_TIMEZONE": (
        "'x'",
        "from_utc_timestamp(TIMESTAMP'2026-01-02 00:00:00', value)",
    ),
    "SparkRuntimeException CAST_INVALID_INPUT": ("'x'", "CAST(value AS BOOLEAN)"),
    "SparkRuntimeException USER_RAISED_EXCEPTION": ("1", "assert_true(value > 1)"),
    "SparkRuntimeException MALFORMED_RECORD_IN_PARSING": (
        "'[{\"a\":1}]'",
        "from_json(value, 'a INT')",
    ),
    "SparkRuntimeException DUPLICATED_MAP_KEY": ("'a'", "map(value, 1, 'a', 2)"),
    "SparkRuntimeException NULL_MAP_KEY": ("'a'", "map(nullif(value, 'a'), 1)"),
    "SparkRuntimeException INVALID_INDEX_OF_ZERO": ("0", "element_at(array(1, 2), value)"),
    "SparkRuntimeException COLLECTION_SIZE_LIMIT_EXCEEDED": (
        "3000000000L",
        "sequence(1L, value)",
    ),
    "SparkRuntimeException INVALID_PARAMETER_VALUE": ("'('", "regexp_extract('a', value, 1)"),
    "SparkRuntimeException INVALID_REGEXP_REPLACE": ("'$9'", "regexp_replace('abc', 'a', value)"),
    "SparkRuntimeException MALFORMED_CHARACTER_CODING": ("X'FF'", "decode(value, 'UTF-8')"),
    "SparkRuntimeException INVALID_VARIANT_CAST": (
        '\'{"a":"x"}\'',
        "variant_get(parse_json(value), '$.a', 'int')",
    ),
    "SparkRuntimeException INVALID_VARIANT_GET_PATH": (
        "'a['",
        "variant_get(parse_json('{}'), value, 'int')",
    ),
    "SparkException MALFORMED_RECORD_IN_PARSING": ("'x'", "from_json(value, 'a INT')"),
    "SparkIllegalArgumentException INVALID_URL": ("'http://[x'", "parse_url(value, 'HOST')"),
    "SparkIllegalArgumentException CANNOT_DECODE_URL": ("'%zz'", "url_decode(value)"),
    "SparkIllegalArgumentException CONVERSION_INVALID_INPUT": (
        "'!!!'",
        "to_binary(value, 'base64')",
    ),
    "SparkIllegalArgumentException INVALID_FORMAT": ("'x'", "to_number(value, '999')"),
    "SparkIllegalArgumentException INVALID_INTERVAL_FORMAT": (
        "'x'",
        "CAST(value AS INTERVAL DAY TO SECOND)",
    ),
    "SparkIllegalArgumentException INVALID_UTF8_STRING": (
        "X'FF'",
        "validate_utf8(CAST(value AS STRING))",
    ),
    "SparkIllegalArgumentException ILLEGAL_DAY_OF_WEEK": (
        "'x'",
        "next_day(DATE'2026-01-02', value)",
    ),
    "SparkIllegalArgumentException INVALID_DATETIME_PATTERN": (
        "'QQQQQ'",
        "date_format(DATE'2026-01-02', value)",
    ),
    "SparkIllegalArgumentException INVALID_PARAMETER_VALUE": ("99", "bit_get(1, value)"),
    "SparkArithmeticException DIVIDE_BY_ZERO": ("0", "1 / value"),
    "SparkArithmeticException REMAINDER_BY_ZERO": ("0", "1 % value"),
    "SparkArithmeticException INTERVAL_DIVIDED_BY_ZERO": ("0", "INTERVAL 1 DAY / value"),
    "SparkArithmeticException ARITHMETIC_OVERFLOW": ("2147483647", "value + 1"),
    "SparkArithmeticException BINARY_ARITHMETIC_OVERFLOW": (
        "CAST(127 AS TINYINT)",
        "value + CAST(1 AS TINYINT)",
    ),
    "SparkArithmeticException CAST_OVERFLOW": ("3000000000L", "CAST(value AS INT)"),
    "SparkArithmeticException DATETIME_OVERFLOW": ("9999999999999L", "timestamp_seconds(value)"),
    "SparkArithmeticException INTERVAL_ARITHMETIC_OVERFLOW": (
        "2147483647",
        "make_ym_interval(value, 0)",
    ),
    "SparkArithmeticException NUMERIC_VALUE_OUT_OF_RANGE": (
        "9999",
        "CAST(value AS DECIMAL(3, 0))",
    ),
    "SparkArithmeticException NUMERIC_OUT_OF_SUPPORTED_RANGE": (
        "repeat('9', 40)",
        "CAST(value AS DECIMAL(38, 0))",
    ),
    "SparkArrayIndexOutOfBoundsException INVALID_ARRAY_INDEX": ("5", "array(1, 2)[value]"),
    "SparkArrayIndexOutOfBoundsException INVALID_ARRAY_INDEX_IN_ELEMENT_AT": (
        "5",
        "element_at(array(1, 2), value)",
    ),
    "IllegalArgumentException": ("0", "sequence(1, 5, value)"),
    "RuntimeException": ("'<a>'", "xpath(value, 'a')"),
    "ArithmeticException": ("9", "INTERVAL 106751991 DAY * value"),
    "TextParsingException": (
        "'\"a\"b,2'",
        "from_csv(value, 'a STRING, b INT', map('unescapedQuoteHandling', 'RAISE_ERROR'))",
    ),
}


def found_names(spark: SparkSession) -> dict[str, str]:
    """Return name and condition of the failure of each example that this version has."""
    examples = {
        name: example
        for name, example in EXAMPLES.items()
        if spark.version >= "4" or not re.search("parse_json|validate_utf8", example[1])
    }
    values = [F.expr(value).alias(f"value{n}") for n, (value, _) in enumerate(examples.values())]
    # The optimizer does not see the values.
    frame = spark.range(1).select(*values).localCheckpoint()
    rows_of_values = collected(frame)
    found = {}
    for number, (name, (_, expression)) in enumerate(examples.items()):
        made = F.expr(re.sub(r"\bvalue\b", f"value{number}", expression))
        [problem] = NativeEvaluator(frame, [{"made": made}]).problems(rows_of_values)
        found[name] = "" if problem is None else shown(problem)
    return found


def shown(problem: Problem) -> str:
    """Return the class of a problem without its package, and its condition without details."""
    name, condition = problem.exception_class.rpartition(".")[2], problem.condition or ""
    has_name = not condition.startswith("_LEGACY")
    return f"{name} {condition.partition('.')[0]}".strip() if has_name else name


def pairs(listed: list[list[list[str]]]) -> list[str]:
    """Return name and condition of the rows of a table; an empty name is that of the row before."""
    found, name = [], ""
    for cells in listed:
        name = cells[0][0] if cells[0] else name
        found += [f"{name} {condition}".strip() for condition in cells[1] or [""]]
    return found


def test_each_class_of_java_in_the_table_exists(spark: SparkSession) -> None:
    names = [name for name in DEFAULT_TABLE.classifications if name.startswith(("java.", "javax."))]
    assert names
    assert [name for name in names if class_object(spark._jvm, name) is None] == []


@pytest.mark.smoke
def test_each_name_of_the_page_is_that_of_an_expression(spark: SparkSession) -> None:
    own = {"InvalidFrame", "UnknownSchemaId", "LogicalTypeMismatch"}
    assert sorted(pairs(rows(HEADING))) == sorted([*own, *EXAMPLES])
    found = found_names(spark)
    differing = {name: other for name, other in found.items() if other != name}
    assert differing == older_names(spark.version)


def test_a_text_that_an_older_parser_reads_is_a_setting_on_the_oldest_version(
    spark: SparkSession,
) -> None:
    frame = spark.createDataFrame([("2026-1-2",)], "value string")

    def name() -> str:
        made = NativeEvaluator(frame, [{"made": F.expr("to_date(value, 'yyyy-MM-dd')")}])
        [problem] = made.problems(collected(frame))
        assert problem is not None
        return shown(problem)

    of_record = "SparkDateTimeException CANNOT_PARSE_TIMESTAMP"
    of_setting = "SparkUpgradeException INCONSISTENT_BEHAVIOR_CROSS_VERSION"
    assert name() == (of_record if spark.version >= "4" else of_setting)
    before = spark.conf.get(POLICY)
    spark.conf.set(POLICY, "CORRECTED")
    try:
        assert name() == of_record
    finally:
        spark.conf.set(POLICY, str(before))


def older_names(version: str) -> dict[str, str]:
    """Return the names on an older version that differ from those of the newest one."""
    table = VERSIONS.read_text().partition("| newest name |")[2].partition("\n\n")[0]
    found = {}
    for line in table.splitlines()[2:]:
        name, older, versions = line.strip("|").split("|")
        if version[:3] in versions:
            names = [" ".join(re.findall(r"`([^`]+)`", cell)) for cell in (name, older)]
            found[names[0]] = re.sub(r"^java\.[\w.]+\.", "", names[1])
    return found
