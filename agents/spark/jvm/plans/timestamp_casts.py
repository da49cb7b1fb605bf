"""Casts of text to TIMESTAMP that depend on the text alone, not on the day of the evaluation.

Spark reads a time without a date, such as `12:30`, as that time of the current day. A record that
was held until the next day would have another value.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.spark.jvm.plans.catalyst import (
    as_column,
    as_expression,
    children,
    node_name,
    python_type,
    to_seq,
)
from arrester.domain.errors import InvalidValue

#: The second one is `to_timestamp`. Other functions of times have a cast around a text.
_CASTS: Final = ("Cast", "ParseToTimestamp")
_NESTED: Final = ("array", "map", "struct")
_TEXT, _TIMESTAMP = "string", "timestamp"
#: A date has at least eight characters, and the first colon of a time follows an hour.
_COLON_WITHOUT_DATE: Final = range(1, 11)
#: A text with this prefix fails to be cast, and the failure shows the prefix.
_NO_DATE: Final = "no date: "


def with_date(spark: SparkSession, node: Any) -> Any:
    """Return a cast of text to TIMESTAMP that fails for a time without a date; else the node.

    Raises InvalidValue for a cast of a column that contains such texts.
    """
    if node_name(node) not in _CASTS:
        return node
    child, *formats = children(node)
    if _type_name(node) in _NESTED:
        _check_nested(node, child)
    if _type_name(node) != _TIMESTAMP:
        return node
    if formats or _type_name(child).partition(" ")[0] != _TEXT:
        return node  # a format without a date means 1970-01-01
    if node_name(child) == "CaseWhen" and _NO_DATE in str(child.sql()):
        return node  # marked before
    text = as_column(spark, child)
    dated = as_expression(spark, _marked(text))
    return node.withNewChildren(to_seq(spark._jvm, [dated]))


def _check_nested(cast: Any, child: Any) -> None:
    if _has_text_for_timestamp(python_type(child.dataType()), python_type(cast.dataType())):
        raise InvalidValue(
            "cast",
            str(cast.sql()),
            "a cast of each text, such as transform(texts, text -> CAST(text AS TIMESTAMP))",
        )


def _has_text_for_timestamp(given: T.DataType, wanted: T.DataType) -> bool:
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        pairs = zip(given.fields, wanted.fields, strict=True)
        return any(_has_text_for_timestamp(one.dataType, other.dataType) for one, other in pairs)
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return _has_text_for_timestamp(given.elementType, wanted.elementType)
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        is_key = _has_text_for_timestamp(given.keyType, wanted.keyType)
        return is_key or _has_text_for_timestamp(given.valueType, wanted.valueType)
    return isinstance(given, T.StringType) and isinstance(wanted, T.TimestampType)


def _type_name(expression: Any) -> str:
    return str(expression.dataType().typeName())


def _marked(text: Column) -> Column:
    """Return a text, marked if it has a time without a date."""
    colon = F.instr(text, ":")
    return F.when(colon.isin(*_COLON_WITHOUT_DATE), F.concat(F.lit(_NO_DATE), text)).otherwise(text)
