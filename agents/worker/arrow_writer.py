"""Convert the rows of a step to Arrow arrays, checked column by column, which keeps checks cheap.

If a column is not certain to have its type, UncertainConversion is raised: then `type_check` checks
each value, and finds the row.
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
from .type_check import EXACT, INTEGERS, LARGEST, PLAIN, checked_values

#: Whether values, including NULLs, certainly have a type.
Conform = Callable[[list[Any]], bool]
_NULL = type(None)

#: Classes whose values certainly conform. Arrow itself refuses integers that are too large.
_EXACTLY: dict[type[T.DataType], set[type]] = {
    **{kind: {int} for kind in INTEGERS},
    **{kind: set(accepted) for kind, (accepted, _) in PLAIN.items()},
}


class UncertainConversion(Exception):
    """Some row may not conform; which one and why is found by checking each."""


class Writer:
    """Make arrays from rows as dicts; raises UncertainConversion, or what Arrow raises."""

    def __init__(self, schema: T.StructType, types: pa.Schema) -> None:
        self._columns = [
            _Column(field, kind.type) for field, kind in zip(schema.fields, types, strict=True)
        ]

    def arrays(self, rows: list[Row], origins: Mapping[str, Origin]) -> list[Any]:
        """Return the columns; `origins` gives the arrays of values that may be unchanged."""
        values = self._values(rows)
        return [
            column.array(each, origins.get(column.name))
            for column, each in zip(self._columns, values, strict=True)
        ]

    def check(self, rows: list[Row]) -> None:
        """Raise UncertainConversion unless all rows certainly conform."""
        for column, each in zip(self._columns, self._values(rows), strict=True):
            if not column.conform(each):
                raise UncertainConversion

    def _values(self, rows: list[Row]) -> list[list[Any]]:
        return _fields(rows, [column.name for column in self._columns])


class _Column:
    """One column of a step, or one field of a struct."""

    def __init__(self, field: T.StructField, arrow: Any) -> None:
        self.name = field.name
        self._arrow = arrow
        self._nullable = field.nullable
        # Their Python values are immutable: the same object is the same value.
        self._frozen = not pa.types.is_nested(arrow)
        self.conform = _conform(field.dataType, nullable=field.nullable)
        self._fields: list[_Column] = []
        if isinstance(field.dataType, T.StructType):
            kinds = [arrow.field(number).type for number in range(arrow.num_fields)]
            self._fields = [
                _Column(each, kind) for each, kind in zip(field.dataType.fields, kinds, strict=True)
            ]

    def array(self, values: list[Any], origin: Origin | None) -> Any:
        if origin is not None and origin.array.type == self._arrow:
            if self._fields and origin.fields:
                return self._struct(values, origin)
            if self._is_unchanged(values, origin):
                return origin.array
        if not self.conform(values):
            raise UncertainConversion
        return pa.array(values, self._arrow)

    def _is_unchanged(self, values: list[Any], origin: Origin) -> bool:
        may_be = self._frozen and (self._nullable or not origin.array.null_count)
        return may_be and all(map(operator.is_, values, origin.values))

    def _struct(self, values: list[Any], origin: Origin) -> Any:
        present = [value for value in values if value is not None]
        if set(map(type, present)) - {dict} or (len(present) < len(values) and not self._nullable):
            raise UncertainConversion
        names = [each.name for each in self._fields]
        if len(present) < len(values):
            if not self.conform(values):
                raise UncertainConversion
            return pa.array(values, self._arrow)
        columns = [
            each.array(some, origin.fields.get(each.name))
            for each, some in zip(self._fields, _fields(present, names), strict=True)
        ]
        fields = [self._arrow.field(number) for number in range(self._arrow.num_fields)]
        return pa.StructArray.from_arrays(columns, fields=fields)


def _fields(rows: list[Any], names: list[str]) -> list[list[Any]]:
    """Return the values of dicts that have exactly these fields."""
    if set(map(len, rows)) - {len(names)}:
        raise UncertainConversion
    try:
        return [[row[name] for row in rows] for name in names]
    except KeyError as exc:
        raise UncertainConversion from exc


def _conform(kind: T.DataType, *, nullable: bool) -> Conform:
    exactly = _EXACTLY.get(type(kind))
    if exactly is not None:
        allowed = exactly | {_NULL} if nullable else exactly
        return lambda values: set(map(type, values)) <= allowed
    if isinstance(kind, T.FractionalType) and type(kind) in EXACT:
        return _fraction(kind, nullable=nullable)
    if isinstance(kind, T.StructType):
        return _struct(kind, nullable=nullable)
    if isinstance(kind, T.ArrayType):
        return _list(kind, nullable=nullable)
    return checked_values(kind, nullable=nullable)


def _fraction(kind: T.FractionalType, *, nullable: bool) -> Conform:
    exact, largest = EXACT[type(kind)], LARGEST[type(kind)]
    allowed = {float, int, _NULL} if nullable else {float, int}

    def conform(values: list[Any]) -> bool:
        types = set(map(type, values))
        if int in types and any(type(each) is int and abs(each) > exact for each in values):
            return False
        if largest < math.inf and any(
            type(each) is float and largest < abs(each) < math.inf for each in values
        ):
            return False
        return types <= allowed

    return conform


def _struct(kind: T.StructType, *, nullable: bool) -> Conform:
    names = [field.name for field in kind.fields]
    fields = [_conform(field.dataType, nullable=field.nullable) for field in kind.fields]
    allowed = {dict, _NULL} if nullable else {dict}

    def conform(values: list[Any]) -> bool:
        if not set(map(type, values)) <= allowed:
            return False
        columns = _fields([value for value in values if value is not None], names)
        return all(field(column) for field, column in zip(fields, columns, strict=True))

    return conform


def _list(kind: T.ArrayType, *, nullable: bool) -> Conform:
    element = _conform(kind.elementType, nullable=kind.containsNull)
    allowed = {list, tuple, _NULL} if nullable else {list, tuple}

    def conform(values: list[Any]) -> bool:
        if not set(map(type, values)) <= allowed:
            return False
        return element(list(chain.from_iterable(value for value in values if value is not None)))

    return conform
