"""An Iceberg table as a sink: each number is written once, since a snapshot stores it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
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
from arrester.agents.spark.jvm.exceptions.problems import java_class_and_message
from arrester.agents.spark.jvm.plans.catalyst import can_store
from arrester.agents.spark.jvm.stores import iceberg
from arrester.domain.errors import InvalidValue

_TABLE_RULE: Final = "catalog.database.table, the name of an Iceberg table"
_RUNTIME_RULE: Final = (
    "a session with Iceberg's runtime: add it, such as "
    "spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"
)
#: The properties of a snapshot with the id of the checkpoint and the number of the write.
_CHECKPOINT: Final = "arrester-checkpoint"
_NUMBER: Final = "arrester-number"
_PROPERTY: Final = "snapshot-property."
#: Options that change which rows the table refuses, or which snapshot is written.
_REFUSED_OPTIONS: Final = ("merge-schema", "mergeschema", "check-nullability", "branch")
_STORE_ASSIGNMENT: Final = "spark.sql.storeAssignmentPolicy"
_ANY_SCHEMA: Final = "write.spark.accept-any-schema"
_STAGES: Final = "write.wap.enabled"
#: Class and condition of the exceptions about refused rows.
NOT_NULL: Final = ("org.apache.spark.SparkRuntimeException", "NOT_NULL_ASSERT_VIOLATION")
OUT_OF_RANGE: Final = (
    "org.apache.spark.SparkArithmeticException",
    "CAST_OVERFLOW_IN_TABLE_INSERT",
)
#: In the metadata of a column that Spark fills in.
_FILLED_IN: Final = ("CURRENT_DEFAULT",)


@dataclass(slots=True, kw_only=True)
class IcebergTable(NumberedTable, WritesIntoFolder):
    """Appends rows to an Iceberg table."""

    #: The name, with catalog and database.
    table: str
    #: Options of Iceberg's writer.
    options: Mapping[str, str] = field(default_factory=dict)
    #: The columns of the rows.
    schema: T.StructType = field(repr=False)
    #: The id of the checkpoint whose numbers these are; empty before a run.
    checkpoint: str = ""
    #: The id of the table that the run writes into; None before its first use.
    uuid: str | None = None

    has_known_constraints = True

    def at(self, checkpoint: str) -> IcebergTable:
        """Return the table for the numbers of a checkpoint."""
        return replace(self, checkpoint=checkpoint, uuid=None)

    def __call__(self, df: DataFrame, number: int) -> None:
        """Append one micro-batch, or one chunk of held records; a repeated number writes nothing.

        Numbers only increase, and each is written before the next one. The snapshot of the rows
        stores the number: both are committed together, or not at all. Raises TableReplaced.
        """
        if not self.has_number(self.current(df.sparkSession), number):
            df.writeTo(self.table).options(**self.options_of(number)).append()

    def location(self, spark: SparkSession) -> str:
        """Return the folder of the table; raises exceptions of Iceberg."""
        table = iceberg.iceberg_table(spark, iceberg.spark_table(spark, self.table))
        assert table is not None, "it is checked before a run"
        return str(table.location())

    def options_of(self, number: int) -> Mapping[str, str]:
        """Return the options of Iceberg's writer for a number."""
        numbers = {_CHECKPOINT: self.checkpoint, _NUMBER: str(number)}
        return {**self.options, **{f"{_PROPERTY}{key}": each for key, each in numbers.items()}}

    def reads_once(self, spark: SparkSession) -> bool:
        """Whether Spark reads each row once: it samples the rows of a table that is sorted across
        files."""
        try:
            table = iceberg.iceberg_table(spark, iceberg.spark_table(spark, self.table))
            return not iceberg.sorts_by_range(spark, table, self.options)
        except Exception:  # a write raises it, too
            return False

    def can_stage(self, spark: SparkSession) -> bool:
        """Whether Spark reads each row once, and can append in a transaction."""
        return iceberg.can_append_in_transaction(spark) and self.reads_once(spark)

    def open_staged_write(self, spark: SparkSession) -> StagedAppend:
        """Return an append in a transaction."""
        return StagedAppend(table=self, spark=spark)

    def refused(self, rows: DataFrame) -> DataFrame:
        """Return the rows that a column of the table refuses, with the columns REASON: NOT NULL,
        and the range of its type."""
        self.current(rows.sparkSession)
        table = rows.sparkSession.table(self.table).schema
        return refused_rows(rows, table, [*_not_null(table), *_out_of_range(self.schema, table)])

    def write_into(self, df: DataFrame, folder: str) -> None:
        """Append the rows to a table with the same columns, in a folder that must not exist."""
        iceberg.create_empty_copy(df.sparkSession, self.current(df.sparkSession), folder)
        df.write.format("iceberg").mode("append").options(**self.options).save(folder)

    def check(self, spark: SparkSession) -> None:
        """Raise InvalidValue if the rows do not fit the table, or if it cannot be written."""
        if not iceberg.has_iceberg(spark):
            raise InvalidValue("write_iceberg: table", self.table, _RUNTIME_RULE)
        table = self._checked_table(spark)
        properties = dict(table.properties())
        if properties.get(_ANY_SCHEMA, "").lower() == "true":
            allowed = "false: Spark does not check rows for this table"
            raise InvalidValue(f"write_iceberg: {_ANY_SCHEMA} of {self.table}", "true", allowed)
        for name in ("spark.wap.id", "spark.wap.branch"):
            value = spark.conf.get(name, None)
            if value and properties.get(_STAGES, "").lower() == "true":
                allowed = f"no value: {self.table} has {_STAGES}, rows would not become visible"
                raise InvalidValue(name, value, allowed)
        policy = str(spark.conf.get(_STORE_ASSIGNMENT, "ANSI"))
        if policy.upper() != "ANSI":
            raise InvalidValue(_STORE_ASSIGNMENT, policy, "ANSI with write_iceberg")
        self._check_columns(spark, spark.table(self.table).schema)

    def check_last_number(self, spark: SparkSession, latest: int) -> None:
        """Raise LaterNumberWritten if the table has a number after the `latest` that a run has
        used."""
        last = self._last_number(self.current(spark))
        if last is not None:
            place = f"a snapshot of the table {self.table!r}"
            check_last_number(place, last, checkpoint=self.checkpoint, latest=latest)

    def has_number(self, table: Any, number: int) -> bool:
        """Whether a snapshot of Iceberg's table has this number, or a later one."""
        last = self._last_number(table)
        return last is not None and last >= number

    def _last_number(self, table: Any) -> int | None:
        """Return the number in the newest snapshot of this checkpoint; None if there is none."""
        for checkpoint, number in iceberg.summaries(table, (_CHECKPOINT, _NUMBER)):
            if checkpoint == self.checkpoint and number is not None:
                return int(number)
        return None

    def current(self, spark: SparkSession) -> Any:
        """Return Iceberg's table as it is now; raises TableReplaced and exceptions of Spark."""
        table = iceberg.iceberg_table(spark, iceberg.spark_table(spark, self.table))
        uuid = None if table is None else str(table.uuid())
        self.uuid = self.uuid or uuid
        if table is None or uuid != self.uuid:
            raise TableReplaced(
                f"table {self.table!r} was dropped and created again while the pipeline ran: it "
                f"has the id {uuid}, and {self.uuid} before. Start the pipeline again to write it"
            )
        return table

    def _checked_table(self, spark: SparkSession) -> Any:
        """Return Iceberg's table; raises InvalidValue if there is none to append to."""
        try:
            catalog, namespace = iceberg.catalog_and_namespace(spark, self.table)
            if catalog == "spark_catalog" and len(namespace) > 1:
                setting = f"spark.sql.catalog.{namespace[0]}"
                raise self._invalid(f"{_TABLE_RULE} in a catalog of this session: set {setting}")
            found = iceberg.spark_table(spark, self.table)
            table = iceberg.iceberg_table(spark, found)
            if table is None:
                raise self._invalid(f"{_TABLE_RULE}; this one is of another format")
            if found.branch() is not None or found.snapshotId() is not None:
                raise self._invalid(f"{_TABLE_RULE} without a branch, tag or snapshot")
            table.newAppend()
        except InvalidValue:
            raise
        except Exception as exc:  # of Spark, or of the catalog
            reason = first_line(exc)
            named = None if isinstance(exc, PySparkException) else java_class_and_message(exc)
            if named is not None:
                reason = ": ".join(named)
            allowed = f"{_TABLE_RULE} that this session can write ({reason})"
            raise self._invalid(allowed) from exc
        return table

    def _invalid(self, allowed: str) -> InvalidValue:
        return InvalidValue("write_iceberg: table", self.table, allowed)

    def _check_columns(self, spark: SparkSession, table: T.StructType) -> None:
        fits = partial(_fits, spark)
        for column in missing_columns("write_iceberg", self.schema, table, fits=fits):
            if not any(each in column.metadata for each in _FILLED_IN):
                allowed = "rows that have it: Spark writes all columns of an Iceberg table"
                raise InvalidValue("write_iceberg: column", column.name, allowed)


