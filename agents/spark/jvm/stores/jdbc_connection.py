"""A connection of the driver to a database, opened by the JDBC driver that Spark uses."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.exceptions.causes import java_chain, java_condition

_OPTIONS = "org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions"
_DIALECTS = "org.apache.spark.sql.jdbc.JdbcDialects"
_PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
#: Where PostgreSQL reports the refusal of a row: RAISE of a trigger, and row-level security. Other
#: functions report missing rights and tables, for each row that needs them.
_REFUSING_ROUTINES = ("exec_stmt_raise", "ExecWithCheckOptions")
#: Spark's number for a connection that is not of a partition.
_OF_DRIVER = -1


class JdbcConnection:
    """A connection, in autocommit mode until `begin`. Use it in a `with` block, which closes it.

    Exceptions are those of the JDBC driver, as Py4JJavaError.
    """

    def __init__(self, spark: SparkSession, url: str, options: Mapping[str, str]) -> None:
        jvm: Any = spark._jvm
        settings = jvm_class(jvm, _PYTHON_UTILS).toScalaMap(dict(options))
        # A table is mandatory there, and not used for a connection.
        spark_options = jvm_class(jvm, _OPTIONS)(url, "none", settings)
        dialect = jvm_class(jvm, _DIALECTS).get(url)
        self._connection = dialect.createConnectionFactory(spark_options).apply(_OF_DRIVER)
        self._has_begun = False

    def __enter__(self) -> JdbcConnection:
        return self

    def __exit__(self, *exc: object) -> None:
        # The server rolls back what is not committed.
        with suppress(Py4JJavaError):
            self._connection.close()

    def execute(self, sql: str, *parameters: object) -> int:
        """Run a statement without a result; return the number of changed rows."""
        statement = self._prepared(sql, parameters)
        try:
            return int(statement.executeUpdate())
        finally:
            statement.close()

    def value(self, sql: str, *parameters: object) -> str | None:
        """Return the only value of a query as text; None if it is NULL or there is no row."""
        statement = self._prepared(sql, parameters)
        try:
            rows = statement.executeQuery()
            text = rows.getString(1) if rows.next() else None
            return None if text is None else str(text)
        finally:
            statement.close()

    def begin(self) -> None:
        """Begin a transaction."""
        self._connection.setAutoCommit(False)
        self._has_begun = True

    def commit(self) -> None:
        """Commit the transaction."""
        self._connection.commit()
        self._end()

    def rollback(self) -> None:
        """Roll the transaction back, if one has begun."""
        if self._has_begun:
            self._connection.rollback()
            self._end()

    def _end(self) -> None:
        self._connection.setAutoCommit(True)
        self._has_begun = False

    def _prepared(self, sql: str, parameters: tuple[object, ...]) -> Any:
        statement = self._connection.prepareStatement(sql)
        for number, parameter in enumerate(parameters, start=1):
            statement.setObject(number, parameter)
        return statement


def sql_state(exc: BaseException) -> str | None:
    """Return the SQLSTATE of an exception of a JDBC driver, or of one of its causes."""
    if not isinstance(exc, Py4JJavaError):
        return None
    states = (java_condition(link) for link in java_chain(exc.java_exception))
    return next((state for state in states if state is not None), None)


def is_refusal_of_row(exc: BaseException) -> bool:
    """Whether a rule of the database, not one of its rights, refuses a row with this exception."""
    if not isinstance(exc, Py4JJavaError):
        return False
    for link in java_chain(exc.java_exception):
        try:
            error = link.getServerErrorMessage()
        except Py4JError:  # it has no such method
            continue
        return error is not None and error.getRoutine() in _REFUSING_ROUTINES
    return False


def java_message(exc: Exception) -> str:
    """Return the message of a Java exception in one line, that of any other exception as text."""
    message = exc.java_exception.getMessage() if isinstance(exc, Py4JJavaError) else exc
    return " ".join(str(message).split())
