"""References to columns by name: any name that Spark accepts, such as `dgraph.type` or `a b`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.spark.jvm.session_zone import python_zone, session_zone
from arrester.agents.spark.ship_worker_code import shipped

#: Characters with a meaning in unquoted names, by which PySpark's mapInArrow refers to columns.
_SPECIAL_CHARACTERS = (".", "`", "*")
#: The number of names whose Columns are cached.
_CACHED_NAMES = 1024


def in_quotes(name: str) -> str:
    """Return a quoted column name for SQL."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str | None) -> str:
    """Return a text as SQL, in hexadecimal form, which needs no escapes."""
    return "CAST(NULL AS STRING)" if text is None else f"CAST(X'{text.encode().hex()}' AS STRING)"


# Cached: making a Column takes many calls to the JVM.
@lru_cache(maxsize=_CACHED_NAMES)
def quoted(name: str) -> Column:
    """Return the column of exactly this name, dots included."""
    return F.col(in_quotes(name))


def with_columns_named(frame: DataFrame, names: Iterable[str]) -> DataFrame:
    """Return the columns `names` of a frame, in this order."""
    return frame.select(*[quoted(name) for name in names])


def column_of_text(frame: DataFrame, text: str) -> Column:
    """Return the column that an author names.

    A column of exactly this name comes first. Spark parses any other text: `a.b` is a field of a
    struct, and backticks quote.
    """
    return quoted(text) if text in frame.columns else F.col(text)


def map_in_arrow(
    frame: DataFrame, function: Callable[..., Any], schema: T.StructType | str
) -> DataFrame:
    """Return `frame.mapInArrow(function, schema)` for columns of any name, in any time zone."""
    names, zone = frame.columns, python_zone(frame.sparkSession)
    if zone != session_zone(frame.sparkSession):
        function = shipped("arrow_zones").InZone(function, zone)
    if any(character in name for name in names for character in _SPECIAL_CHARACTERS):
        frame = frame.toDF(*[f"_{number}" for number in range(len(names))])
        function = shipped("map_in_arrow").WithColumnNames(function, names)
    return frame.mapInArrow(function, schema)
