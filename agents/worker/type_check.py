"""Check whether a Python value has a Spark type. Arrow does not: it turns 1.5 into 1."""

from __future__ import annotations

import datetime
import decimal
import inspect
import math
import numbers
from collections.abc import Callable
from typing import Any, NoReturn

from pyspark.sql import types as T

Check = Callable[[Any, str], None]


class WrongType(TypeError):
    """A value does not have its field's type; the message names the field, its type and the
    value."""


INTEGER_BITS: dict[type[T.DataType], int] = {
    T.ByteType: 8,
    T.ShortType: 16,
    T.IntegerType: 32,
    T.LongType: 64,
}
#: The accepted Python classes, and subclasses of them that are not accepted.
CLASSES: dict[type[T.DataType], tuple[tuple[type, ...], tuple[type, ...]]] = {
    T.BooleanType: ((bool,), ()),
    T.StringType: ((str,), ()),
    T.CharType: ((str,), ()),
    T.VarcharType: ((str,), ()),
    T.BinaryType: ((bytes, bytearray), ()),
    T.DateType: ((datetime.date,), (datetime.datetime,)),
    T.DayTimeIntervalType: ((datetime.timedelta,), ()),
}
#: Up to 2^53 every integer is a double, and up to 2^24 every integer is a float.
EXACT_INTEGERS: dict[type[T.DataType], int] = {T.DoubleType: 2**53, T.FloatType: 2**24}
#: The methods of values of NumPy and pandas that return Python's own, the most specific one first.
_CONVERSIONS: dict[str, tuple[str, ...]] = {
    "numpy": ("tolist",),
    "pandas": ("to_pydatetime", "to_pytimedelta", "tolist"),
}
#: The largest finite value. Arrow turns larger ones into infinity; Python's own are doubles.
LARGEST_FINITE: dict[type[T.DataType], float] = {
    T.DoubleType: math.inf,
    T.FloatType: (2 - 2**-23) * 2.0**127,
}


