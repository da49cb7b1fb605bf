"""One write of a table of PostgreSQL, which stages its rows once and may be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.definition.stores.jdbc_table import JdbcTable
from arrester.agents.definition.stores.staged_write import StagedWrite
from arrester.agents.spark import postgresql
from arrester.agents.spark.frames.column_names import quoted
from arrester.agents.spark.jvm.plans.row_counter import RowCounter
from arrester.agents.spark.jvm.stores.jdbc_connection import JdbcConnection
from arrester.domain.errors import ArresterError

#: The most rows that are deleted from a staging table. To stage the others again takes as long.
_DELETED_ROWS: Final = 20_000


class StagedRowsDiffer(ArresterError):
    """A staging table has other rows than Spark wrote. They are staged again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRows:
    """Rows in a staging table that a search may insert. It ends with a rollback."""

    connection: JdbcConnection
    statements: postgresql.Statements


@dataclass(slots=True, kw_only=True)
class JdbcCall(StagedWrite):
    """Writes the rows of one number, once or again. Use it in a `with` block.

    Rows are staged once: a repeated write, and a search for refused rows, use the same staging
    table.
    """

    table: JdbcTable
    _connection: JdbcConnection | None = None
    _statements: postgresql.Statements | None = None
    #: The rows in the staging table; None if they are not staged.
    _rows: int | None = None

    def __enter__(self) -> JdbcCall:
        return self

    def stage(self, df: DataFrame, number: int) -> None:
        """Write the rows into the staging table."""
        with self._rolling_back():
            self._staged(self._connected(df.sparkSession), df)

    def publish(self, number: int) -> None:
        """Insert the staged rows, unless their number is stored.

        Raises StagedRowsDiffer, also if the connection to the staging table is lost, and exceptions
        of the JDBC driver.
        """
        if self._connection is None or self._statements is None or self._rows is None:
            raise StagedRowsDiffer(
                f"table {self.table.table!r}: the connection to the staging table was lost"
            )
        with self._rolling_back():
            target = self.table.target(self._connection)
            if self.table.last_number(self._connection, target) < number:
                self._insert(self._connection, self._statements, target, number)

    def write(self, df: DataFrame, number: int) -> None:
        """Write rows, unless their number is stored. `df` is not read if it is staged.

        Raises StagedRowsDiffer, and exceptions of Spark and the JDBC driver.
        """
        with self._rolling_back():
            connection = self._connected(df.sparkSession)
            target = self.table.target(connection)
            # Numbers only increase, and each is written before the next one.
            if self.table.last_number(connection, target) >= number:
                return
            self._insert(connection, self._staged(connection, df), target, number)

    def _insert(
        self,
        connection: JdbcConnection,
        statements: postgresql.Statements,
        target: postgresql.Target,
        number: int,
    ) -> None:
        """Insert the staged rows and store their number in one transaction."""
        connection.begin()
        self._check_rows(connection, statements)
        stored = connection.execute(postgresql.store_number(target), self.table.checkpoint, number)
        # If it was not stored, a transaction of a killed run has stored it meanwhile.
        if stored:
            connection.execute(statements.insert)
            connection.commit()

    def probe(self, df: DataFrame) -> None:
        """Raise where a write would, and leave nothing in the table."""
        with self._rolling_back():
            connection = self._connected(df.sparkSession)
            statements = self._staged(connection, df)
            connection.begin()
            self._check_rows(connection, statements)
            connection.execute(statements.insert)
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def probe_staging(self, df: DataFrame) -> None:
        """Raise where executors cannot send the rows, and leave nothing."""
        with JdbcCall(table=self.table) as call:
            call.stage(df, 0)

    @contextmanager
    def staged_rows(self) -> Iterator[StagedRows | None]:
        """Yield the staged rows, None if there are none."""
        if self._connection is None or self._statements is None or self._rows is None:
            yield None
            return
        with self._rolling_back():
            yield StagedRows(connection=self._connection, statements=self._statements)

    def leave_out(self, ids: DataFrame) -> None:
        """Delete staged rows by their numbers, so that the next write is without them."""
        if self._connection is None or self._statements is None or self._rows is None:
            return
        found = [int(row[0]) for row in ids.limit(_DELETED_ROWS + 1).collect()]
        if len(found) > _DELETED_ROWS:
            # The next write stages its rows.
            self.discard()
            return
        listed = "{" + ",".join(map(str, found)) + "}"
        try:
            self._rows -= self._connection.execute(self._statements.delete, listed)
        except Exception:  # of the JDBC driver: the next write opens another connection
            self.discard()

    def _connected(self, spark: SparkSession) -> JdbcConnection:
        if self._connection is None:
            self._connection = self.table.connect(spark)
        return self._connection

    def _staged(self, connection: JdbcConnection, df: DataFrame) -> postgresql.Statements:
        """Return the statements for the staging table, which has the rows from now on."""
        if self._statements is None or self._rows is None:
            self.table.drop_left_tables(connection)
            self._statements = self.table.statements(self.table.target(connection))
            connection.execute(self._statements.create)
            self._rows = self._stage(df, self._statements.staging)
        return self._statements

    def _stage(self, df: DataFrame, staging: str) -> int:
        """Write rows into a staging table, with numbers in their order unless they have some."""
        if postgresql.ROW_NUMBER not in df.columns:
            number = F.monotonically_increasing_id().alias(postgresql.ROW_NUMBER)
            df = df.select(number, *[quoted(name) for name in df.columns])
        df = df.select(*map(postgresql.as_staged, df.schema.fields))
        counter = RowCounter(df.sparkSession, name=None, counts_failed_tasks=False)
        writer = counter.counted(df).write.format("jdbc").mode("append")
        writer.options(**self.table.options, url=self.table.url, dbtable=staging).save()
        return counter.count

    def _check_rows(self, connection: JdbcConnection, statements: postgresql.Statements) -> None:
        """Raise StagedRowsDiffer if a Spark task that failed after its commit wrote rows twice."""
        rows = int(connection.value(f"SELECT count(*) FROM {statements.staging}") or 0)
        if rows != self._rows:
            expected, self._rows = self._rows, None
            raise StagedRowsDiffer(
                f"table {self.table.table!r}: the staging table has {rows:,} rows, and Spark wrote "
                f"{expected:,}; the write is repeated"
            )

    @contextmanager
    def _rolling_back(self) -> Iterator[None]:
        """Roll back what the block has not committed, and keep staged rows if it is possible."""
        try:
            yield
        finally:
            try:
                assert self._connection is not None
                self._connection.rollback()
                self._connection.value("SELECT 1")
            except Exception:  # also if there is no connection, or it is lost
                self.discard()
            if self._rows is None:
                self.discard()

    def discard(self) -> None:
        """Drop the staging table, and close the connection."""
        connection, statements = self._connection, self._statements
        self._connection = self._statements = self._rows = None
        if connection is None:
            return
        # If the connection is lost, the next call drops the staging table.
        with connection, suppress(Exception):
            connection.rollback()
            if statements is not None:
                connection.execute(f"DROP TABLE IF EXISTS {statements.staging}")
