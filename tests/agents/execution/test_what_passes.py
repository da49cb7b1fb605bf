"""Each row of docs/how-to/what-passes.md: Spark's result, and that the check fails the record."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from arrester.agents.batch.slow_path import evaluate
from arrester.agents.spark.jvm.plans.strict_json import strict_json
from arrester.agents.spark.jvm.plans.try_eval import guarded
from tests.agents.batch.static_batches import discard, failures, lines, pipeline_of
from tests.schema_registry_process import spark_avro
from tests.services import REPOSITORY

pytestmark = pytest.mark.spark

PAGE: Final = REPOSITORY / "docs" / "how-to" / "what-passes.md"
FILES: Final = "Files that are read with another type"
STRICT: Final = "`strict=True`, or "
SAME: Final = "the same"
#: A valid input for the step of each row: the check passes it.
VALID: Final = {
    "from_json(value, 'a INT')": '{"a":1}',
    "from_json(value, 'a INT NOT NULL')": '{"a":1}',
    "from_json(value, 'ARRAY<STRUCT<a: INT>>')": '[{"a":1}]',
    "from_json(value, 'a DATE')": '{"a":"2026-01-02"}',
    "from_json(value, 'a TIMESTAMP')": '{"a":"2026-01-02 12:30:00"}',
    "from_json(value, 'o STRUCT<a: INT>')": '{"o":{"a":1}}',
    "from_json(value, 'a DECIMAL(5, 2)')": '{"a":1.99}',
    "from_json(value, 'a DECIMAL(10, 2)')": '{"a":"1234.5"}',
    "from_json(value, 'a DOUBLE')": '{"a":0.1}',
    "from_json(value, 'a FLOAT')": '{"a":1.5}',
    "from_json(value, 'a STRING')": '{"a":"1.50"}',
    "get_json_object(value, '$.a')": '{"a":1}',
    "from_csv(value, 'a STRING, b INT')": '"a",2',
    "from_csv(value, 'a INT, b STRING')": '1,"x"',
    "from_csv(value, 'a INT NOT NULL, b INT')": "1,2",
    "from_csv(value, 'a DATE, b INT')": "2026-01-02,2",
    "from_csv(value, 'a TIMESTAMP, b INT')": "2026-01-02 12:30:00,2",
    "from_csv(value, 'a DECIMAL(5, 2), b INT')": "1.99,2",
    "from_csv(value, 'a DECIMAL(10, 2), b INT')": "1234.5,2",
    "from_csv(value, 'a DOUBLE, b INT')": "1.5,2",
    "from_xml(value, 'a INT')": " <r>\n<a>1</a>\n</r>\n",
    "from_xml(value, 't STRUCT<_VALUE: STRING, b: INT>')": "<r><t> <b>2</b>y</t></r>",
    "from_xml(value, 'a INT NOT NULL')": "<r><a>1</a></r>",
    "from_xml(value, 'a DECIMAL(5, 2)')": "<r><a>1.99</a></r>",
    "from_xml(value, 'a DOUBLE')": "<r><a>1.5</a></r>",
    "CAST(value AS DATE)": "'2026-01-02'",
    "CAST(value AS DECIMAL(5, 2))": "1.5",
    "CAST(value AS DOUBLE)": "2",
    "CAST(value AS FLOAT)": "16777216",
    "CAST(value AS INT)": "7",
    "CAST(value AS BOOLEAN)": "1",
    "CAST(value AS VARCHAR(3))": "'abc'",
    "CAST(value AS TIMESTAMP)": "1767312000",
    "CAST(value AS STRING)": "encode('é', 'UTF-8')",
    "to_utc_timestamp(value, 'Europe/Berlin')": "'2026-03-29 03:30:00'",
    "try_add(CAST(value AS DATE), 1)": "'2026-01-02'",
    "try_subtract(CAST(value AS TIMESTAMP), INTERVAL 1 DAY)": "'2026-01-02'",
    "try_divide(INTERVAL 1 DAY, CAST(value AS INT))": "'2'",
    "map('a', 1)[value]": "'a'",
    "unhex(value)": "'FF'",
    "unbase64(value)": "'YQ=='",
    "regexp_extract(value, '([0-9]+)', 1)": "'7'",
    "split_part(value, '-', 5)": "'a-b-c-d-e'",
    "sqrt(value)": "4",
    "power(10, value)": "2",
    "value * 10": "1.5D",
    "ln(value)": "1",
}
#: Sections whose inputs are SQL, and those whose inputs are the text itself.
OF_SQL: Final = ("Casts", "Functions")
OF_TEXT: Final = ("JSON", "CSV", "XML, from Spark 4.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of a table: input and valid input as SQL, the step, its result and the check."""

    input: str
    valid: str
    step: str
    #: As text; None if the page describes it in words.
    result: str | None
    check: str
    #: The step with the option of the check.
    checked_step: str
    needs: str
    #: strict=True of `.deserialize` is a check too.
    is_strict: bool


