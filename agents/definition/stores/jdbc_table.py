"""A table of PostgreSQL that a sink writes: its connection, columns, numbers and staging tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from arrester.agents.spark import postgresql
from arrester.agents.spark.jvm.stores.jdbc_connection import JdbcConnection
from arrester.domain.errors import InvalidValue

#: Tables of killed runs are dropped later if a transaction still uses them.
_LOCK_TIMEOUT: Final = "SET lock_timeout = '1s'"
DRIVER: Final = "org.postgresql.Driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcTable:
    """A table with its database: rows are appended, or updated by a key."""

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

    @property
    def address(self) -> str:
        """The URL without the part that may have a password."""
        return without_arguments(self.url)

    def connect(self, spark: SparkSession) -> JdbcConnection:
        """Open a connection of the driver."""
        return JdbcConnection(spark, self.url, self.options)

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

    def last_number(self, connection: JdbcConnection, target: postgresql.Target) -> int:
        """Return the last number whose rows are written; -1 if there is none."""
        text = connection.value(postgresql.last_number(target), self.checkpoint)
        return -1 if text is None else int(text)

    def drop_left_tables(self, connection: JdbcConnection) -> None:
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


def without_arguments(url: str) -> str:
    """Return a URL without the part that may have a password."""
    return url.partition("?")[0]
