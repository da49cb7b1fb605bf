"""Convert held rows of an earlier source schema to the present one, or refuse with the reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.journal.storage import FileExists, Storage
from arrester.agents.spark.jvm.plans.catalyst import can_upcast
from arrester.agents.worker.columns import ROW
from arrester.domain.errors import ArresterError

#: The folder of source schemas. They are kept permanently: some kilobytes each.
_FOLDER = "arrester/rows"
_NESTED = (T.StructType, T.ArrayType, T.MapType)

#: The names of nested fields, from the outside in.
Path = tuple[str, ...]


class HeldRowsMismatch(ArresterError):
    """A column of held rows has a type that the source's column cannot store.

    The message names the column and both types.
    """


class HeldRowsMissing(ArresterError):
    """Held rows that the journal refers to are missing; restore the folder from a backup."""


class RowSchemas:
    """The schemas of held rows: one file for each source schema.

    The name of a row folder ends with the name of its schema's file. To read the schema from
    Parquet takes a Spark job per folder. A task that is paused overnight has tens of
    thousands of them.
    """

    def __init__(self, files: Storage) -> None:
        self._files = files
        self._known: dict[str, T.StructType] = {}

    def save(self, schema: T.StructType) -> str:
        """Store the schema of new rows; return its name."""
        text = schema.json()
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        if name not in self._known:
            with suppress(FileExists):
                self._files.create(f"{_FOLDER}/{name}.json", text.encode())
            self._known[name] = schema
        return name

    def of(self, folder: str) -> T.StructType:
        """Return the schema of the rows in a folder; raises HeldRowsMissing without its file."""
        name = folder.rpartition("-")[2]
        if name not in self._known:
            path = f"{_FOLDER}/{name}.json"
            content = self._files.read(path)
            if content is None:
                raise HeldRowsMissing(f"{self._files.root}/{path} is missing; restore it")
            self._known[name] = T.StructType.fromJson(json.loads(content))
        return self._known[name]


def with_all_columns(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """Return held rows of several schemas with all their columns; differing types become text."""
    if len(frames) == 1:
        return list(frames)
    stored_types = [
        {field.name: field.dataType for field in _row_type(frame).fields} for frame in frames
    ]
    types: dict[str, T.DataType] = {}
    for stored in stored_types:
        for name, kind in stored.items():
            is_same = types.setdefault(name, kind).simpleString() == kind.simpleString()
            types[name] = kind if is_same else T.StringType()
    return [
        frame.withColumn(ROW, F.when(F.col(ROW).isNotNull(), F.struct(*_columns(stored, types))))
        for frame, stored in zip(frames, stored_types, strict=True)
    ]


def _row_type(frame: DataFrame) -> T.StructType:
    row = frame.schema[ROW].dataType
    assert isinstance(row, T.StructType)
    return row


def _columns(stored: dict[str, T.DataType], types: dict[str, T.DataType]) -> list[Column]:
    """Return the columns of all `types` from rows with the `stored` ones."""
    columns = []
    for name, kind in types.items():
        if name not in stored:
            column = F.lit(None).cast(kind)
        elif isinstance(kind, T.StringType) and isinstance(stored[name], _NESTED):
            column = F.to_json(F.col(ROW)[name])
        else:
            column = F.col(ROW)[name].cast(kind)
        columns.append(column.alias(name))
    return columns


def converted(frame: DataFrame, schema: T.StructType) -> DataFrame:
    """Return held rows with the source's columns in their column ROW.

    A new column is NULL and a removed one is dropped. A type that became wider (Spark's upcast) is
    cast. The same holds for fields of structs, also in arrays. Any other change is refused.
    """
    stored = _row_type(frame)
    if stored == schema:
        return frame
    row = _struct(frame.sparkSession, F.col(ROW), stored, schema, path=())
    return frame.withColumn(ROW, row)


def _struct(
    spark: SparkSession, value: Column, stored: T.StructType, present: T.StructType, path: Path
) -> Column:
    # Fields are found as Spark does by default: by the exact name, then by one of another case.
    by_name = {field.name.lower(): field for field in stored.fields}
    by_name |= {field.name: field for field in stored.fields}
    columns = []
    for field in present.fields:
        stored_field = by_name.get(field.name) or by_name.get(field.name.lower())
        column = F.lit(None).cast(field.dataType)
        if stored_field is not None:
            inner, inner_path = value.getField(stored_field.name), (*path, field.name)
            column = _value(spark, inner, stored_field.dataType, field.dataType, inner_path)
        columns.append(column.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*columns))


def _value(
    spark: SparkSession, value: Column, stored: T.DataType, present: T.DataType, path: Path
) -> Column:
    if stored.simpleString() == present.simpleString():
        return value
    if isinstance(stored, T.StructType) and isinstance(present, T.StructType):
        return _struct(spark, value, stored, present, path)
    if isinstance(stored, T.ArrayType) and isinstance(present, T.ArrayType):
        types = stored.elementType, present.elementType
        return F.transform(value, lambda element: _value(spark, element, *types, path))
    if can_upcast(spark, stored, present):
        return value.cast(present)
    raise HeldRowsMismatch(
        f"held rows have {'.'.join(path)} as {stored.simpleString()}, the source has it as "
        f"{present.simpleString()} now: give the source its former type until these rows have run, "
        "or resume at a position after them"
    )