def table(heading: str) -> list[list[str]]:
    """Return the cells of a section's first table."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert lines
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def rows(heading: str) -> list[Row]:
    """Return the rows of a section, with the checks that are written as *the same*."""
    found: list[Row] = []
    for given, step_cell, result, check in table(heading):
        [step] = code(step_cell)
        row = Row(
            input=_as_sql(heading, code(given)[0] if code(given) else ""),
            valid=_as_sql(heading, VALID[step]),
            step=step,
            result=_lines(code(result)[0]) if code(result) else None,
            is_strict=found[-1].is_strict if check == SAME else check.startswith(STRICT),
            **_check(step, check.removeprefix(STRICT), found),
        )
        if row.input.startswith("'") and not row.valid.startswith("'"):
            row = replace(row, valid=f"'{row.valid}'")
        found.append(row)
    return found


def _as_sql(heading: str, text: str) -> str:
    quoted = text.replace("'", "\\'")
    return text if heading in OF_SQL else f"'{_lines(quoted)}'"


def _lines(text: str) -> str:
    return text.replace("⏎", "\n")


def _check(step: str, cell: str, before: list[Row]) -> dict[str, str]:
    """Return the check of a cell: a condition, or an option of the parser."""
    needs = "4.0" if "from Spark 4.0" in cell else "3.5"
    if cell == SAME:
        return {"check": before[-1].check, "checked_step": step, "needs": before[-1].needs}
    names = code(cell)
    if cell.startswith("the option"):
        option = f"map('{names[0]}', '{names[1]}')"
        return {"check": "true", "checked_step": f"{step[:-1]}, {option})", "needs": needs}
    return {"check": names[0], "checked_step": step, "needs": needs}


def over(number: int, expression: str) -> Column:
    """Return an expression over the columns of one row of the page."""
    return F.expr(re.sub(r"\b(value|made)\b(?!')", rf"\g<1>{number}", expression))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a step accepts an input, its result as text, and whether the check passes it."""

    accepted: bool
    result: str
    passed: bool


def outcomes(spark: SparkSession, given: list[tuple[str, str, str]]) -> list[Outcome]:
    """Return what becomes of inputs that pass through a step and a check, in one job."""
    count = range(len(given))
    is_row = F.col("id") >= 0
    values = [F.when(is_row, F.expr(each[0])).alias(f"value{n}") for n, each in enumerate(given)]
    # The optimizer does not see the values.
    frame = spark.range(1).select(*values).localCheckpoint()
    made = [guard(frame, n, given[n][1], [f"value{n}"]).alias(f"guard{n}") for n in count]
    frame = frame.select("*", *made)
    frame = frame.select("*", *[F.col(f"guard{n}.v").alias(f"made{n}") for n in count])
    checks = [guard(frame, n, given[n][2], [f"value{n}", f"made{n}"]) for n in count]
    found = [
        F.struct(
            F.col(f"guard{n}").isNotNull(),
            F.coalesce(F.col(f"made{n}").cast("string"), F.lit("NULL")),
            F.col(f"guard{n}").isNotNull() & F.coalesce(checks[n]["v"], F.lit(False)),
        ).alias(f"result{n}")
        for n in count
    ]
    [row] = frame.select(*found).collect()
    return [Outcome(*each) for each in row]


def guard(frame: DataFrame, number: int, expression: str, names: list[str]) -> Column:
    """Return a guarded expression over the columns of one row of the page."""
    return guarded(frame.select(*names), over(number, expression), unless=F.lit(False))


