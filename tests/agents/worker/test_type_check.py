"""Types are checked value by value: Arrow would turn 1.5 into 1 and bytes into text."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # pandas has no types
import pytest
from pyspark.sql import types as T

from arrester.agents.worker.type_check import WrongType, struct_check

UTC = datetime.UTC
PAIR = T.StructType([T.StructField("y", T.LongType())])
NOW = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


class Unshown:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def checked(kind: T.DataType, value: Any, *, nullable: bool = True) -> None:
    schema = T.StructType([T.StructField("x", kind, nullable)])
    struct_check(schema, top_level=True)({"x": value}, "")


GOOD = [
    (T.LongType(), 2**63 - 1),
    (T.ByteType(), -128),
    (T.DoubleType(), 1.5),
    (T.DoubleType(), 3),
    (T.FloatType(), 3.4028234663852886e38),
    (T.FloatType(), -math.inf),
    (T.BooleanType(), True),
    (T.StringType(), "text"),
    (T.BinaryType(), b"bytes"),
    (T.DateType(), datetime.date(2026, 1, 2)),
    (T.TimestampType(), NOW),
    (T.TimestampNTZType(), NOW.replace(tzinfo=None)),
    (T.DecimalType(5, 2), decimal.Decimal("123.45")),
    (T.ArrayType(T.IntegerType()), [1, None, 3]),
    (T.MapType(T.StringType(), T.LongType()), {"a": 1}),
    (T.MapType(T.StringType(), T.LongType()), [("a", 1)]),
    (T.LongType(), None),
]
BAD = [
    (T.LongType(), 1.5, "field x is bigint; got float 1.5"),
    (T.LongType(), True, "field x is bigint; got bool True"),
    (T.LongType(), "7", "field x is bigint; got str '7'"),
    (T.IntegerType(), 2**31, "field x: 2147483648 does not fit int"),
    (T.DoubleType(), 2**53 + 1, "field x: 9007199254740993 is not exact as double"),
    (T.FloatType(), -1e39, "field x: -1e+39 does not fit float"),
    (T.BooleanType(), 1, "field x is boolean; got int 1"),
    (
        T.BooleanType(),
        np.True_,
        "field x is boolean; got numpy.bool np.True_; convert it with bool(value)",
    ),
    (
        T.StringType(),
        np.int64(7),
        "field x is string; got numpy.int64 np.int64(7); convert it with value.tolist()",
    ),
    (
        T.TimestampType(),
        pd.NaT,
        "field x is timestamp; got pandas.NaTType NaT; a missing value is None",
    ),
    (
        T.TimestampNTZType(),
        pd.NaT,
        "field x is timestamp_ntz; got pandas.NaTType NaT; a missing value is None",
    ),
    (T.DateType(), pd.NaT, "field x is date; got pandas.NaTType NaT; a missing value is None"),
    (T.LongType(), pd.NA, "field x is bigint; got pandas.NAType <NA>; a missing value is None"),
    (
        T.DateType(),
        pd.Timestamp(2026, 1, 2),
        "field x is date; got pandas.Timestamp Timestamp('2026-01-02 00:00:00');"
        " convert it with value.date()",
    ),
    (T.LongType(), pd.Timestamp(2026, 1, 2), "; convert it with value.to_pydatetime()"),
    (
        T.ArrayType(T.LongType()),
        np.array([1]),
        "got numpy.ndarray array([1]); convert it with value.tolist()",
    ),
    (T.LongType(), pd.Series([1]), "; convert it with value.tolist()"),
    (T.StringType(), b"bytes", "field x is string; got bytes b'bytes'"),
    (T.BinaryType(), "text", "field x is binary; got str 'text'"),
    (T.DateType(), NOW, "field x is date; got datetime"),
    (T.TimestampType(), NOW.replace(tzinfo=None), "has no time zone, timestamp is wanted"),
    (T.TimestampNTZType(), NOW, "has a time zone, timestamp_ntz is wanted"),
    (T.DecimalType(5, 2), decimal.Decimal("1.234"), "does not fit decimal"),
    (T.DecimalType(5, 2), decimal.Decimal("1234"), "does not fit decimal"),
    (T.ArrayType(T.LongType()), [1, "2"], "field x[1] is bigint; got str '2'"),
    (T.ArrayType(T.LongType(), False), [None], "field x[0] is None, and it may not be NULL"),
    (T.MapType(T.StringType(), T.LongType()), {"a": "b"}, "field x['a'] is bigint"),
    (T.MapType(T.StringType(), T.LongType()), [1], "map<string,bigint>, of pairs; got int 1"),
    (T.MapType(T.StringType(), T.LongType()), [("a", 1, 2)], "of pairs; got tuple ('a', 1, 2)"),
    (T.MapType(T.StringType(), T.LongType()), [("a", 1), ("a", 2)], "is there twice"),
    (T.MapType(PAIR, T.LongType()), [({"y": 1}, 1), ({"y": 1}, 2)], "is there twice"),
    (T.LongType(), Unshown(), "got Unshown (its __repr__ raised RuntimeError)"),
    (
        T.StructType([T.StructField("y", T.LongType())]),
        {"y": 1, "z": 2},
        "field x.z is not in the schema",
    ),
    (T.StructType([T.StructField("y", T.LongType())]), {}, "field x.y is missing"),
]


@pytest.mark.parametrize(("kind", "value"), GOOD)
def test_a_value_of_its_type_passes(kind: T.DataType, value: Any) -> None:
    checked(kind, value)


@pytest.mark.parametrize(("kind", "value", "message"), BAD)
def test_a_value_of_another_type_names_field_and_type(
    kind: T.DataType, value: Any, message: str
) -> None:
    with pytest.raises(WrongType) as caught:
        checked(kind, value)
    assert message in str(caught.value)


def test_none_is_refused_if_the_field_is_not_nullable() -> None:
    with pytest.raises(WrongType, match="field x is None"):
        checked(T.LongType(), None, nullable=False)
