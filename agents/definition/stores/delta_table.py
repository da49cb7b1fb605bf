"""A Delta table as a sink: each number is written once, by Delta's own idempotent writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as T

from arrester.agents.arguments import check_mapping, check_text, first_line
from arrester.agents.definition.stores.sink_store import (
    NumberedTable,
    TableReplaced,
    WritesIntoFolder,
)
from arrester.agents.definition.stores.staged_write import StagedWrite
from arrester.agents.definition.stores.stored_numbers import check_last_number
from arrester.agents.definition.stores.table_columns import missing_columns
from arrester.agents.definition.stores.table_constraints import (
    Constraint,
    refused_nulls,
    refused_rows,
)
from arrester.agents.spark.frames.column_names import in_quotes
from arrester.agents.spark.jvm.stores import delta
from arrester.domain.errors import InvalidValue

#: Options of the writer that the sink sets itself.
_OWN_OPTIONS: Final = ("path", "replacewhere", "txnappid", "txnversion")
_TABLE_RULE: Final = "the path or the name of a Delta table"
_MERGE: Final = "mergeschema"
#: The prefix of a property with a CHECK constraint.
_CHECK: Final = "delta.constraints."
#: The class of the exceptions about refused rows.
REFUSED: Final = "org.apache.spark.sql.delta.schema.DeltaInvariantViolationException"
_MESSAGES: Final = {
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": "NOT NULL constraint violated for column ",
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": "CHECK constraint violated: ",
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT": "the text is too long for the column ",
}
#: In the metadata of a column that Delta fills in.
_FILLED_IN: Final = ("delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTable(NumberedTable, WritesIntoFolder):
    """Appends rows to a Delta table."""

    #: A path, if it has a slash, else the name of a table.
    table: str
    #: Options of Delta's writer.
    options: Mapping[str, str] = field(default_factory=dict)
    #: The columns of the rows.
    schema: T.StructType = field(repr=False)
    #: The id of the checkpoint whose numbers these are; empty before a run.
    checkpoint: str = ""

    has_known_constraints = True

    def at(self, checkpoint: str) -> DeltaTable:
        """Return the table for the numbers of a checkpoint."""
        return replace(self, checkpoint=checkpoint)

    def __call__(self, df: DataFrame, number: int) -> None:
        """Append one micro-batch, or one chunk of held records; a repeated number writes nothing.

        Delta keeps the newest number of each application in the table's log.
        """
        if not self.can_stage(df.sparkSession):
            numbers = {"txnAppId": self._application, "txnVersion": str(number)}
            self._append(df, self._identifier, numbers)
            return
        append = self.begin_append(df, number)
        if not append.has_number():
            append.write()
            self.commit(append)

    def begin_append(self, df: DataFrame, number: int) -> delta.Append:
        """Return an append of the rows in a transaction, which has not written them."""
        return delta.Append.begin(
            df,
            self._identifier,
            options=self.options,
            application=self._application,
            number=number,
        )

    def commit(self, append: delta.Append) -> None:
        """Show the rows of an append; raises TableReplaced and exceptions of Delta."""
        if not append.is_of_current_table():
            raise TableReplaced(
                f"table {self.table!r} was deleted, or deleted and created again, while its rows "
                "were written"
            )
        append.commit()

    def can_stage(self, spark: SparkSession) -> bool:
        """Whether it knows the transactions of this session's Delta."""
        return delta.can_append_in_transaction(spark)

    def open_staged_write(self, spark: SparkSession) -> StagedDeltaAppend:
        """Return an append in a transaction."""
        return StagedDeltaAppend(table=self)

    def refused(self, rows: DataFrame) -> DataFrame:
        """Return the rows that a constraint of the table refuses, with the columns REASON: NOT
        NULL, CHECK, and the length of texts."""
        spark = rows.sparkSession
        table = spark.table(self._identifier).schema
        properties = spark.sql(f"SHOW TBLPROPERTIES {self._identifier}").collect()
        checks = (
            _constraint(
                "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", text, f"NOT coalesce({text}, false)"
            )
            for key, text in properties
            if key.startswith(_CHECK)
        )
        return refused_rows(rows, table, [*_not_null(table), *_too_long(table), *checks])

    def write_into(self, df: DataFrame, folder: str) -> None:
        """Append the rows to a clone with the same constraints, in a folder that must not exist."""
        df.sparkSession.sql(f"CREATE TABLE {_quoted(folder)} SHALLOW CLONE {self._identifier}")
        self._append(df, _quoted(folder), {})

    def check(self, spark: SparkSession) -> None:
        """Raise InvalidValue if the rows do not fit the table, or if there is none."""
        try:
            table = spark.table(self._identifier).schema
            format = self._detail(spark)["format"]
        except PySparkException as exc:
            allowed = f"{_TABLE_RULE} that this session can read ({first_line(exc)})"
            raise InvalidValue("write_delta: table", self.table, allowed) from exc
        if format != "delta":
            allowed = f"{_TABLE_RULE}; this one has the format {format}"
            raise InvalidValue("write_delta: table", self.table, allowed)
        self._check_columns(table)

    def check_last_number(self, spark: SparkSession, latest: int) -> None:
        """Raise LaterNumberWritten if the table has a number after the `latest` that a run has
        used."""
        last = delta.last_version(spark, self.location(spark), self._application)
        if last is not None:
            place = f"the log of the table {self.table!r}"
            check_last_number(place, last, checkpoint=self.checkpoint, latest=latest)

    def location(self, spark: SparkSession) -> str:
        """Return the folder of the table; raises exceptions of Delta."""
        return str(self._detail(spark)["location"])

    def _detail(self, spark: SparkSession) -> Row:
        return spark.sql(f"DESCRIBE DETAIL {self._identifier}").collect()[0]

    def _check_columns(self, table: T.StructType) -> None:
        merges = {key.lower(): value.lower() for key, value in self.options.items()}
        missing = missing_columns(
            "write_delta",
            self.schema,
            table,
            fits=_fits,
            adds=merges.get(_MERGE) == "true",
            otherwise='; or options={"mergeSchema": "true"}',
        )
        for column in missing:
            if not column.nullable and not any(each in column.metadata for each in _FILLED_IN):
                allowed = "rows that have it: it is NOT NULL in the table"
                raise InvalidValue("write_delta: column", column.name, allowed)

    @property
    def _application(self) -> str:
        return f"arrester-{self.checkpoint}"

    @property
    def _identifier(self) -> str:
        return _quoted(self.table) if "/" in self.table else self.table

    def _append(self, df: DataFrame, identifier: str, numbers: dict[str, str]) -> None:
        """Append to a table that exists: `df.write` would create one without constraints."""
        df.writeTo(identifier).options(**self.options, **numbers).append()