@dataclass(slots=True, kw_only=True)
class StagedAppend(StagedWrite):
    """An append in a transaction of Iceberg, which is committed later."""

    table: IcebergTable
    spark: SparkSession
    #: The transaction of the staged files; None if there are none, or if a snapshot may name them.
    _transaction: Any = None

    def stage(self, df: DataFrame, number: int) -> None:
        """Write the files, and a snapshot with the number that no reader sees.

        Raises TableReplaced and exceptions of Spark.
        """
        current = self.table.current(df.sparkSession)
        options = self.table.options_of(number)
        self._transaction = iceberg.append_in_transaction(
            df, current, name=self.table.table, options=options
        )

    def publish(self, number: int) -> None:
        """Commit the snapshot, unless the number is stored.

        If other writers have committed meanwhile, Iceberg appends to their snapshot. Raises
        TableReplaced and exceptions of Iceberg.
        """
        current = self.table.current(self.spark)
        if self.table.has_number(current, number):
            return
        # A commit that raises may have succeeded.
        transaction, self._transaction = self._transaction, None
        transaction.commitTransaction()
        # The session keeps this one for its other queries.
        current.refresh()

    def discard(self) -> None:
        """Delete the files, unless a snapshot may name them."""
        if self._transaction is None:
            return
        with suppress(Exception):  # no reader sees them
            iceberg.delete_uncommitted_files(self._transaction)


