"""Collect some rows of a plan on the driver while a job writes the others.

Unlike `DataFrame.observe`, this takes no time for rows that are not collected. The rows stay rows
of the JVM, so that no conversion changes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.plans.accumulators import (
    COLLECTION,
    LONG,
    added,
    invoked,
    object_type,
    registered,
    setters,
)
from arrester.agents.spark.jvm.plans.catalyst import analysed_plan, as_column, as_expression
from arrester.agents.spark.jvm.stored_rows import on_driver

_ROW: Final = "org.apache.spark.sql.catalyst.InternalRow"
#: What a row takes besides its texts.
_ROW_BYTES: Final = 100


class RowCollector:
    """Collects rows of one job after the other, up to a number and a size.

    One object serves all jobs: `begin` forgets the rows of the last one. Spark takes the rows of a
    task once, also if it repeated the task or ran it twice. If a shuffle follows in the plan, a
    repeated stage adds its rows again.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self._sizes, self._rows = (
            registered(spark, kind, name=None, counts_failed_tasks=False)
            for kind in (LONG, COLLECTION)
        )

    def begin(self) -> None:
        """Forget the rows of the last job."""
        self._sizes.reset()
        self._rows.reset()

    def is_left(
        self, collected: Column, columns: Mapping[str, Column], *, rows: int, size: int
    ) -> Column:
        """Return a condition of a filter that leaves the rows which are not `collected`.

        A job collects the `columns` of the others. Each Spark task collects at most this many
        `rows`, of about this `size` in bytes.
        """
        jvm, sizes = self._jvm, object_type(self._jvm, LONG)
        counted = self._added(self._sizes, sizes, F.lit(0).cast("long") + _size(columns.values()))
        count = invoked(jvm, counted, "count", self._type("long"))
        literal = jvm_class(jvm, "org.apache.spark.sql.catalyst.expressions.Literal")
        total = invoked(jvm, literal(self._sizes, sizes), "sum", self._type("long"))
        is_within = (as_column(self._spark, count) <= F.lit(rows).cast("long")) & (
            as_column(self._spark, total) <= F.lit(size).cast("long")
        )
        row = F.struct(*[column.alias(name) for name, column in columns.items()])
        copy = invoked(jvm, as_expression(self._spark, row), "copy", object_type(jvm, _ROW))
        collection = added(jvm, self._rows, object_type(jvm, COLLECTION), setters(jvm, copy))
        # False: the collection has the row.
        is_collected = as_column(
            self._spark, invoked(jvm, collection, "isZero", self._type("boolean"))
        )
        # All of it is in a branch, so it takes no time for rows that are left. Not deterministic:
        # the optimizer does not move it.
        taken = F.when(is_within, is_collected).otherwise(F.lit(False))
        return (F.spark_partition_id() >= 0) & F.when(collected, taken).otherwise(F.lit(True))

    @property
    def count(self) -> int:
        """The number of rows to collect in the last job, also beyond the limits."""
        return int(self._sizes.count())

    def rows(self, shape: DataFrame) -> DataFrame | None:
        """Return the rows of the last job on the driver, with the columns of `shape`.

        None: there were more than the limits permit.
        """
        rows = self._rows.value().toArray()
        if len(rows) != self.count:
            return None
        return on_driver(self._spark, analysed_plan(shape).output(), rows)

    def _added(self, accumulator: Any, kind: Any, value: Column) -> Any:
        """Return an expression that adds a value to an accumulator, and returns it."""
        return added(
            self._jvm, accumulator, kind, setters(self._jvm, as_expression(self._spark, value))
        )

    def _type(self, name: str) -> Any:
        session: Any = self._spark._jsparkSession
        return session.parseDataType(f'"{name}"')


def _size(columns: Iterable[Column]) -> Column:
    """Return about how many bytes some values take."""
    sizes = [F.coalesce(F.octet_length(each.cast("string")), F.lit(0)) for each in columns]
    return reduce(Column.__add__, sizes, F.lit(_ROW_BYTES))
