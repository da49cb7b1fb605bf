"""Checks of `.write_jdbc`: its arguments at the definition, the database at the start of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from arrester.agents.arguments import check_mapping, check_text, nearest, wrong_type
from arrester.agents.definition.jdbc_table import JdbcTable
from arrester.agents.spark import postgresql
from arrester.agents.spark.jvm.causes import cause_of
from arrester.agents.spark.jvm.jdbc_connection import JdbcConnection, java_message, sql_state
from arrester.controlplane.domain.error_policy.classify import DEFAULT_TABLE, Kind
from arrester.controlplane.domain.errors import InvalidValue

DRIVER: Final = "org.postgresql.Driver"
_URL: Final = "jdbc:postgresql:"
_URL_RULE: Final = (
    "a URL of PostgreSQL, jdbc:postgresql://host:port/database; for other stores use .write(fn)"
)
#: The driver sends many rows as one statement.
_DEFAULTS: Final = {"driver": DRIVER, "reWriteBatchedInserts": "true"}
#: Options of Spark's writer that the sink sets itself.
_OWN_OPTIONS: Final = ("url", "dbtable", "query", "truncate")
_DRIVER_RULE: Final = (
    "a class on Spark's class path: add the driver, such as "
    "spark.jars.packages=org.postgresql:postgresql:42.7.8"
)


def checked_jdbc_table(
    schema: T.StructType,
    *,
    table: object,
    url: object,
    key: object,
    options: Mapping[str, object] | None,
) -> JdbcTable:
    """Return the sink of `.write_jdbc` for rows with `schema`; raises InvalidValue."""
    check_text("write_jdbc: table", table, "the name of a table, with or without its schema")
    check_text("write_jdbc: url", url, _URL_RULE)
    check_mapping("write_jdbc: options", options, "a mapping: user, password, options of Spark")
    address = str(url)
    if not address.startswith(_URL):
        raise InvalidValue("write_jdbc: url", _without_arguments(address), _URL_RULE)
    for name in options or {}:
        check_text("write_jdbc: options", name, "names of options, which are texts")
        if name.lower() in _OWN_OPTIONS:
            raise InvalidValue("write_jdbc: options", name, "other options: the sink sets this one")
    _check_types(schema)
    given = {name: str(value) for name, value in (options or {}).items()}
    known = {name.lower() for name in given}
    defaults = {name: value for name, value in _DEFAULTS.items() if name.lower() not in known}
    return JdbcTable(
        table=str(table),
        url=address,
        key=_checked_key(key, schema.names),
        options={**defaults, **given},
        schema=schema,
    )


def _check_types(schema: T.StructType) -> None:
    for field in schema:
        if postgresql.staging_type(field.dataType) is None:
            allowed = (
                f"columns that JDBC can write; {field.name} has the type "
                f"{field.dataType.simpleString()}: drop it, or use to_json for a json column"
            )
            raise InvalidValue("write_jdbc: column", field.name, allowed)


def _checked_key(key: object, columns: Sequence[str]) -> tuple[str, ...]:
    names = (key,) if isinstance(key, str) else key
    if not isinstance(names, list | tuple):
        raise wrong_type("write_jdbc: key", key, "names of columns, in a list; empty to append")
    for name in names:
        if name not in columns:
            hint = nearest(str(name), columns) or f": {', '.join(columns)}"
            raise InvalidValue("write_jdbc: key", name, f"a column of the rows{hint}")
    return tuple(names)


def check_database(table: JdbcTable, spark: SparkSession) -> None:
    """Raise InvalidValue if the table cannot be written; creates the table of numbers.

    All other statements of a write are tried without rows, and rolled back.
    """
    name = "spark.speculation"
    if spark.sparkContext.getConf().get(name, "false").lower() == "true":
        allowed = "false with write_jdbc: two Spark tasks would write one row"
        raise InvalidValue(name, "true", allowed)
    try:
        connection = table.connect(spark)
    except Exception as exc:  # of the JDBC driver, or of Spark without one
        raise _unreachable(table, exc) from exc
    with connection:
        target = table.target(connection)
        _check_columns(table, target)
        try:
            _try_statements(table, connection, target)
        except Exception as exc:  # of the JDBC driver
            raise _refused(table, exc) from exc


def _check_columns(table: JdbcTable, target: postgresql.Target) -> None:
    for name in table.schema.names:
        if target.column(name) is None:
            known = [each.name for each in target.columns]
            allowed = f"a column of the table {target.name}"
            hint = nearest(name, known) or f": {', '.join(known)}"
            raise InvalidValue("write_jdbc: column", name, f"{allowed}{hint}")


def _try_statements(
    table: JdbcTable, connection: JdbcConnection, target: postgresql.Target
) -> None:
    _create_numbers(connection, target)
    statements = table.statements(target)
    connection.begin()
    connection.execute(statements.create)
    connection.execute(statements.insert)
    connection.execute(postgresql.store_number(target), "", 0)
    connection.rollback()


def _create_numbers(connection: JdbcConnection, target: postgresql.Target) -> None:
    """Create the table of numbers unless it exists."""
    exists = "SELECT to_regclass(?)"
    if connection.value(exists, target.numbers) is not None:
        return
    try:
        connection.execute(postgresql.create_numbers(target))
    except Exception:
        # Of two that create it at the same time, one fails even with IF NOT EXISTS.
        if connection.value(exists, target.numbers) is None:
            raise


def _unreachable(table: JdbcTable, exc: Exception) -> InvalidValue:
    """Return what is wrong with driver, address or login."""
    message = java_message(exc)
    driver = table.options["driver"]
    state = sql_state(exc)
    if "ClassNotFoundException" in str(exc) or driver in message:
        return InvalidValue("write_jdbc: driver", driver, _DRIVER_RULE)
    if state is not None and state.startswith("28"):
        user = table.options.get("user")
        return InvalidValue(
            "write_jdbc: user", user, f"a user and password that the server accepts ({message})"
        )
    allowed = f"a database that accepts connections ({message})"
    return InvalidValue("write_jdbc: url", _without_arguments(table.url), allowed)


def _refused(table: JdbcTable, exc: Exception) -> InvalidValue:
    """Return what is wrong with the table, for a statement that it refuses without rows."""
    message, state = java_message(exc), sql_state(exc)
    if state == "42P10":
        allowed = (
            f"columns with a unique index: CREATE UNIQUE INDEX ON {table.table} "
            f"({', '.join(table.key)})"
        )
        return InvalidValue("write_jdbc: key", list(table.key), allowed)
    if state == "42501":
        allowed = (
            "a table that this user may write, in a schema where it may create tables: GRANT "
            f"CREATE ON its schema, GRANT INSERT, SELECT, UPDATE ON the table ({message})"
        )
        return InvalidValue("write_jdbc: table", table.table, allowed)
    if DEFAULT_TABLE.classify(cause_of(exc)).kind is Kind.RETRIABLE:
        allowed = f"a table that is not locked, in a database that is not busy ({message})"
        return InvalidValue("write_jdbc: table", table.table, allowed)
    allowed = f"a table that accepts rows of these columns ({message})"
    return InvalidValue("write_jdbc: table", table.table, allowed)


def _without_arguments(url: str) -> str:
    """Return a URL without the part that may have a password."""
    return url.partition("?")[0]