def struct_check(schema: T.StructType, *, top_level: bool = False) -> Check:
    """Return a check of dicts: they have all fields of `schema` and no others, of their types.

    `top_level` is for the row itself, whose fields are named without a leading path.
    """
    fields = {field.name: (_check_for(field.dataType), field.nullable) for field in schema.fields}

    def check(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise _wrong_type(path or "the row", "a dict", value)
        prefix = "" if top_level else f"{path}."
        for name, (check_field, nullable) in fields.items():
            if name not in value:
                raise WrongType(f"field {prefix}{name} is missing")
            _check_value(value[name], f"{prefix}{name}", check_field, nullable=nullable)
        for name in value:
            if name not in fields:
                raise WrongType(f"field {prefix}{name} is not in the schema; add it by schema=")

    return check


def values_check(kind: T.DataType, *, nullable: bool) -> Callable[[list[Any]], bool]:
    """Return a function that checks many values of a type, one by one."""
    check_value = _check_for(kind)

    def check(values: list[Any]) -> bool:
        try:
            for value in values:
                _check_value(value, "", check_value, nullable=nullable)
        except WrongType:
            return False
        return True

    return check


def _check_value(value: Any, path: str, check: Check, *, nullable: bool) -> None:
    if value is not None:
        check(value, path)
    elif not nullable:
        raise WrongType(f"field {path} is None, and it may not be NULL")


def _check_for(kind: T.DataType) -> Check:
    """Return the check of one type; a type without a rule here is left to Arrow."""
    if type(kind) in INTEGER_BITS:
        return _integer_check(kind, INTEGER_BITS[type(kind)])
    if isinstance(kind, T.FractionalType) and type(kind) in EXACT_INTEGERS:
        return _fraction_check(kind)
    if isinstance(kind, T.DecimalType):
        return _decimal_check(kind)
    if isinstance(kind, T.StructType):
        return struct_check(kind)
    if isinstance(kind, T.ArrayType):
        return _array_check(kind)
    if isinstance(kind, T.MapType):
        return _map_check(kind)
    if type(kind) in CLASSES:
        return _instance_check(kind, *CLASSES[type(kind)])
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return _timestamp_check(kind)
    return _accept_anything


def _accept_anything(value: Any, path: str) -> None:
    """Accept any value; Arrow checks it."""


def _instance_check(
    kind: T.DataType, accepted: tuple[type, ...], excluded: tuple[type, ...]
) -> Check:
    def check(value: Any, path: str) -> None:
        if not isinstance(value, accepted) or isinstance(value, excluded):
            raise _wrong_type(path, kind.simpleString(), value)

    return check


def _integer_check(kind: T.DataType, bits: int) -> Check:
    limit = 2 ** (bits - 1)

    def check(value: Any, path: str) -> None:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise _wrong_type(path, kind.simpleString(), value)
        if not -limit <= int(value) < limit:
            raise WrongType(f"field {path}: {value} does not fit {kind.simpleString()}")

    return check


def _fraction_check(kind: T.DataType) -> Check:
    exact, largest = EXACT_INTEGERS[type(kind)], LARGEST_FINITE[type(kind)]

    def check(value: Any, path: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float | numbers.Real):
            raise _wrong_type(path, kind.simpleString(), value)
        if isinstance(value, int) and abs(value) > exact:
            raise WrongType(f"field {path}: {value} is not exact as {kind.simpleString()}")
        if largest < abs(float(value)) < math.inf:
            raise WrongType(f"field {path}: {value} does not fit {kind.simpleString()}")

    return check


def _decimal_check(kind: T.DecimalType) -> Check:
    def check(value: Any, path: str) -> None:
        if not isinstance(value, decimal.Decimal):
            raise _wrong_type(path, kind.simpleString(), value)
        if not value.is_finite():
            raise WrongType(f"field {path}: {value} does not fit {kind.simpleString()}")
        _, digits, exponent = value.as_tuple()
        scale = max(0, -int(exponent))
        digits_before = max(0, len(digits) + int(exponent))
        if scale > kind.scale or digits_before > kind.precision - kind.scale:
            raise WrongType(f"field {path}: {value} does not fit {kind.simpleString()}")

    return check


def _timestamp_check(kind: T.DataType) -> Check:
    aware = isinstance(kind, T.TimestampType)

    def check(value: Any, path: str) -> None:
        # NaT is a datetime, too.
        if not isinstance(value, datetime.datetime) or _is_missing(value):
            raise _wrong_type(path, kind.simpleString(), value)
        if (value.tzinfo is not None) != aware:
            has = "has no time zone" if aware else "has a time zone"
            raise WrongType(f"field {path}: {value!r} {has}, {kind.simpleString()} is wanted")

    return check


def _array_check(kind: T.ArrayType) -> Check:
    element = _check_for(kind.elementType)

    def check(value: Any, path: str) -> None:
        if not isinstance(value, list | tuple):
            raise _wrong_type(path, kind.simpleString(), value)
        for index, item in enumerate(value):
            _check_value(item, f"{path}[{index}]", element, nullable=kind.containsNull)

    return check


def _map_check(kind: T.MapType) -> Check:
    keys, values = _check_for(kind.keyType), _check_for(kind.valueType)

    def check(value: Any, path: str) -> None:
        if not isinstance(value, dict | list):
            raise _wrong_type(path, kind.simpleString(), value)
        for pair in value.items() if isinstance(value, dict) else value:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise _wrong_type(path, f"{kind.simpleString()}, of pairs", pair)
            key, item = pair
            _check_value(key, f"{path}.key", keys, nullable=False)
            _check_value(item, f"{path}[{preview(key)}]", values, nullable=kind.valueContainsNull)
        if isinstance(value, list) and _has_duplicates([key for key, _ in value]):
            raise WrongType(f"field {path}: a key of {preview(value)} is there twice")

    return check


def _has_duplicates(keys: list[Any]) -> bool:
    try:
        return len(set(keys)) < len(keys)
    except TypeError:  # keys that are structs or arrays cannot be hashed
        return any(key in keys[:number] for number, key in enumerate(keys))


def _wrong_type(path: str, wanted: str, value: Any) -> WrongType:
    text = "nan" if isinstance(value, float) and math.isnan(value) else preview(value)
    advice = _advice(wanted, value)
    return WrongType(f"field {path} is {wanted}; got {type_name(value)} {text}{advice}")


def type_name(value: object) -> str:
    """Return the name of a value's class, of NumPy and pandas with their module: `numpy.bool`."""
    kind = type(value)
    library = _library(kind)
    # NumPy 1 and 2 have other names for one class.
    return kind.__name__ if library is None else f"{library}.{kind.__name__.rstrip('_')}"


def _library(kind: type) -> str | None:
    top = kind.__module__.partition(".")[0]
    return top if top in _CONVERSIONS else None


def _advice(wanted: str, value: object) -> str:
    if _is_missing(value):
        return "; a missing value is None"
    library = _library(type(value))
    if library is None:
        return ""
    if wanted == "boolean" and type(value).__name__ in ("bool", "bool_"):
        return "; convert it with bool(value)"
    for method in (*(["date"] if wanted == "date" else []), *_CONVERSIONS[library]):
        if callable(getattr(value, method, None)):
            return f"; convert it with value.{method}()"
    return ""


def _is_missing(value: Any) -> bool:
    """Whether a value is pandas' NaT or NA."""
    return type(value).__name__ in ("NaTType", "NAType")


def preview(value: object) -> str:
    """Return `value` for a message, shortened; an author's class may fail to represent itself."""
    try:
        text = repr(value)
    except Exception as exc:
        return f"(its __repr__ raised {type(exc).__name__})"
    return text if len(text) <= 100 else f"{text[:100]}…"


def refuse_awaitable(function: str, awaitable: object) -> NoReturn:
    """Raise WrongType for the result of an async function, which nothing awaits."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()
    raise WrongType(
        f"{function} returned an awaitable ({type(awaitable).__name__}), which is not awaited: "
        "it has not run; do the work before the return"
    )
