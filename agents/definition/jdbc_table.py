"""A table of PostgreSQL as a sink: rows and number of a micro-batch in one transaction.

Executors write the rows into a staging table. The driver then inserts them into the table, and
stores the number, in one transaction. A repeated call finds its number, and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.definition.stored_numbers import check_last_number
from arrester.agents.spark import postgresql
from arrester.agents.spark.column_names import quoted
from arrester.agents.spark.jvm.jdbc_connection import JdbcConnection
from arrester.agents.spark.jvm.row_counter import RowCounter
from arrester.controlplane.domain.errors import ArresterError, InvalidValue

#: Tables of killed runs are dropped later if a transaction still uses them.
_LOCK_TIMEOUT: Final = "SET lock_timeout = '1s'"


class StagedRowsDiffer(ArresterError):
    """A staging table has other rows than Spark wrote. The call is repeated."""


class StagingFailed(ArresterError):
    """Spark could not write all rows into the staging table; `raised` has the reason."""

    def __init__(self, raised: Exception) -> None:
        super().__init__(str(raised))
        self.raised = raised


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRows:
    """The rows of one call in a staging table."""

    connection: JdbcConnection
    statements: postgresql.Statements


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcTable:
    """A function that writes rows into a table: appended, or updated by a key."""

    table: str
    #: It may have a password.
    url: str = field(repr=False)
    #: The columns that identify a row; none: append.
    key: tuple[str, ...] = ()
    #: Options of Spark and of the JDBC driver, with user and password.
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The columns of the rows.
    schema: T.StructType
    #: The id of the checkpoint whose numbers these are; empty before a run.
    checkpoint: str = ""

    def at(self, checkpoint: str) -> JdbcTable:
        """Return the table for the numbers of a checkpoint."""
        return replace(self, checkpoint=checkpoint)

    def connect(self, spark: SparkSession) -> JdbcConnection:
        """Open a connection of the driver."""
        return JdbcConnection(spark, self.url, self.options)

    def __call__(self, df: DataFrame, number: int) -> None:
        """Write one micro-batch, or one chunk of held records, unless its number is stored.

        Raises StagedRowsDiffer, and exceptions of Spark and the JDBC driver.
        """
        with self.connect(df.sparkSession) as connection:
            target = self.target(connection)
            # Numbers only increase, and each is written before the next one.
            if self._last_number(connection, target) >= number:
                return
            with self._staging(connection, target) as statements:
                self._stage(connection, statements.staging, df)
                connection.begin()
                stored = connection.execute(
                    postgresql.store_number(target), self.checkpoint, number
                )
                # Otherwise a transaction of a killed run has stored it meanwhile.
                if stored:
                    connection.execute(statements.insert)
                    connection.commit()

    def probe(self, df: DataFrame) -> None:
        """Raise where the write would, and leave nothing."""
        with self._new_staging(df.sparkSession) as (connection, statements):
            self._stage(connection, statements.staging, df)
            connection.begin()
            connection.execute(statements.insert)
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    @contextmanager
    def staged_rows(self, rows: DataFrame) -> Iterator[StagedRows]:
        """Write rows into a new staging table; the caller's transaction is rolled back.

        Raises StagingFailed, and exceptions of the JDBC driver.
        """
        with self._new_staging(rows.sparkSession) as (connection, statements):
            try:
                self._stage(connection, statements.staging, rows)
            except Exception as exc:  # of a Spark job: executors write the rows
                raise StagingFailed(exc) from exc
            yield StagedRows(connection=connection, statements=statements)

    def target(self, connection: JdbcConnection) -> postgresql.Target:
        """Return the table as it is now; raises InvalidValue if it is missing."""
        description = connection.value(postgresql.DESCRIBE, self.table)
        if description is None:
            raise InvalidValue("write_jdbc: table", self.table, "a table that exists; create it")
        return postgresql.Target.of(description)

    def statements(self, target: postgresql.Target) -> postgresql.Statements:
        """Return the statements for a new staging table."""
        name = f"{postgresql.staging_prefix(self.checkpoint)}{uuid4().hex[:12]}"
        return postgresql.Statements(
            target=target,
            columns=target.staged(self.schema),
            key=self.key,
            staging=f"{target.schema}.{name}",
        )

    @contextmanager
    def _new_staging(
        self, spark: SparkSession
    ) -> Iterator[tuple[JdbcConnection, postgresql.Statements]]:
        """Open a connection with a staging table, until the end of the block."""
        with (
            self.connect(spark) as connection,
            self._staging(connection, self.target(connection)) as statements,
        ):
            yield connection, statements

    @contextmanager
    def _staging(
        self, connection: JdbcConnection, target: postgresql.Target
    ) -> Iterator[postgresql.Statements]:
        """Create a staging table and drop it at the end; the next call drops that of a killed run.

        A transaction that the caller has not committed is rolled back.
        """
        self._drop_left_tables(connection)
        statements = self.statements(target)
        connection.execute(statements.create)
        try:
            yield statements
        finally:
            # Without the connection, the next call drops it.
            with suppress(Exception):
                connection.rollback()
                connection.execute(f"DROP TABLE {statements.staging}")

    def _stage(self, connection: JdbcConnection, staging: str, df: DataFrame) -> None:
        """Write rows into a staging table, with numbers in their order unless they have some."""
        if postgresql.ROW_NUMBER not in df.columns:
            number = F.monotonically_increasing_id().alias(postgresql.ROW_NUMBER)
            df = df.select(number, *[quoted(name) for name in df.columns])
        counter = RowCounter(df.sparkSession, name=None, counts_failed_tasks=False)
        writer = counter.counted(df).write.format("jdbc").mode("append")
        writer.options(**self.options, url=self.url, dbtable=staging).save()
        # A Spark task that failed after its commit has written its rows twice.
        rows = int(connection.value(f"SELECT count(*) FROM {staging}") or 0)
        if rows != counter.count:
            raise StagedRowsDiffer(
                f"table {self.table!r}: the staging table has {rows:,} rows, and Spark wrote "
                f"{counter.count:,}; the write is repeated"
            )

    def check_last_number(self, spark: SparkSession, latest: int) -> None:
        """Raise LaterNumberWritten if the stored number is after the `latest` that a run has
        used."""
        with self.connect(spark) as connection:
            last = self._last_number(connection, self.target(connection))
        place = f"table {self.table!r}: {postgresql.NUMBERS}"
        check_last_number(place, last, checkpoint=self.checkpoint, latest=latest)

    def _last_number(self, connection: JdbcConnection, target: postgresql.Target) -> int:
        """Return the last number whose rows are written; -1 if there is none."""
        text = connection.value(postgresql.last_number(target), self.checkpoint)
        return -1 if text is None else int(text)

    def _drop_left_tables(self, connection: JdbcConnection) -> None:
        """Drop staging tables of killed runs at this checkpoint."""
        prefix = postgresql.staging_prefix(self.checkpoint)
        left = connection.value(postgresql.LEFT_STAGING_TABLES, self.table, prefix)
        if left is None:
            return
        connection.execute(_LOCK_TIMEOUT)
        for name in json.loads(left):
            with suppress(Exception):
                connection.execute(f"DROP TABLE IF EXISTS {name}")
        connection.execute("RESET lock_timeout")
