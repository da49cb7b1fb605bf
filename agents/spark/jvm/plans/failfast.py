"""Analysed native expressions whose parsers raise for bad input."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from arrester.agents.spark.avro_logical_types import resolution
from arrester.agents.spark.jvm.plans.catalyst import (
    analysed_plan,
    as_column,
    has_python_function,
    node_name,
    nodes,
    python_type,
    transform_up,
)
from arrester.agents.spark.jvm.plans.timestamp_casts import with_date
from arrester.domain.errors import InvalidValue

_AVRO: Final = "AvroDataToCatalyst"
#: Parsers that return NULL for bad input by default. They get the mode FAILFAST.
_PERMISSIVE_PARSERS: Final = ("CsvToStructs", "JsonToStructs", "XmlToStructs")
#: Parsers that raise by default.
_FAILFAST_PARSERS: Final = (_AVRO, "ProtobufDataToCatalyst")
#: The functions of Spark 4, which its optimizer replaces with these parsers.
_PARSER_FUNCTIONS: Final = ("FromAvro", "FromProtobuf")
#: The option of from_avro with the schema of its result.
_READER_SCHEMA: Final = "avroSchema"
_NAME = "v"


def failfast(source: DataFrame, expression: Column, *, named: str = "expr") -> Any:
    """Return `expression` analysed over `source`, with its parsers set to FAILFAST.

    Its casts to TIMESTAMP do not depend on the day.

    Raises InvalidValue for an expression that a guard cannot hold: a Python function, which Spark
    runs before the guard; an aggregate, window or generator; another parse mode than FAILFAST.
    """
    spark = source.sparkSession
    parsed = transform_up(spark, analysed(source, expression, named), _with_failfast_parser)
    dated = transform_up(spark, parsed, partial(with_date, spark))
    # Spark has to analyse the functions that were added.
    return parsed if dated is parsed else analysed(source, as_column(spark, dated), named)


def analysed(source: DataFrame, expression: Column, named: str) -> Any:
    """Return an expression analysed over `source`. Raises InvalidValue if no guard can hold it."""
    plan = analysed_plan(source.select(expression.alias(_NAME)))
    spark = source.sparkSession
    row_by_row = node_name(plan) == "Project" and plan.child().fastEquals(analysed_plan(source))
    if not row_by_row:
        raise InvalidValue(
            named, str(expression), "a row-by-row expression: no aggregate, window or explode"
        )
    analysed_expression = plan.projectList().apply(0).child()
    if has_python_function(spark, analysed_expression):
        allowed = "no Python function inside; use .process(name, fn) for those"
        raise InvalidValue(named, str(analysed_expression.sql()), allowed)
    return analysed_expression


def names_in(shape: DataFrame, expression: Column | None) -> tuple[str, ...]:
    """Return the columns, fields and string literals in an expression over `shape`."""
    if expression is None:
        return ()
    analysed_expression = analysed(shape, expression, "expr")
    parsed = transform_up(shape.sparkSession, analysed_expression, _with_failfast_parser)
    names = map(_name_in, nodes(parsed))
    return tuple(name for name in names if name is not None)


def parsed_fields(expression: Any) -> Iterator[str]:
    """Yield the names of the fields in the schemas of an analysed expression's JSON parsers."""
    for node in nodes(expression):
        if node_name(node) == "JsonToStructs":
            yield from _fields_in(python_type(node.schema()))


def _fields_in(kind: T.DataType) -> Iterator[str]:
    match kind:
        case T.StructType():
            for field in kind.fields:
                yield field.name
                yield from _fields_in(field.dataType)
        case T.ArrayType():
            yield from _fields_in(kind.elementType)
        case T.MapType():
            yield from _fields_in(kind.valueType)


def _name_in(node: Any) -> str | None:
    match node_name(node):
        case "AttributeReference":
            return str(node.name())
        case "GetStructField":
            return str(node.extractFieldName())
        case "GetArrayStructFields":
            return str(node.field().name())
        case "Literal":
            return str(node.value())
    return None


def _with_failfast_parser(node: Any) -> Any:
    """Return a parser's node in mode FAILFAST, and any other node as it is."""
    name = node_name(node)
    if name in _PARSER_FUNCTIONS:
        return _with_failfast_parser(node.replacement())
    if name not in _PERMISSIVE_PARSERS and name not in _FAILFAST_PARSERS:
        return node
    mode = _parse_mode(node.options())
    if mode not in (None, "FAILFAST"):
        raise InvalidValue(
            f"mode of {node.prettyName()}",
            mode,
            "FAILFAST (or none): other modes hide bad records as NULL",
        )
    if name == _AVRO:
        return _with_logical_types(node)
    if mode is not None or name in _FAILFAST_PARSERS:
        return node
    options = node.options().updated("mode", "FAILFAST")
    schema, _, *rest = [node.productElement(index) for index in range(node.productArity())]
    return node.copy(schema, options, *rest)


def _with_logical_types(node: Any) -> Any:
    """Return an Avro parser that reads the units of its writer; raises InvalidValue if another
    logical type would be misread."""
    options = node.options()
    key = next(
        (key for key in option_names(options) if key.lower() == _READER_SCHEMA.lower()), None
    )
    if key is None:
        return node
    read = str(options.apply(key))
    resolved = resolution(str(node.jsonFormatSchema()), read)
    if resolved.differences:
        allowed = "a schema with the logical types of the writer; cast the result"
        value = "; ".join(map(str, resolved.differences))
        raise InvalidValue(f"{_READER_SCHEMA} of {node.prettyName()}", value, allowed)
    if resolved.schema == read:
        return node
    options = options.updated(key, resolved.schema)
    return node.copy(node.child(), node.jsonFormatSchema(), options)


def _parse_mode(options: Any) -> str | None:
    found = next((name for name in option_names(options) if name.lower() == "mode"), None)
    return None if found is None else str(options.apply(found)).upper()


def option_names(options: Any) -> Iterator[str]:
    """Yield the names of the options of a parser's node."""
    names = options.keysIterator()
    while names.hasNext():
        yield str(names.next())
