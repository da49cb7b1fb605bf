"""Each function of Spark that can raise: a failed row changes no other row's value.

The calls are the examples of Spark's own documentation. Their arguments become columns, and rows
with other arguments fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.spark.jvm.plans.try_eval import VALUE, guarded
from arrester.domain.errors import InvalidValue

pytestmark = [pytest.mark.spark, pytest.mark.long]

#: The value of a call is other in each evaluation, or is that of another session.
VARYING = {"uuid", "shuffle", "rand", "random", "randn", "randstr", "uniform"}
#: Their result has the length of an argument, which may exceed the memory.
LONG = {"array_repeat", "format_number", "lpad", "repeat", "rpad", "sequence", "space"}
#: Other arguments, by the type of a good one.
OTHERS: dict[type[T.DataType], tuple[str, ...]] = {
    T.StringType: (
        "''",
        "'x'",
        "'a=1,a=2'",
        "'a:1,a:2'",
        "'{'",
        "'<a'",
        "'('",
        "'%'",
        "'99-99-9999'",
    ),
    T.IntegerType: ("0", "-1", "2147483647"),
    T.LongType: ("0", "-1", "9223372036854775807L"),
    T.DecimalType: ("0", "-1", "99999"),
    T.DoubleType: ("0D", "-1D", "double('NaN')", "1e300D"),
    T.BooleanType: ("false", "true"),
    T.BinaryType: ("X'FF'", "X''"),
    T.DateType: ("date'9999-12-31'",),
    T.TimestampType: ("timestamp'9999-12-31 00:00:00'",),
}
#: Calls that the examples lack.
MORE = (
    "format_number(12332.1, '##.#')",
    "map_from_entries(array(struct('a', '1'), struct('b', '2')))",
    "map_concat(map('a', '1'), map('b', '2'))",
    "map('id', '1', 'x', '2')",
    "to_xml(named_struct('a', 1, 'b', 2))",
    "transform_keys(map('1', 2, '2', 3), (k, v) -> cast(k as int))",
    "transform_values(map('1', '2'), (k, v) -> cast(v as int))",
    "map_filter(map('1', '2'), (k, v) -> cast(v as int) > 1)",
    "filter(array('1', '2'), x -> cast(x as int) > 1)",
    "aggregate(array('1', '2'), 0, (acc, x) -> acc + cast(x as int))",
    "zip_with(array('1'), array('2'), (x, y) -> cast(x as int) + cast(y as int))",
)


#: At least as many of the calls raise for some row.
RAISING = 80


@dataclass(frozen=True)
class Case:
    """A call whose arguments are columns, with rows of good and of bad arguments."""

    call: str
    text: str
    #: Arguments as SQL, the good ones first.
    rows: list[list[str]]

    def source(self, spark: SparkSession) -> DataFrame:
        """Return the rows, each in a partition of its own."""
        rows = [
            f"SELECT {at} AS row, "
            + ", ".join(f"{argument} AS a{n}" for n, argument in enumerate(arguments))
            for at, arguments in enumerate(self.rows)
        ]
        return spark.sql(" UNION ALL ".join(rows))

    def results(self, source: DataFrame) -> dict[int, str | None]:
        """Return the value of the call for each row as text, None if it raised."""
        attempt = guarded(source, F.expr(self.text), unless=F.lit(False))
        value = F.coalesce(attempt[VALUE].cast("string"), F.lit("NULL"))
        rows = source.select("row", F.when(attempt.isNotNull(), value).alias("text")).collect()
        return {row.row: row.text for row in rows}


def examples(spark: SparkSession) -> Iterator[str]:
    """Yield calls of all functions."""
    yield from MORE
    for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect():
        name = row.function
        if not name.isidentifier() or name in VARYING | LONG:
            continue
        described = spark.sql(f"DESCRIBE FUNCTION EXTENDED {name}").collect()
        text = "\n".join(each[0] for each in described)
        calls = re.findall(r"> SELECT (.+?);\s*$", text, re.M)
        own = (each for each in calls if each.startswith(f"{name}(") and "SELECT" not in each)
        yield from islice(own, 1)


def arguments_of(call: str) -> list[str]:
    """Return the arguments of a call as texts."""
    inside, depth, quote, found = call[call.index("(") + 1 : call.rindex(")")], 0, "", [""]
    for character in inside:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth == 0:
            found.append("")
            continue
        found[-1] += character
    return [each.strip() for each in found if each.strip()]


def others(argument: str, kind: T.DataType) -> list[str]:
    """Return other arguments of a type, with a NULL."""
    texts: list[str] = []
    if isinstance(kind, T.ArrayType):
        texts = [f"concat({argument}, {argument})", f"array_append({argument}, NULL)"]
        texts += [f"array({each})" for each in others("NULL", kind.elementType)]
    elif isinstance(kind, T.MapType):
        keys, values = others("NULL", kind.keyType)[:3], others("NULL", kind.valueType)[:4]
        texts = [f"map({key}, {value})" for key in keys for value in values]
        keys_of = f"map_keys({argument})"
        same = [f"transform({keys_of}, k -> {value})" for value in values]
        texts += [f"map_from_arrays({keys_of}, {each})" for each in same]
    else:
        for known, more in OTHERS.items():
            texts += more if isinstance(kind, known) else ()
    sql = kind.simpleString()
    return [*(f"try_cast({each} as {sql})" for each in texts), f"cast(NULL as {sql})"]


def is_analysed(spark: SparkSession, text: str, columns: str = "") -> bool:
    """Whether Spark accepts an expression over columns."""
    try:
        spark.sql(f"SELECT {columns or '1'}").selectExpr(text)
    except (PySparkException, Py4JJavaError):
        return False
    return True


def case_of(spark: SparkSession, call: str) -> Case | None:
    """Return the call with as many arguments as possible in columns, None if it has none."""
    arguments, name = arguments_of(call), call[: call.index("(")]
    if not is_analysed(spark, call):
        return None
    kinds = {
        n: spark.sql(f"SELECT {each}").schema[0].dataType
        for n, each in enumerate(arguments)
        if is_analysed(spark, each)
    }
    columns = list(kinds)
    while columns:
        fields = list(arguments)
        for at, n in enumerate(columns):
            fields[n] = f"a{at}"
        text = f"{name}({', '.join(fields)})"
        good = [f"cast({arguments[n]} as {kinds[n].simpleString()})" for n in columns]
        if is_analysed(spark, text, ", ".join(f"{a} AS a{n}" for n, a in enumerate(good))):
            break
        columns.pop()
    rows = [good] if columns else []
    for at, n in enumerate(columns):
        for other in others(arguments[n], kinds[n]):
            if is_analysed(spark, other):
                rows += [[*good[:at], other, *good[at + 1 :]], good]
    return Case(call=call, text=text, rows=rows) if columns else None


def test_a_failed_row_changes_no_other_row(spark: SparkSession) -> None:
    raising, different = [], {}
    for call in examples(spark):
        case = case_of(spark, call)
        try:
            alone = case.results(case.source(spark)) if case else {}
        except (PySparkException, InvalidValue):
            continue  # a generator
        if case is None or None not in alone.values():
            continue
        raising.append(call)
        together = case.results(case.source(spark).coalesce(1))
        if together != alone:
            different[case.text] = [
                (case.rows[at], alone[at], together[at])
                for at in alone
                if alone[at] != together[at]
            ]
    assert different == {}
    assert len(raising) > RAISING, raising
