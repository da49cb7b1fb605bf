"""How the source row of a dead letter is found in its Kafka message."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T

from arrester.agents.dead_letters.row_json import as_json
from arrester.agents.spark.frames.column_names import in_quotes, text_literal
from arrester.agents.worker.columns import ROW

HEADERS: Final = "array<struct<key:string,value:binary>>"
#: The columns of Spark's Kafka source. The message has, or may show, all of them.
_COLUMNS: Final = frozenset(
    {"key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"}
)
_COORDINATES: Final = frozenset({"topic", "partition", "offset"})


def source_sql(row: T.StructType) -> str:
    """Return, as SQL, the header `__arrester.source` of records of Spark's Kafka source.

    It is the row as JSON, with the types of key and value, and the number of the headers: the
    message has these themselves. It is NULL for other records.
    """
    if not _COORDINATES <= set(row.names) <= _COLUMNS:
        return "CAST(NULL AS STRING)"
    fields = [(field.name, _field(field)) for field in row.fields]
    if any(sql is None for _, sql in fields):
        return "CAST(NULL AS STRING)"
    named = ", ".join(f"{text_literal(name)}, {sql}" for name, sql in fields)
    return as_json(f"named_struct({named})")


def _field(field: T.StructField) -> str | None:
    """Return a field as SQL; None if the message does not have this value as it is."""
    column = f"{ROW}.{in_quotes(field.name)}"
    if field.name == "headers":
        has_headers = field.dataType.simpleString() == HEADERS
        return f"if({column} IS NULL, NULL, size({column}))" if has_headers else None
    if field.name in ("key", "value"):
        kind = field.dataType.simpleString()
        return text_literal(kind) if kind in ("binary", "string") else None
    return column
