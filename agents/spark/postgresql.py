"""Statements for a table of PostgreSQL: a staging table, and the insert of its rows.

Strings are staged as text and cast by the insert, so a value that the table refuses fails there,
not on executors. PostgreSQL refuses a text that is too long for varchar(n) only without an explicit
cast; with one, it would cut it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.spark.frames.column_names import quoted as quoted_column

#: The column of a staging table that numbers its rows.
ROW_NUMBER: Final = "__arrester_id"
#: The table of numbers: the last number that was written from each checkpoint. It is in the schema
#: of the target.
NUMBERS: Final = "arrester_numbers"
_STAGING: Final = "arrester_staging_"
_TYPES: Final = {
    T.ByteType: "smallint",
    T.ShortType: "smallint",
    T.IntegerType: "integer",
    T.LongType: "bigint",
    T.FloatType: "real",
    T.DoubleType: "double precision",
    T.BooleanType: "boolean",
    T.BinaryType: "bytea",
    T.StringType: "text",
    T.VarcharType: "text",
    T.CharType: "text",
    T.DateType: "date",
    T.TimestampType: "timestamp with time zone",
    T.TimestampNTZType: "text",
}
_TEMPORAL: Final = (T.DateType, T.TimestampType)
#: Types whose values are staged as text: see `as_staged`.
_TEXTS: Final = (T.StringType, T.VarcharType, T.CharType, T.TimestampNTZType)
#: Categories of PostgreSQL's types.
_STRINGS, _DATES_AND_TIMES = "S", "D"

#: Name, schema and columns of a table; NULL if there is none. Types are without length.
DESCRIBE: Final = """\
SELECT json_build_object(
    'name', format('%I.%I', n.nspname, c.relname),
    'schema', quote_ident(n.nspname),
    'columns', (
        SELECT coalesce(json_agg(json_build_array(
            a.attname, format_type(a.atttypid, -1), t.typcategory) ORDER BY a.attnum), '[]')
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(?)"""
#: The staging tables in the schema of a table whose names begin with a text.
LEFT_STAGING_TABLES: Final = """\
SELECT json_agg(format('%I.%I', n.nspname, s.relname))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class s ON s.relnamespace = n.oid
WHERE c.oid = to_regclass(?) AND s.relkind = 'r' AND starts_with(s.relname, ?)"""


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of a table: name, type without length, and category of the type."""

    name: str
    type: str
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedColumn:
    """A column of a DataFrame, in the staging table and in the target."""

    name: str
    type: str
    target: TargetColumn
    #: Whether the insert casts it explicitly: there is no assignment from text to most types.
    is_cast: bool

    @property
    def value(self) -> str:
        """The expression that the target gets."""
        return self.cast_value if self.is_cast else quoted(self.name)

    @property
    def cast_value(self) -> str:
        """The value in the type of the target, by whose equality it is compared."""
        return f"CAST({quoted(self.name)} AS {self.target.type})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table that exists, by its quoted name with the schema."""

    name: str
    schema: str
    columns: Sequence[TargetColumn]

    @classmethod
    def of(cls, description: str) -> Target:
        """Return the table of a result of DESCRIBE."""
        found = json.loads(description)
        columns = [TargetColumn(*each) for each in found["columns"]]
        return cls(name=found["name"], schema=found["schema"], columns=columns)

    @property
    def numbers_table(self) -> str:
        """The quoted name of the table of numbers."""
        return f"{self.schema}.{NUMBERS}"

    def column(self, name: str) -> TargetColumn | None:
        """Return the column of this name, else the only one whose name differs in case."""
        exact = [each for each in self.columns if each.name == name]
        alike = exact or [each for each in self.columns if each.name.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None

    def staged(self, schema: T.StructType) -> list[StagedColumn]:
        """Return the columns of a DataFrame; the target has each of them."""
        columns = []
        for field in schema:
            target = self.column(field.name)
            type_ = staging_type(field.dataType)
            assert target is not None
            assert type_ is not None
            if isinstance(field.dataType, _TEMPORAL) and target.category == _DATES_AND_TIMES:
                # With or without time zone: the driver sends it as the column wants it.
                type_ = target.type
            is_text = isinstance(field.dataType, _TEXTS) and target.category != _STRINGS
            is_cast = is_text or isinstance(field.dataType, T.ArrayType)
            columns.append(
                StagedColumn(name=field.name, type=type_, target=target, is_cast=is_cast)
            )
        return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The statements for one staging table."""

    target: Target
    columns: Sequence[StagedColumn]
    #: The columns of the DataFrame that identify a row of the target; none: append.
    key: Sequence[str]
    #: The quoted name of the staging table, with the schema.
    staging: str

    @property
    def create(self) -> str:
        """The statement that makes the staging table. It is not logged: a crash empties it."""
        columns = "".join(f", {quoted(each.name)} {each.type}" for each in self.columns)
        return f"CREATE UNLOGGED TABLE {self.staging} ({quoted(ROW_NUMBER)} bigint{columns})"

    @property
    def insert(self) -> str:
        """The statement that inserts all staged rows into the target."""
        return self._insert("")

    @property
    def insert_range(self) -> str:
        """The same for the rows with numbers between two parameters."""
        return self._insert(f" WHERE {quoted(ROW_NUMBER)} BETWEEN ? AND ?")

    @property
    def delete(self) -> str:
        """The statement that deletes staged rows; its parameter is an array of numbers as text."""
        return f"DELETE FROM {self.staging} WHERE {quoted(ROW_NUMBER)} = ANY (CAST(? AS bigint[]))"

    @property
    def index(self) -> str:
        """The statement that makes an index of the numbers of rows."""
        return f"CREATE INDEX ON {self.staging} ({quoted(ROW_NUMBER)})"

    def _insert(self, where: str) -> str:
        names = ", ".join(quoted(each.target.name) for each in self.columns)
        values = ", ".join(each.value for each in self.columns)
        into = f"INSERT INTO {self.target.name} ({names}) SELECT {values} FROM "
        if not self.key:
            return f"{into}{self.staging}{where}"
        by_name = {each.name: each for each in self.columns}
        key = [by_name[name] for name in self.key]
        # Of rows with one key the last one is written. A key with a NULL equals no other.
        has_null = " OR ".join(f"{quoted(each.name)} IS NULL" for each in key)
        distinct = [each.cast_value for each in key]
        distinct.append(f"CASE WHEN {has_null} THEN {quoted(ROW_NUMBER)} END")
        keys = ", ".join(distinct)
        rows = (
            f"(SELECT DISTINCT ON ({keys}) * FROM {self.staging}{where} "
            f"ORDER BY {keys}, {quoted(ROW_NUMBER)} DESC) AS last_rows"
        )
        others = [quoted(each.target.name) for each in self.columns if each.name not in self.key]
        updates = ", ".join(f"{name} = excluded.{name}" for name in others)
        action = f"UPDATE SET {updates}" if updates else "NOTHING"
        conflict = ", ".join(quoted(each.target.name) for each in key)
        return f"{into}{rows} ON CONFLICT ({conflict}) DO {action}"


def create_numbers_table(target: Target) -> str:
    """Return the statement that creates the table of numbers."""
    return (
        f"CREATE TABLE IF NOT EXISTS {target.numbers_table} (checkpoint text PRIMARY KEY, "
        "number bigint NOT NULL, written_at timestamp with time zone NOT NULL DEFAULT now())"
    )


def last_number(target: Target) -> str:
    """Return the query for the last number of a checkpoint."""
    return f"SELECT number FROM {target.numbers_table} WHERE checkpoint = ?"


def store_number(target: Target) -> str:
    """Return the statement that stores a number; it changes no row if a later one is there."""
    return (
        f"INSERT INTO {target.numbers_table} AS last (checkpoint, number) VALUES (?, ?) "
        "ON CONFLICT (checkpoint) DO UPDATE SET number = excluded.number, written_at = now() "
        "WHERE last.number < excluded.number"
    )


def staging_type(kind: T.DataType) -> str | None:
    """Return the type of a column in a staging table; None if JDBC cannot write it."""
    if isinstance(kind, T.DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, T.ArrayType):
        is_nested = isinstance(kind.elementType, T.ArrayType)
        element = None if is_nested else staging_type(kind.elementType)
        return None if element is None else f"{element}[]"
    return _TYPES.get(type(kind))


def as_staged(field: T.StructField) -> Column:
    """Return a column of a DataFrame as it is staged: a time without a zone as text.

    Spark gives it to JDBC as an instant in the zone of the JVM, in which the time may not exist.
    """
    column, kind = quoted_column(field.name), field.dataType
    if isinstance(kind, T.TimestampNTZType):
        return _without_plus(column).alias(field.name)
    if isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.TimestampNTZType):
        return F.transform(column, _without_plus).alias(field.name)
    return column


def _without_plus(time: Column) -> Column:
    """Return a time as text; PostgreSQL does not read the sign of a year after 9999."""
    return F.regexp_replace(time.cast("string"), "^[+]", "")


def staging_prefix(checkpoint: str) -> str:
    """Return the text with which the names of a checkpoint's staging tables begin."""
    digest = hashlib.sha256(checkpoint.encode()).hexdigest()
    return f"{_STAGING}{digest[:12]}_"


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
