"""Checks of a definition: column names and types, positions, and functions for executors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from arrester.agents.arguments import check_function, first_line, wrong_type
from arrester.agents.definition.pipeline import PipelineInvalid
from arrester.agents.spark.frames.arrow_support import can_carry, require_packages
from arrester.agents.spark.frames.ddl import parse_ddl
from arrester.agents.spark.jvm.plans.determinism import non_deterministic_part
from arrester.agents.spark.jvm.session_zone import python_zone
from arrester.agents.spark.ship_worker_code import pickle_error
from arrester.agents.worker.columns import PREFIX
from arrester.domain.error_policy.redaction_rules import RULE, fields_parser
from arrester.domain.errors import InvalidValue

#: Types are compared by their names: not every version of PySpark has TimeType.
_UNSTORABLE = ("CalendarIntervalType", "TimeType")
_POSITIONS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


def check_position(shape: DataFrame, given: str | Column | None, resolved: Column | None) -> Column:
    """Return the `given` position; raises InvalidValue if it is missing or not an integer."""
    if resolved is None:
        raise InvalidValue("position", None, "a column: a unique, sortable integer per task")
    kind = shape.select(resolved).schema[0].dataType
    if not isinstance(kind, _POSITIONS):
        raise InvalidValue("position", given, f"an integer column; this is {kind.simpleString()}")
    return resolved


def check_deterministic(
    source: DataFrame, kind: str, given: str | Column | None, resolved: Column | None
) -> None:
    """Raise InvalidValue for a column that has other values when a micro-batch is repeated.

    Key and value are only shown, so the source itself may be non-deterministic for them.
    """
    if resolved is None:
        return
    identifies = kind in ("task", "position")
    part = non_deterministic_part(source, resolved, in_plan=identifies)
    if part is None:
        return
    allowed = f"a deterministic expression; {part} has other values when a micro-batch is repeated"
    if identifies:
        allowed += (
            ". Use a column that the input stores, such as an offset or a line number; the how-to "
            "'Positions for files' has recipes: _metadata.row_index for Parquet, posexplode for "
            "lines of text"
        )
    raise InvalidValue(kind, given, allowed)


def require_frame(source: object) -> None:
    """Raise InvalidValue for a source that is no DataFrame."""
    # A DataFrame of Spark Connect is refused with its session.
    if not isinstance(source, DataFrame) and "connect" not in type(source).__module__:
        allowed = "a DataFrame, such as spark.readStream.text(path) or spark.read.text(path)"
        raise wrong_type("source", source, allowed)


def check_source(source: DataFrame) -> None:
    """Raise InvalidValue for columns with which a record could not be held or shown."""
    check_columns("source", source.columns)
    is_case_sensitive = source.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    for field in source.schema.fields:
        unstorable = _unstorable_part(field.dataType, is_case_sensitive=is_case_sensitive)
        if unstorable is not None:
            allowed = (
                f"columns that can be held in files; {field.name} has the type "
                f"{unstorable.simpleString()}: drop it, or cast it to STRING"
            )
            raise InvalidValue("source", field.name, allowed)


def _unstorable_part(kind: T.DataType, *, is_case_sensitive: bool) -> T.DataType | None:
    """Return the part of a type that Parquet cannot store: held records are Parquet files."""
    for part in _parts(kind):
        # Spark reads and writes no file with an empty struct.
        is_empty = isinstance(part, T.StructType) and not part.fields
        names = [name.lower() for name in part.names] if isinstance(part, T.StructType) else []
        # Spark writes such a file, and does not read it.
        is_ambiguous = not is_case_sensitive and len(set(names)) < len(names)
        if is_empty or is_ambiguous or type(part).__name__ in _UNSTORABLE:
            return part
    return None


def _parts(kind: T.DataType) -> Iterator[T.DataType]:
    """Yield a type and all types nested in it."""
    yield kind
    match kind:
        case T.StructType():
            nested = [field.dataType for field in kind.fields]
        case T.ArrayType():
            nested = [kind.elementType]
        case T.MapType():
            nested = [kind.keyType, kind.valueType]
        case _:
            nested = []
    for nested_type in nested:
        yield from _parts(nested_type)


def check_columns(kind: str, columns: Sequence[str]) -> None:
    """Raise InvalidValue for names that are equal without case, or that Arrester reserves."""
    seen: set[str] = set()
    for column in columns:
        if column.lower() in seen:
            raise InvalidValue(kind, column, "columns whose names differ, also without case")
        if column.lower().startswith(PREFIX):
            raise InvalidValue(kind, column, f"columns that do not begin with {PREFIX}")
        seen.add(column.lower())


def names_and_paths(kind: str, given: Sequence[str]) -> tuple[str, ...]:
    """Return the values of `redact` or `show`: names of fields and JSON paths."""
    try:
        return fields_parser(items=kind != "show")(given)
    except (ValueError, TypeError):
        raise InvalidValue(kind, given, RULE) from None


def empty_frame(source: DataFrame) -> DataFrame:
    """Return another frame than the source, empty, with its columns.

    Micro-batches are other frames, too: an expression bound to the source, `source["a"]`, fails
    there and therefore here; `F.col("a")` works.
    """
    return source.sparkSession.createDataFrame([], source.schema)


def parsed_schema(name: str, schema: object) -> T.StructType:
    """Return the `schema` that the author gave for step `name`; raises for an invalid one."""
    if not isinstance(schema, str | T.StructType):
        allowed = "columns: a text such as 'a INT, b STRING', or a StructType"
        raise wrong_type(f"process {name!r}: schema", schema, allowed)
    try:
        parsed = schema if isinstance(schema, T.StructType) else parse_ddl(schema)
    except PySparkException as exc:
        raise PipelineInvalid(f"process {name!r}: schema: {first_line(exc)}") from exc
    if not isinstance(parsed, T.StructType):
        raise InvalidValue(f"process {name!r}: schema", schema, "columns: 'a INT, b STRING'")
    check_columns(f"process {name!r}: schema", parsed.names)
    for part in _parts(parsed):
        if isinstance(part, T.CharType | T.VarcharType):
            allowed = f"types of a DataFrame; {part.simpleString()} is a table's: use STRING"
            raise InvalidValue(f"process {name!r}: schema", schema, allowed)
    return parsed


def require_arrow(spark: SparkSession, step: str, *schemas: T.StructType) -> None:
    """Raise PipelineInvalid if a Python step cannot run: packages are missing on the driver, or
    Arrow cannot carry a column's type. Raises InvalidValue for a time zone that Python lacks."""
    try:
        require_packages()
    except ImportError as exc:
        needs = "PySpark runs Python steps only with pandas and pyarrow on the driver"
        raise PipelineInvalid(f"{step}: {first_line(exc)} ({needs})") from exc
    python_zone(spark)
    for field in (field for schema in schemas for field in schema.fields):
        if not can_carry(field.dataType):
            kind = field.dataType.simpleString()
            raise PipelineInvalid(
                f"{step}: column {field.name} has the type {kind}, which no Python step can have: "
                "drop it before, or cast it"
            )


