"""Check the database of `.write_jdbc` at the start of a run."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from arrester.agents.arguments import nearest
from arrester.agents.definition.stores.jdbc_table import JdbcTable
from arrester.agents.spark import postgresql
from arrester.agents.spark.jvm.exceptions.causes import cause_of
from arrester.agents.spark.jvm.stores.jdbc_connection import JdbcConnection, java_message, sql_state
from arrester.domain.error_policy.classify import DEFAULT_TABLE, Kind
from arrester.domain.errors import InvalidValue

_DRIVER_RULE: Final = (
    "a class on Spark's class path: add the driver, such as "
    "spark.jars.packages=org.postgresql:postgresql:42.7.8"
)


def check_database(table: JdbcTable, spark: SparkSession) -> None:
    """Raise InvalidValue if the table cannot be written.

    The table of numbers is created. All other statements of a write are tried without rows, and
    rolled back.
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
    _create_numbers_table(connection, target)
    statements = table.statements(target)
    connection.begin()
    connection.execute(statements.create)
    connection.execute(statements.insert)
    connection.execute(postgresql.store_number(target), "", 0)
    connection.rollback()


def _create_numbers_table(connection: JdbcConnection, target: postgresql.Target) -> None:
    """Create the table of numbers unless it exists."""
    exists = "SELECT to_regclass(?)"
    if connection.value(exists, target.numbers_table) is not None:
        return
    try:
        connection.execute(postgresql.create_numbers_table(target))
    except Exception:
        # If two runs create it at the same time, one fails even with IF NOT EXISTS.
        if connection.value(exists, target.numbers_table) is None:
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
    return InvalidValue("write_jdbc: url", table.address, allowed)


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