def checked_iceberg_table(
    schema: T.StructType, *, table: object, options: Mapping[str, Any] | None
) -> IcebergTable:
    """Return the sink of `.write_iceberg` for rows with `schema`; raises InvalidValue."""
    check_text("write_iceberg: table", table, _TABLE_RULE)
    check_mapping("write_iceberg: options", options, "a mapping of options of Iceberg's writer")
    for name in options or {}:
        if name.lower() in _REFUSED_OPTIONS or name.lower().startswith(f"{_PROPERTY}arrester"):
            allowed = "other options: the sink does not support this one, or sets it itself"
            raise InvalidValue("write_iceberg: options", name, allowed)
    return IcebergTable(
        table=str(table),
        options={name: str(value) for name, value in (options or {}).items()},
        schema=schema,
    )


def _not_null(table: T.StructType) -> Iterator[Constraint]:
    for name, refuses in refused_nulls(table, _FILLED_IN):
        message = f"NULL in the column {name}, which is NOT NULL"
        yield Constraint(*NOT_NULL, message, refuses)


def _out_of_range(rows: T.StructType, table: T.StructType) -> Iterator[Constraint]:
    kinds = {each.name.lower(): each.dataType for each in rows}
    for column in table:
        given, wanted = kinds.get(column.name.lower()), column.dataType.simpleString()
        if given is not None and given.simpleString() != wanted:
            name = in_quotes(column.name)
            message = f"a value out of range for the column {name}, whose type is {wanted}"
            refuses = f"{name} IS NOT NULL AND try_cast({name} AS {wanted}) IS NULL"
            yield Constraint(*OUT_OF_RANGE, message, refuses)


def _fits(spark: SparkSession, given: T.DataType, wanted: T.DataType) -> bool:
    """Whether both are the same type, or plain types of which one can be stored as the other."""
    if given.simpleString() == wanted.simpleString():
        return True
    nested = isinstance(given, T.StructType | T.ArrayType | T.MapType)
    return not nested and can_store(spark, given, wanted)
