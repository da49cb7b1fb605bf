"""`from_json` that fails for text after the document and for missing required fields.

Spark reads the first document of a text and drops what follows. A field that its schema declares
NOT NULL is NULL if the document lacks it. Both are silent, also in mode FAILFAST.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.spark.jvm.plans.catalyst import (
    as_column,
    as_expression,
    node_name,
    python_type,
    transform_up,
)
from arrester.agents.spark.jvm.plans.failfast import analysed, option_names
from arrester.agents.spark.jvm.plans.try_eval import by_name
from arrester.domain.errors import InvalidValue

_PARSER: Final = "JsonToStructs"
#: Options, with names in lower case. Without them, a number in the text of a date is a count of
#: days, text after a date is dropped, and a time without a date is one of today.
_FORMATS: Final = {
    "dateformat": "yyyy-MM-dd",
    "timestampformat": "yyyy-MM-dd['T'][' ']HH:mm[:ss][.SSSSSSSSS][XXX][XX]",
    "timestampntzformat": "yyyy-MM-dd['T'][' ']HH:mm[:ss][.SSSSSSSSS]",
    "enabledatetimeparsingfallback": "false",
}
#: The text becomes the first of two members of an object. Text that follows its document breaks the
#: object, adds a member, or hides the second one, whose name is random so that no text contains it.
#: The new line ends a comment.
_NAMES: Final = ("document", uuid4().hex)
_BEFORE, _AFTER = f'{{"{_NAMES[0]}":', f'\n,"{_NAMES[1]}":null}}'
_ONE: Final = "from_json, strict: the text is not exactly one JSON document"
_REQUIRED: Final = ("from_json, strict: required field ", " has no value")


def strict_json(shape: DataFrame, expression: Column, *, named: str) -> Column:
    """Return `expression` over `shape` with each `from_json` in it strict.

    A record fails if its text is no single document, lacks a required field, or has a date or time
    in another format. A text that is NULL stays NULL.

    Raises InvalidValue if there is no `from_json`, or as `failfast` does.
    """
    spark = shape.sparkSession
    found: list[Any] = []

    def with_checks(node: Any) -> Any:
        if node_name(node) != _PARSER:
            return node
        found.append(node)
        return _strict_parser(spark, node)

    changed = transform_up(spark, analysed(shape, expression, named), with_checks)
    if not found:
        raise InvalidValue(named, str(expression), "from_json, if strict=True")
    checked = analysed(shape, as_column(spark, changed), named)
    return as_column(spark, by_name(spark, checked))


def _strict_parser(spark: SparkSession, node: Any) -> Any:
    """Return the expression that parses and checks the text of a parser's node."""
    _, options, text, *rest = [node.productElement(index) for index in range(node.productArity())]
    kind = python_type(node.schema())
    members = spark._jsparkSession.parseDataType(T.MapType(T.StringType(), kind).json())
    given = {name.lower() for name in option_names(options)}
    if "enabledatetimeparsingfallback" not in given:
        for name in _FORMATS.keys() - given:
            options = options.updated(name, _FORMATS[name])
    wrapped = as_expression(spark, F.concat(F.lit(_BEFORE), as_column(spark, text), F.lit(_AFTER)))
    parsed = as_column(spark, node.copy(members.asNullable(), options, wrapped, *rest))
    # The lambda function gets the members without parsing the text again.
    checked = F.transform(F.array(parsed), lambda members: _checked(members, kind)).getItem(0)
    return as_expression(spark, checked)


def _checked(members: Column, kind: T.DataType) -> Column:
    """Return the first member, or raise."""
    document = F.map_values(members).getItem(0)
    names = F.array(*map(F.lit, _NAMES))
    is_one = (F.map_keys(members) == names) & document.isNotNull()
    missing = _missing(document, kind, "")
    result = document
    if missing is not None:
        before, after = map(F.lit, _REQUIRED)
        raised = F.raise_error(F.concat(before, missing, after))
        result = F.when(missing.isNotNull(), raised).otherwise(document)
    return F.when(members.isNotNull(), F.when(is_one, result).otherwise(F.raise_error(F.lit(_ONE))))


def _missing(value: Column, kind: T.DataType, path: str) -> Column | None:
    """Return the first path whose value is NULL and must not be; None if all may be NULL."""
    if isinstance(kind, T.StructType):
        found = [
            each
            for field in kind.fields
            for each in _missing_in(
                value.getField(field.name),
                field.dataType,
                f"{path}.{field.name}" if path else field.name,
                nullable=field.nullable,
            )
        ]
        inside = F.coalesce(*found) if found else None
        return None if inside is None else F.when(value.isNotNull(), inside)
    if isinstance(kind, T.ArrayType):
        return _missing_item(value, kind.elementType, f"{path}[]", nullable=kind.containsNull)
    if isinstance(kind, T.MapType):
        values = F.map_values(value)
        nullable = kind.valueContainsNull
        return _missing_item(values, kind.valueType, f"{path}{{}}", nullable=nullable)
    return None


def _missing_in(value: Column, kind: T.DataType, path: str, *, nullable: bool) -> list[Column]:
    own = [] if nullable else [F.when(value.isNull(), F.lit(path))]
    inside = _missing(value, kind, path)
    return own if inside is None else [*own, inside]


def _missing_item(items: Column, kind: T.DataType, path: str, *, nullable: bool) -> Column | None:
    def missing(item: Column) -> Column:
        return F.coalesce(*_missing_in(item, kind, path, nullable=nullable))

    if not _missing_in(F.lit(None), kind, path, nullable=nullable):
        return None
    found = F.filter(F.transform(items, missing), lambda each: each.isNotNull())
    return F.try_element_at(found, F.lit(1))
