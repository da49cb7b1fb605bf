"""Held rows of an earlier source: they fit the columns of today's, or it is said why not."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from agents.worker.columns import ROW
from controlplane.domain.errors import ArresterError

#: The names of fields, from the outside in.
Path = tuple[str, ...]


class HeldRowsMisfit(ArresterError):
    """A column of held rows has a type that the source's does not hold; both are named."""


def fitted(frame: DataFrame, wanted: T.StructType) -> DataFrame:
    """Return held rows with the columns of the source in their column ROW.

    A column that the source has gained is NULL, one that it has lost goes, and a type that has
    become wider (as Spark's upcast has it) is cast; so with the fields of structs, in arrays too.
    Anything else is refused.
    """
    stored = frame.schema[ROW].dataType
    assert isinstance(stored, T.StructType)
    if stored == wanted:
        return frame
    fitted = _struct(frame.sparkSession, F.col(ROW), stored, wanted, path=())
    return frame.withColumn(ROW, fitted)


def _struct(
    spark: SparkSession, value: Column, stored: T.StructType, wanted: T.StructType, path: Path
) -> Column:
    # As Spark does by default: the very name, or one that differs in case.
    there = {field.name.lower(): field for field in stored.fields}
    there |= {field.name: field for field in stored.fields}
    columns = []
    for field in wanted.fields:
        found = there.get(field.name) or there.get(field.name.lower())
        column = F.lit(None).cast(field.dataType)
        if found is not None:
            inner = value.getField(found.name)
            here = (*path, field.name)
            column = _fitted(spark, inner, found.dataType, field.dataType, here)
        columns.append(column.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*columns))


def _fitted(
    spark: SparkSession, value: Column, stored: T.DataType, wanted: T.DataType, path: Path
) -> Column:
    if stored.simpleString() == wanted.simpleString():
        return value
    if isinstance(stored, T.StructType) and isinstance(wanted, T.StructType):
        return _struct(spark, value, stored, wanted, path)
    if isinstance(stored, T.ArrayType) and isinstance(wanted, T.ArrayType):
        kinds = stored.elementType, wanted.elementType
        return F.transform(value, lambda each: _fitted(spark, each, *kinds, path))
    if _widens(spark, stored, wanted):
        return value.cast(wanted)
    raise HeldRowsMisfit(
        f"held rows have {'.'.join(path)} as {stored.simpleString()}, the source has it as "
        f"{wanted.simpleString()} now: give the source its former type until these rows have run, "
        "or resume past them"
    )


def _widens(spark: SparkSession, stored: T.DataType, wanted: T.DataType) -> bool:
    jvm: Any = spark._jvm
    types = [spark._jsparkSession.parseDataType(each.json()) for each in (stored, wanted)]
    return bool(jvm.org.apache.spark.sql.catalyst.expressions.Cast.canUpCast(*types))
