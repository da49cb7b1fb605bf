"""Constraints of a table as conditions of rows: one job finds all rows that they refuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.spark.frames.column_names import in_quotes

#: The columns of refused rows with the reason.
EXCEPTION_CLASS: Final = "__arrester_exception_class"
CONDITION: Final = "__arrester_condition"
MESSAGE: Final = "__arrester_message"
REASON: Final = (EXCEPTION_CLASS, CONDITION, MESSAGE)
_FOUND: Final = "__arrester_refused"


class Constraint(NamedTuple):
    """A constraint of a table: the error of a row that it refuses, and the condition of such rows.

    `refuses` is an expression of Spark SQL.
    """

    exception_class: str
    condition: str
    message: str
    refuses: str

    def found(self) -> Column:
        """Return the reason where the constraint refuses a row, else NULL."""
        texts = (self.exception_class, self.condition, self.message)
        reason = [F.lit(text).alias(name) for name, text in zip(REASON, texts, strict=True)]
        return F.when(F.expr(self.refuses), F.struct(*reason))


def refused_rows(
    rows: DataFrame, table: T.StructType, constraints: Iterable[Constraint]
) -> DataFrame:
    """Return the rows that a constraint refuses, with the columns REASON.

    Columns of the table that the rows lack are NULL.
    """
    names = {name.lower() for name in rows.columns}
    missing = [each for each in table if each.name.lower() not in names]
    complete = rows.select("*", *[F.lit(None).cast(c.dataType).alias(c.name) for c in missing])
    found = F.coalesce(F.lit(None), *[each.found() for each in constraints])
    reason = [F.col(_FOUND)[name].alias(name) for name in REASON]
    refused = complete.withColumn(_FOUND, found).where(F.col(_FOUND).isNotNull())
    return refused.select(*rows.columns, *reason)


def refused_nulls(
    table: T.StructType, filled_in: Iterable[str] = (), path: str = "", present: str = "true"
) -> Iterator[tuple[str, str]]:
    """Yield the columns that are NOT NULL, also of structs, and the condition of their NULLs.

    The store fills in columns with one of the keys `filled_in` in their metadata.
    """
    for column in table:
        name = f"{path}{in_quotes(column.name)}"
        if not column.nullable and not any(each in column.metadata for each in filled_in):
            yield name, f"{present} AND {name} IS NULL"
        if isinstance(column.dataType, T.StructType):
            present_here = f"{present} AND {name} IS NOT NULL"
            yield from refused_nulls(column.dataType, filled_in, f"{name}.", present_here)
