"""The row of a dead letter: a source row as JSON, and back."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.spark.frames.column_names import in_quotes, text_literal

#: Spark's default formats cut times to milliseconds.
_TIME_FORMATS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
#: Times are in UTC: the format prints no seconds of an offset, as that of Shanghai in 1900 has.
_OPTIONS: Final = {"ignoreNullFields": "false", "timeZone": "UTC", **_TIME_FORMATS}
#: By this setting, Spark may read times in JSON with the parser of Spark 2, which takes
#: microseconds for milliseconds. No text fits this format: then Spark casts the text.
_PARSER_POLICY: Final = "spark.sql.legacy.timeParserPolicy"
_CASTING_OPTIONS: Final = {
    "timestampFormat": "'cast'",
    "enableDateTimeParsingFallback": "true",
}
#: The types without parts whose values Spark reads from JSON as it wrote them, by their names:
#: not all versions of Spark have all of them. NULL is the only value of `void`.
_EXACT: Final = frozenset(
    {
        *("binary", "boolean", "char", "string", "varchar", "void"),
        *("byte", "short", "integer", "long", "float", "double", "decimal"),
        *("date", "time", "timestamp", "timestamp_ntz"),
        *("daytimeinterval", "yearmonthinterval", "interval"),
    }
)
#: The columns of `with_parsed_rows`: the row, and why it does not fit the source; NULL if it fits.
PARSED_ROW, PROBLEM = "__arrester_parsed_row", "__arrester_problem"
#: The members of the JSON object, and the struct that was read. Each text is parsed twice only.
_MEMBERS, _READ = "__arrester_members", "__arrester_read"
_CORRUPT: Final = "__arrester_corrupt"
#: At most this many wrong fields are named.
_NAMED: Final = 3
#: A member of a row's JSON: its columns with bytes that are no UTF-8, which JSON cannot hold.
_NOT_UTF8: Final = "__arrester_not_utf8"
#: What Spark writes in place of such bytes.
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def row_as_json(row: str, kind: T.StructType) -> str:
    """Return, as SQL, the JSON of a row, which names columns that it does not hold exactly."""
    text = as_json(row)
    wrong = {
        field.name: sql
        for field in kind.fields
        if (sql := _not_utf8(f"{row}.{in_quotes(field.name)}", field.dataType)) is not None
    }
    if not wrong:
        return text
    names = ", ".join(f"if({sql}, {text_literal(name)}, NULL)" for name, sql in wrong.items())
    member = f"to_json(named_struct('{_NOT_UTF8}', concat_ws(', ', {names})))"
    # Only rows with the replacement are checked further. The lambda function gets the JSON once.
    checked = (
        f"CASE WHEN contains(json, '{_REPLACEMENT}') AND ({' OR '.join(wrong.values())}) "
        f"THEN concat(rtrim('}}', {member}), ',', substr(json, 2)) ELSE json END"
    )
    return f"transform(array({text}), json -> {checked})[0]"


def _not_utf8(value: str, kind: T.DataType, depth: int = 0) -> str | None:
    """Return, as SQL, whether a value has text that is no UTF-8; None if it has no text."""
    if isinstance(kind, T.StringType):
        # Java's text has the replacement.
        exact = f"decode(encode({value}, 'UTF-16BE'), 'UTF-16BE')"
        return f"CAST({exact} AS BINARY) <> CAST({value} AS BINARY)"
    if isinstance(kind, T.StructType):
        parts = [
            _not_utf8(f"{value}.{in_quotes(field.name)}", field.dataType, depth)
            for field in kind.fields
        ]
    elif isinstance(kind, T.ArrayType):
        parts = [_any_not_utf8(value, kind.elementType, depth)]
    elif isinstance(kind, T.MapType):
        parts = [
            _any_not_utf8(f"map_keys({value})", kind.keyType, depth),
            _any_not_utf8(f"map_values({value})", kind.valueType, depth),
        ]
    else:
        return None
    found = [part for part in parts if part is not None]
    return f"({' OR '.join(found)})" if found else None


def _any_not_utf8(values: str, kind: T.DataType, depth: int) -> str | None:
    item = f"item{depth}"
    inner = _not_utf8(item, kind, depth + 1)
    return None if inner is None else f"exists({values}, {item} -> {inner})"


def as_json(row: str) -> str:
    """Return, as SQL, the JSON of a struct: NULL fields are included, times have microseconds."""
    options = ", ".join(f"'{name}', '{_quoted(value)}'" for name, value in _OPTIONS.items())
    return f"to_json({row}, map({options}))"


def _quoted(value: str) -> str:
    return value.replace("'", r"\'")


def unsupported_columns(schema: T.StructType) -> list[str]:
    """Return the columns that Spark does not read from JSON as they were.

    Examples are maps without text keys, and VARIANT: a date in it becomes a text.
    """
    return [
        f"{field.name} {field.dataType.simpleString()}"
        for field in schema.fields
        if not _is_exact(field.dataType)
    ]


def _is_exact(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_is_exact(field.dataType) for field in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _is_exact(kind.elementType)
    if isinstance(kind, T.MapType):
        return isinstance(kind.keyType, T.StringType) and _is_exact(kind.valueType)
    if isinstance(kind, T.UserDefinedType):
        return _is_exact(kind.sqlType())
    return kind.typeName() in _EXACT


def with_parsed_rows(frame: DataFrame, text: str, schema: T.StructType) -> DataFrame:
    """Add the columns PARSED_ROW and PROBLEM: the row in the JSON column `text`, and why it does
    not fit the columns of `schema`.

    Each field of the schema must be there, and no other: a misspelt or redacted field would become
    NULL unnoticed.
    """
    fields = T.StructType([*schema.fields, T.StructField(_CORRUPT, T.StringType())])
    options = {"columnNameOfCorruptRecord": _CORRUPT}
    if str(frame.sparkSession.conf.get(_PARSER_POLICY)).upper() == "LEGACY":
        options |= _CASTING_OPTIONS
    members, read = F.col(_MEMBERS), F.col(_READ)
    wrong = _wrong_members(members, schema, "")
    is_wrong = F.size(wrong) > 0
    if not any(_has_struct(field.dataType) for field in schema.fields):
        # Spark interprets the expression for the names: without it, a row takes half of the time.
        names = F.array(*[F.lit(name) for name in sorted(schema.names)])
        is_wrong = F.sort_array(F.array_distinct(F.map_keys(members))) != names
    not_utf8 = f" is not UTF-8; give it another value, without the member {_NOT_UTF8}"
    problem = (
        F.when(F.col(text).isNull(), "the row is NULL")
        .when(members.isNull(), "the row is not a JSON object")
        .when(members[_NOT_UTF8].isNotNull(), F.concat(members[_NOT_UTF8], F.lit(not_utf8)))
        .when(is_wrong, F.array_join(F.slice(wrong, 1, _NAMED), ", "))
        .when(read[_CORRUPT].isNotNull(), _unread(members, read, schema))
    )
    row = F.struct(*[read[name].alias(name) for name in schema.names])
    # Spark does not merge these projections: it would parse the text again for each use.
    parsed = frame.withColumns(
        {_MEMBERS: _members(F.col(text)), _READ: F.from_json(F.col(text), fields, options)}
    )
    return parsed.withColumns({PARSED_ROW: row, PROBLEM: problem}).drop(_MEMBERS, _READ)


def _members(text: Column) -> Column:
    """Return the members of a JSON object, each as JSON; NULL if it is no object."""
    return F.from_json(text, T.MapType(T.StringType(), T.StringType()))


def _unread(members: Column, read: Column, schema: T.StructType) -> Column:
    """Return which columns have a value of another type."""
    unread = [
        F.when(
            members[field.name].isNotNull() & read[field.name].isNull(),
            f"{field.name} is not {field.dataType.simpleString()}",
        )
        for field in schema.fields
    ]
    names = F.array_join(F.array_compact(F.array(*unread)), ", ")
    return F.when(names != "", names).otherwise("a nested value has another type")


def _wrong_members(members: Column, kind: T.StructType, path: str) -> Column:
    """Return the fields of an object that are missing or unknown, as an array of sentences."""
    names = F.array(*[F.lit(name) for name in kind.names])
    keys = F.map_keys(members)
    missing = F.transform(
        F.array_except(names, keys),
        lambda name: F.concat(F.lit(path), name, F.lit(" is missing")),
    )
    unknown = F.transform(
        F.array_except(keys, names),
        lambda name: F.concat(F.lit(path), name, F.lit(" is not a field of the source")),
    )
    inner = [
        _wrong_fields(members[field.name], field.dataType, f"{path}{field.name}.")
        for field in kind.fields
        if _has_struct(field.dataType)
    ]
    found = reduce(F.concat, [missing, unknown, *inner])
    return F.when(members.isNotNull(), found).otherwise(F.array().cast("array<string>"))


def _wrong_fields(text: Column, kind: T.DataType, path: str) -> Column:
    """Return the wrong fields of a nested value, a JSON text."""
    if isinstance(kind, T.StructType):
        return _wrong_members(_members(text), kind, path)
    if isinstance(kind, T.ArrayType):
        values, inner_kind = F.from_json(text, T.ArrayType(T.StringType())), kind.elementType
    else:
        assert isinstance(kind, T.MapType)
        values, inner_kind = F.map_values(_members(text)), kind.valueType
    nested = F.flatten(F.transform(values, lambda value: _wrong_fields(value, inner_kind, path)))
    return F.coalesce(nested, F.array().cast("array<string>"))


def _has_struct(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _has_struct(kind.elementType)
    if isinstance(kind, T.MapType):
        return _has_struct(kind.valueType)
    return isinstance(kind, T.StructType)