def check_sender(spark: SparkSession, send: object, connect: object) -> None:
    """Raise InvalidValue unless `.produce` has one function that can be sent to executors."""
    if (send is None) == (connect is None):
        allowed = "a function of a row, or connect=, a function that opens one, not both"
        raise InvalidValue("produce: send", send, allowed)
    if send is not None:
        check_function("produce: send", send, "a function of a row, a dict", arguments=1)
        require_shippable(spark, "produce: send", send)
    else:
        allowed = "a function without arguments that returns a context manager"
        check_function("produce: connect", connect, allowed, arguments=0)
        require_shippable(spark, "produce: connect", connect)


def require_shippable(spark: SparkSession, argument: str, fn: object) -> None:
    """Raise InvalidValue for a function that cannot be sent to executors, and name the reason.

    A session, a DataFrame, an agent, a lock or a connection exists in one process only.
    """
    context = spark.sparkContext
    error = pickle_error(context, fn)
    if error is None:
        return
    parts = [
        f"{name}, {_type_with_article(value)}"
        for name, value in _used_by(fn)
        if pickle_error(context, value) is not None
    ]
    used = (
        f"this one uses {'; '.join(parts)}"
        if parts
        else f"{type(error).__name__}: {first_line(error)}"
    )
    allowed = (
        f"a function that can be sent to executors; {used}. Use plain values, and open locks and "
        "connections inside the function"
    )
    raise InvalidValue(argument, fn, allowed)


def _used_by(fn: Any) -> Iterator[tuple[str, object]]:
    """Yield the variables outside a function that it uses, and its bound arguments and object."""
    while isinstance(fn, partial):
        yield from ((f"argument {number}", value) for number, value in enumerate(fn.args, 1))
        yield from fn.keywords.items()
        fn = fn.func
    # The attributes of a method's object, or of a callable object.
    yield from getattr(getattr(fn, "__self__", fn), "__dict__", {}).items()
    with suppress(TypeError):  # not a Python function
        variables = inspect.getclosurevars(inspect.unwrap(getattr(fn, "__func__", fn)))
        yield from {**variables.globals, **variables.nonlocals}.items()


def _type_with_article(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1] in 'AEIO' else 'a'} {name}"


def schema_difference(earlier: T.StructType, present: T.StructType) -> str | None:
    """Return how the `present` columns differ from the `earlier` ones, None if they are equal."""
    if earlier.names != present.names:
        return f"{', '.join(earlier.names)} at first, now {', '.join(present.names)}"
    for earlier_field, field in zip(earlier.fields, present.fields, strict=True):
        earlier_type, type_ = (each.dataType.simpleString() for each in (earlier_field, field))
        if earlier_type != type_:
            return f"{field.name} was {earlier_type} and is {type_}"
    return None
