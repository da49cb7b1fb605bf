"""Convert the rows of a step to Arrow arrays, with cheap checks of whole columns.

If a column does not certainly have its type, UncertainConversion is raised. Its caller then checks
each value by `type_check`, and finds the row.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from .arrow_reader import Origin, Row
from .type_check import CLASSES, EXACT_INTEGERS, INTEGER_BITS, LARGEST_FINITE, values_check

#: Returns whether values, including NULLs, certainly have a type.
ConformityCheck = Callable[[list[Any]], bool]
_NULL = type(None)

#: The classes whose values certainly have a type. Arrow itself refuses integers that are too large.
_CONFORMING_CLASSES: dict[type[T.DataType], set[type]] = {
    **{kind: {int} for kind in INTEGER_BITS},
    **{kind: set(accepted) for kind, (accepted, _) in CLASSES.items()},
}


class UncertainConversion(Exception):
    """A row may not conform. A check of each row shows which one, and why."""


class RowWriter:
    """Make arrays from rows as dicts; raises UncertainConversion, or an exception of Arrow."""

    def __init__(self, schema: T.StructType, types: pa.Schema) -> None:
        self._columns = [
            _Column(field, kind.type) for field, kind in zip(schema.fields, types, strict=True)
        ]

    def arrays(self, rows: list[Row], origins: Mapping[str, Origin]) -> list[Any]:
        """Return the columns; `origins` gives the arrays of values that may be unchanged."""
        values = self._values(rows)
        return [
            column.array(column_values, origins.get(column.name))
            for column, column_values in zip(self._columns, values, strict=True)
        ]

    def check(self, rows: list[Row]) -> None:
        """Raise UncertainConversion unless all rows certainly conform."""
        for column, values in zip(self._columns, self._values(rows), strict=True):
            if not column.conforms(values):
                raise UncertainConversion

    def _values(self, rows: list[Row]) -> list[list[Any]]:
        return _field_values(rows, [column.name for column in self._columns])


class _Column:
    """One column of a step, or one field of a struct."""

    def __init__(self, field: T.StructField, arrow: Any) -> None:
        self.name = field.name
        self._arrow = arrow
        self._nullable = field.nullable
        # If the same object is returned, it has the same value.
        self._immutable = not pa.types.is_nested(arrow)
        self.conforms = _conformity_check(field.dataType, nullable=field.nullable)
        self._fields: list[_Column] = []
        if isinstance(field.dataType, T.StructType):
            kinds = [arrow.field(number).type for number in range(arrow.num_fields)]
            self._fields = [
                _Column(inner, kind)
                for inner, kind in zip(field.dataType.fields, kinds, strict=True)
            ]

    def array(self, values: list[Any], origin: Origin | None) -> Any:
        if origin is not None and origin.array.type == self._arrow:
            if self._fields and origin.fields:
                return self._struct(values, origin)
            if self._is_unchanged(values, origin):
                return origin.array
        if not self.conforms(values):
            raise UncertainConversion
        return pa.array(values, self._arrow)

    def _is_unchanged(self, values: list[Any], origin: Origin) -> bool:
        may_be = self._immutable and (self._nullable or not origin.array.null_count)
        return may_be and all(map(operator.is_, values, origin.values))

    def _struct(self, values: list[Any], origin: Origin) -> Any:
        present = [value for value in values if value is not None]
        if set(map(type, present)) - {dict} or (len(present) < len(values) and not self._nullable):
            raise UncertainConversion
        names = [field.name for field in self._fields]
        if len(present) < len(values):
            if not self.conforms(values):
                raise UncertainConversion
            return pa.array(values, self._arrow)
        columns = [
            field.array(field_values, origin.fields.get(field.name))
            for field, field_values in zip(self._fields, _field_values(present, names), strict=True)
        ]
        fields = [self._arrow.field(number) for number in range(self._arrow.num_fields)]
        return pa.StructArray.from_arrays(columns, fields=fields)


def _field_values(rows: list[Any], names: list[str]) -> list[list[Any]]:
    """Return the values of each field, from dicts that have exactly these fields."""
    if set(map(len, rows)) - {len(names)}:
        raise UncertainConversion
    try:
        return [[row[name] for row in rows] for name in names]
    except KeyError as exc:
        raise UncertainConversion from exc


def _conformity_check(kind: T.DataType, *, nullable: bool) -> ConformityCheck:
    classes = _CONFORMING_CLASSES.get(type(kind))
    if classes is not None:
        allowed = classes | {_NULL} if nullable else classes
        return lambda values: set(map(type, values)) <= allowed
    if isinstance(kind, T.FractionalType) and type(kind) in EXACT_INTEGERS:
        return _fraction_check(kind, nullable=nullable)
    if isinstance(kind, T.StructType):
        return _struct_check(kind, nullable=nullable)
    if isinstance(kind, T.ArrayType):
        return _list_check(kind, nullable=nullable)
    return values_check(kind, nullable=nullable)


def _fraction_check(kind: T.FractionalType, *, nullable: bool) -> ConformityCheck:
    exact, largest = EXACT_INTEGERS[type(kind)], LARGEST_FINITE[type(kind)]
    allowed = {float, int, _NULL} if nullable else {float, int}

    def conforms(values: list[Any]) -> bool:
        types = set(map(type, values))
        if int in types and any(type(value) is int and abs(value) > exact for value in values):
            return False
        if largest < math.inf and any(
            type(value) is float and largest < abs(value) < math.inf for value in values
        ):
            return False
        return types <= allowed

    return conforms


def _struct_check(kind: T.StructType, *, nullable: bool) -> ConformityCheck:
    names = [field.name for field in kind.fields]
    fields = [_conformity_check(field.dataType, nullable=field.nullable) for field in kind.fields]
    allowed = {dict, _NULL} if nullable else {dict}

    def conforms(values: list[Any]) -> bool:
        if not set(map(type, values)) <= allowed:
            return False
        columns = _field_values([value for value in values if value is not None], names)
        return all(field(column) for field, column in zip(fields, columns, strict=True))

    return conforms


def _list_check(kind: T.ArrayType, *, nullable: bool) -> ConformityCheck:
    element = _conformity_check(kind.elementType, nullable=kind.containsNull)
    allowed = {list, tuple, _NULL} if nullable else {list, tuple}

    def conforms(values: list[Any]) -> bool:
        if not set(map(type, values)) <= allowed:
            return False
        return element(list(chain.from_iterable(value for value in values if value is not None)))

    return conforms