@dataclass(slots=True, kw_only=True)
class StagedDeltaAppend(StagedWrite):
    """An append in a transaction of Delta, which is committed later."""

    table: DeltaTable
    #: None if nothing is staged, or if a version may name the files.
    _append: delta.Append | None = None

    def stage(self, df: DataFrame, number: int) -> None:
        """Write the files, which no version of the table names; raises exceptions of Spark."""
        self._append = self.table.begin_append(df, number)
        self._append.write()

    def publish(self, number: int) -> None:
        """Commit the files and the number, unless it is stored.

        If other writers have committed meanwhile, Delta commits after them. If one of them has
        stored a number of this checkpoint, or altered the table, the commit raises. Raises
        TableReplaced and exceptions of Delta.
        """
        append = self._append
        assert append is not None
        if append.has_number():
            return
        # A commit that raises may have succeeded.
        self._append = None
        self.table.commit(append)

    def discard(self) -> None:
        """Delete the files, unless a version may name them."""
        if self._append is None:
            return
        with suppress(Exception):  # no reader sees them
            self._append.delete_files()


def _constraint(condition: str, constraint: str, refuses: str) -> Constraint:
    return Constraint(REFUSED, condition, f"{_MESSAGES[condition]}{constraint}", refuses)


def _not_null(table: T.StructType) -> Iterator[Constraint]:
    for name, refuses in refused_nulls(table, _FILLED_IN):
        yield _constraint("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", name, refuses)


def _too_long(table: T.StructType) -> Iterator[Constraint]:
    for column in table:
        kind = str(column.metadata.get("__CHAR_VARCHAR_TYPE_STRING", ""))
        limit = kind.partition("(")[2].rstrip(")")
        if limit.isdecimal():
            name = in_quotes(column.name)
            refuses = f"length({name}) > {limit}"
            yield _constraint("DELTA_EXCEED_CHAR_VARCHAR_LIMIT", f"{name} {kind}", refuses)


def checked_delta_table(
    schema: T.StructType, *, table: object, options: Mapping[str, Any] | None
) -> DeltaTable:
    """Return the sink of `.write_delta` for rows with `schema`; raises InvalidValue."""
    check_text("write_delta: table", table, _TABLE_RULE)
    check_mapping("write_delta: options", options, "a mapping of options of Delta's writer")
    for name in options or {}:
        if name.lower() in _OWN_OPTIONS:
            allowed = "other options: the sink sets this one"
            raise InvalidValue("write_delta: options", name, allowed)
    return DeltaTable(
        table=str(table),
        options={name: str(value) for name, value in (options or {}).items()},
        schema=schema,
    )


def _fits(given: T.DataType, wanted: T.DataType) -> bool:
    """Whether both are the same type; rows may lack NULLs that the other allows."""
    return given.simpleString() == wanted.simpleString()


def _quoted(path: str) -> str:
    return f"delta.`{path.replace('`', '``')}`"