@pytest.mark.parametrize(
    "heading", [pytest.param("JSON", marks=pytest.mark.smoke), *OF_TEXT[1:], *OF_SQL]
)
def test_spark_accepts_the_record_and_the_check_fails_it(spark: SparkSession, heading: str) -> None:
    known = tuple(map(int, spark.version.split(".")[:2]))
    if heading.endswith("from Spark 4.0") and known < (4, 0):
        pytest.skip("Spark 3.5 has no from_xml")
    found = [row for row in rows(heading) if known >= (4, 0) or row.needs == "3.5"]
    bad = [(row.input, row.step, row.check) for row in found]
    good = [(row.valid, row.checked_step, row.check) for row in found]
    with_option = [(row.input, row.checked_step, "true") for row in found if row.check == "true"]
    given = outcomes(spark, bad + good + with_option)
    options = iter(given[2 * len(found) :])
    seen, wanted = [], []
    for row, before, valid in zip(found, given, given[len(found) :], strict=False):
        after = next(options) if row.check == "true" else before
        result = before.result if row.result is None else row.result
        seen.append((row, before.accepted, before.result, after.passed, valid.passed))
        wanted.append((row, True, result, False, True))
    assert seen == wanted


def test_strict_fails_the_records_of_its_rows(spark: SparkSession) -> None:
    found = [row for row in rows("JSON") if row.is_strict]
    assert len(found) > 5
    steps: dict[str, set[str]] = {}
    for row in found:
        steps.setdefault(row.step, set()).add(row.input)
    for step, bad in steps.items():
        inputs = [F.lit(VALID[step]), *map(F.expr, sorted(bad))]
        frame = spark.range(1).select(F.explode(F.array(*inputs)).alias("value"))
        strict = strict_json(frame, F.expr(step), named="strict")
        made = frame.select(guarded(frame, strict, unless=F.lit(False)).alias("made"))
        passed = [row.made is not None for row in made.collect()]
        assert (step, passed) == (step, [True, *[False] * len(bad)])


@pytest.mark.smoke
def test_files_give_these_values_for_another_type(spark: SparkSession, tmp_path: Path) -> None:
    stored = [(code(row[0])[0], code(row[1])[0], *row[2:]) for row in table(FILES)]
    for column, name in ((2, "parquet"), (3, "orc")):
        columns = [F.expr(row[0]).alias(f"c{number}") for number, row in enumerate(stored)]
        folder = str(tmp_path / name)
        spark.range(1).select(*columns).write.format(name).save(folder)
        for number, row in enumerate(stored):
            frame = spark.read.schema(f"c{number} {row[1]}").format(name).load(folder)
            try:
                [[found]] = frame.select(F.expr(f"CAST(c{number} AS STRING)")).collect()
            except Exception:
                assert (row, row[column]) == (row, "fails")
            else:
                assert (row, f"`{found or 'NULL'}`") == (row, row[column])


def test_the_example_of_the_page_fails_the_record_and_passes_others(spark: SparkSession) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    source = lines(spark, '{"a":1.99}', '{"a":1.999}', '{"a":"x"}')
    names: dict[str, Any] = {"F": F, "builder": pipeline_of(source)}
    exec(example, names)
    pipeline = names["builder"].write(discard)

    failed = failures(source, pipeline)

    assert {number: each.stage for number, each in failed.items()} == {
        1: "process:checks",
        2: "deserialize",
    }
    assert "the record fails the check CAST(get_json" in failed[1].problem.message
    [row] = evaluate(source, pipeline).passed(pipeline).collect()
    assert (row.position, str(row.made.a)) == (0, "1.99")


def test_characters_that_a_character_set_lacks_are_replaced_on_the_oldest_version(
    spark: SparkSession,
) -> None:
    step, check = (
        "encode(value, 'US-ASCII')",
        "decode(encode(value, 'US-ASCII'), 'US-ASCII') = value",
    )
    assert check in PAGE.read_text()
    bad, good = outcomes(spark, [("'é'", step, check), ("'e'", step, check)])
    assert bad.accepted == spark.version.startswith("3.")
    assert (bad.passed, good.passed) == (False, True)


def test_the_bytes_after_an_avro_record_are_dropped(spark: SparkSession) -> None:
    if not spark_avro():
        pytest.skip("spark-avro is not downloaded for this version of Spark")
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    frame = spark.createDataFrame([(b"\x02\x02x",), (b"\x02\x02xyz",)], "value binary").coalesce(1)
    made = from_avro("value", schema, {"mode": "FAILFAST"}).alias("made")
    checked = frame.select("value", made).select("made", to_avro("made", schema) == F.col("value"))
    assert [tuple(row) for row in checked.collect()] == [((1, "x"), True), ((1, "x"), False)]
    swapped = json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [{"name": "b", "type": "int"}, {"name": "a", "type": "string"}],
        }
    )
    [row, _] = frame.select(
        from_avro("value", swapped, {"mode": "FAILFAST"}).alias("made")
    ).collect()
    assert row.made.asDict() == {"b": 1, "a": "x"}
