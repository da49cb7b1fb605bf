"""What a UDF of a transform gives for a value of another type than it declares."""

from __future__ import annotations

from datetime import date
from typing import Any, Final

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tests.agents.batch.static_batches import by_function
from tests.agents.pipeline_bench import SCHEMA
from tests.services import REPOSITORY

pytestmark = pytest.mark.spark

ARROW: Final = "spark.sql.execution.pythonUDF.arrow.enabled"
PAGE: Final = REPOSITORY / "docs" / "reference" / "versions.md"


def rows() -> list[tuple[Any, str, str, str]]:
    """Return the rows of the page: the returned value, the declared type, both results."""
    table = PAGE.read_text().partition("\n## UDFs\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")][2:]
    assert lines
    cells = [[cell.strip().strip("`") for cell in line] for line in lines]
    return [(eval(given, {"date": date}), *rest) for given, *rest in cells]


def udf_of(value: Any, declared: str, **more: Any) -> Column:
    return F.udf(lambda _: value, declared, **more)("id").cast("string")


def results(spark: SparkSession, *columns: Column) -> list[str]:
    names = [each.alias(f"c{number}") for number, each in enumerate(columns)]
    [row] = spark.range(1).select(*names).collect()
    return ["NULL" if each is None else each for each in row]


@pytest.mark.smoke
def test_a_udf_gives_the_values_of_the_page(spark: SparkSession) -> None:
    by_default = spark.version >= "4.2"
    passing = [row for row in rows() if not (by_default and row[3] == "fails")]
    found = results(spark, *[udf_of(*row[:2]) for row in passing])
    assert found == [row[3 if by_default else 2] for row in passing]
    for value, declared, *_, newer in rows() if by_default else []:
        if newer == "fails":
            with pytest.raises(Exception, match=r"Arrow|Assertion|Python"):
                results(spark, udf_of(value, declared))


def test_the_setting_and_the_argument_choose_the_older_or_newer_values(
    spark: SparkSession,
) -> None:
    older = [row[2] for row in rows()]
    assert results(spark, *[udf_of(*row[:2], useArrow=False) for row in rows()]) == older
    before = spark.conf.get(ARROW)
    spark.conf.set(ARROW, "false")
    try:
        assert results(spark, *[udf_of(*row[:2]) for row in rows()]) == older
    finally:
        spark.conf.set(ARROW, str(before))
    passing = [row for row in rows() if row[3] != "fails"]
    with_arrow = [udf_of(*row[:2], useArrow=True) for row in passing]
    assert results(spark, *with_arrow) == [row[3] for row in passing]
    if spark.version < "4.1":
        others = [udf_of(value, "INT", useArrow=True) for value in (True, 2**40, float("nan"))]
        assert results(spark, *others) == ["1", "0", "NULL"]


def test_a_process_step_checks_the_same_values(spark: SparkSession) -> None:
    names = {declared: f"c{number}" for number, (_, declared, *_) in enumerate(rows())}
    schema = ", ".join([SCHEMA, *(f"{name} {kind}" for kind, name in names.items())])
    nothing = dict.fromkeys(names.values())
    returned = [(value, names[declared]) for value, declared, *_ in rows()]

    def give(row: dict[str, Any]) -> dict[str, Any]:
        value, name = returned[row["position"]]
        return {**row, **nothing, name: value}

    failed = by_function(spark, give, *map(str, returned), schema=schema)

    assert {each.problem.exception_class for each in failed.values()} == {"WrongType"}
    # An integer is a DOUBLE.
    assert set(range(len(returned))) - set(failed) == {returned.index((1, names["DOUBLE"]))}
