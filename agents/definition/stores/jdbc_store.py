"""A table of PostgreSQL as a sink: rows and number of a micro-batch in one transaction.

Executors write the rows into a staging table. The driver then inserts them into the table, and
stores the number, in one transaction. A repeated call finds its number, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from arrester.agents.arguments import check_mapping, check_text, nearest, wrong_type
from arrester.agents.definition.stores.jdbc_call import JdbcCall
from arrester.agents.definition.stores.jdbc_checks import check_database
from arrester.agents.definition.stores.jdbc_table import DRIVER, JdbcTable, without_arguments
from arrester.agents.definition.stores.sink_store import NumberedTable, ProbeFunction, ScratchFolder
from arrester.agents.definition.stores.staged_write import StagedWrite
from arrester.agents.definition.stores.stored_numbers import check_last_number
from arrester.agents.spark import postgresql
from arrester.domain.errors import InvalidValue

_URL: Final = "jdbc:postgresql:"
_URL_RULE: Final = (
    "a URL of PostgreSQL, jdbc:postgresql://host:port/database; for other stores use .write(fn)"
)
#: The driver sends many rows as one statement.
_DEFAULTS: Final = {"driver": DRIVER, "reWriteBatchedInserts": "true"}
#: Options of Spark's writer that the sink sets itself.
_OWN_OPTIONS: Final = ("url", "dbtable", "query", "truncate")


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcStore(JdbcTable, NumberedTable):
    """Writes rows into a table: appended, or updated by a key."""

    is_database = True

    def at(self, checkpoint: str) -> JdbcStore:
        """Return the table for the numbers of a checkpoint."""
        return replace(self, checkpoint=checkpoint)

    def check(self, spark: SparkSession) -> None:
        """Raise InvalidValue if the table cannot be written; creates the table of numbers."""
        check_database(self, spark)

    def __call__(self, df: DataFrame, number: int) -> None:
        """Write one micro-batch, or one chunk of held records, unless its number is stored.

        Raises StagedRowsDiffer, and exceptions of Spark and the JDBC driver.
        """
        with self.open_call() as call:
            call.write(df, number)

    def can_stage(self, spark: SparkSession) -> bool:
        """Return True."""
        return True

    def open_staged_write(self, spark: SparkSession) -> StagedWrite:
        """Return a write into a staging table of the database."""
        return self.open_call()

    def open_call(self) -> JdbcCall:
        """Return a call, which may write several times."""
        return JdbcCall(table=self)

    def probe(self, scratch: ScratchFolder) -> ProbeFunction:
        """Return a function that raises where the write would, and leaves nothing."""

        def write(rows: DataFrame) -> None:
            with self.open_call() as call:
                call.probe(rows)

        return write

    def check_last_number(self, spark: SparkSession, latest: int) -> None:
        """Raise LaterNumberWritten if the stored number is after the `latest` that a run has
        used."""
        with self.connect(spark) as connection:
            last = self.last_number(connection, self.target(connection))
        place = f"table {self.table!r}: {postgresql.NUMBERS}"
        check_last_number(place, last, checkpoint=self.checkpoint, latest=latest)


def checked_jdbc_table(
    schema: T.StructType,
    *,
    table: object,
    url: object,
    key: object,
    options: Mapping[str, object] | None,
) -> JdbcStore:
    """Return the sink of `.write_jdbc` for rows with `schema`; raises InvalidValue."""
    check_text("write_jdbc: table", table, "the name of a table, with or without its schema")
    check_text("write_jdbc: url", url, _URL_RULE)
    check_mapping("write_jdbc: options", options, "a mapping: user, password, options of Spark")
    address = str(url)
    if not address.startswith(_URL):
        raise InvalidValue("write_jdbc: url", without_arguments(address), _URL_RULE)
    for name in options or {}:
        check_text("write_jdbc: options", name, "names of options, which are texts")
        if name.lower() in _OWN_OPTIONS:
            raise InvalidValue("write_jdbc: options", name, "other options: the sink sets this one")
    _check_types(schema)
    given = {name: str(value) for name, value in (options or {}).items()}
    known = {name.lower() for name in given}
    defaults = {name: value for name, value in _DEFAULTS.items() if name.lower() not in known}
    return JdbcStore(
        table=str(table),
        url=address,
        key=_checked_key(key, schema.names),
        options={**defaults, **given},
        schema=schema,
    )


def _check_types(schema: T.StructType) -> None:
    for column in schema:
        if postgresql.staging_type(column.dataType) is None:
            allowed = (
                f"columns that JDBC can write; {column.name} has the type "
                f"{column.dataType.simpleString()}: drop it, or use to_json for a json column"
            )
            raise InvalidValue("write_jdbc: column", column.name, allowed)


def _checked_key(key: object, columns: Sequence[str]) -> tuple[str, ...]:
    names = (key,) if isinstance(key, str) else key
    if not isinstance(names, list | tuple):
        raise wrong_type("write_jdbc: key", key, "names of columns, in a list; empty to append")
    for name in names:
        if name not in columns:
            hint = nearest(str(name), columns) or f": {', '.join(columns)}"
            raise InvalidValue("write_jdbc: key", name, f"a column of the rows{hint}")
    return tuple(names)
