"""The sinks of a pipeline: a function of micro-batches, files, or a function of single rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from arrester.agents.arguments import (
    check_known,
    check_mapping,
    check_text,
    checked_path,
    nearest,
    wrong_type,
)
from arrester.agents.definition.delta_table import DeltaTable
from arrester.agents.definition.iceberg_table import IcebergTable
from arrester.agents.definition.jdbc_checks import check_database
from arrester.agents.definition.jdbc_table import JdbcTable
from arrester.agents.handlers import Handler
from arrester.agents.spark.jvm.hadoop import hadoop_option
from arrester.agents.spark.rows_read import call_with_all_rows
from arrester.controlplane.domain.error_policy.policy import Answer
from arrester.controlplane.domain.errors import InvalidValue

#: Tables of files with a log of commits, whose constraints are known.
LakehouseTable = DeltaTable | IcebergTable
#: Tables that store the numbers of their writes.
NumberedTable = JdbcTable | LakehouseTable
SinkFunction = Callable[[DataFrame, int], object]
#: Raises where the sink would, and leaves nothing visible.
ProbeFunction = Callable[[DataFrame], object]
#: Sends one row, a dict. Returns a future if the row has not arrived yet.
Send = Callable[[dict[str, Any]], object]
#: Opens a client for each Spark partition: a context manager that gives a `Send`.
Connect = Callable[[], AbstractContextManager[Send]]

#: Formats that Spark writes as files and commits by its own protocol.
FILE_FORMATS = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
_ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"
_PROTOCOL = "spark.sql.sources.commitProtocolClass"
_OWN_PROTOCOL = (
    "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"  # Spark's default
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """The arguments of `.write`."""

    function: SinkFunction
    #: Whether a call that raises has left nothing behind.
    atomic: bool = False
    #: Whether the function may return without having read all rows.
    partial: bool = False
    #: Tries rows independently of any number. None: `Files` have their own, other sinks have none.
    probe: ProbeFunction | None = None
    #: The production handler of the sink; None: the one of the configuration.
    on_error: Handler | None = None
    #: Responses by class or condition, before `on_error`.
    on: Mapping[str, Answer] = field(default_factory=dict)

    def __call__(self, df: DataFrame, number: int) -> None:
        """Write `df` under its number. The caller interprets exceptions of the sink.

        Raises RowsUnread if the function returns before it has read all rows.
        """
        if self.partial or isinstance(self.function, Files | NumberedTable):
            # Spark's own writer reads all rows, or raises.
            self.function(df, number)
        else:
            call_with_all_rows(lambda rows: self.function(rows, number), df)

    def check(self, spark: SparkSession) -> None:
        """Raise InvalidValue if the sink cannot be written."""
        if isinstance(self.function, JdbcTable):
            check_database(self.function, spark)
        if isinstance(self.function, LakehouseTable):
            self.function.check(spark)

    def check_last_number(self, spark: SparkSession, latest: int) -> None:
        """Raise LaterNumberWritten if the store has a later number than the `latest` used one."""
        if isinstance(self.function, NumberedTable):
            self.function.check_last_number(spark, latest)

    @property
    def finds_all_refused(self) -> bool:
        """Whether a failure without a refused record is of the store, and no record's."""
        return isinstance(self.function, NumberedTable)

    def at(self, checkpoint: str) -> Sink:
        """Return the sink for the numbers of a checkpoint, by its id."""
        if isinstance(self.function, NumberedTable):
            return replace(self, function=self.function.at(checkpoint))
        return self

    def is_atomic(self, spark: SparkSession) -> bool:
        """Whether writes in this session are all or nothing."""
        if isinstance(self.function, Files):
            return self.atomic and self.function.is_atomic(spark)
        return self.atomic


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """The arguments of `.produce`: a function that sends one row, or one that opens a client."""

    send: Send | None
    connect: Connect | None
    #: The production handler; None: the one of the configuration.
    on_error: Handler | None = None
    #: Responses by class or condition, before `on_error`.
    on: Mapping[str, Answer] = field(default_factory=dict)

    @property
    def function(self) -> object:
        """The author's function."""
        return self.send if self.connect is None else self.connect

    def check_last_number(self, spark: SparkSession, latest: int) -> None:
        """Accept all: it has no numbers."""

    def at(self, checkpoint: str) -> Producer:
        """Return the same sink: it has no numbers."""
        return self

    def is_atomic(self, spark: SparkSession) -> bool:
        """Return False: a sent row cannot be withdrawn."""
        return False

    def check(self, spark: SparkSession) -> None:
        """Raise InvalidValue if Spark could send one record twice at the same time."""
        name = "spark.speculation"
        if spark.sparkContext.getConf().get(name, "false").lower() == "true":
            allowed = "false where a pipeline produces: the order of its records would be lost"
            raise InvalidValue(name, "true", allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A function that writes files below `path`: appended, or in one folder for each number."""

    path: str
    format: str = "parquet"
    partition_by: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The name in the folders `<name>=<number>`, which a replay replaces; None: append.
    number_column: str | None = None

    def __post_init__(self) -> None:
        allowed = f"one of {', '.join(FILE_FORMATS)}; for others, .write(fn, atomic=...)"
        check_known("write_files: format", self.format, FILE_FORMATS, allowed)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise InvalidValue if `partition_by` or `number_column` does not fit the columns.

        Spark resolves names without case.
        """
        known = {column.lower() for column in columns}
        number = self.number_column
        if number is not None and number.lower() in known:
            allowed = (
                "a name that is no column of the rows: the number of the micro-batch would replace "
                "its values"
            )
            raise InvalidValue("write_files: number_column", number, allowed)
        for name in self.partition_by:
            if str(name).lower() not in known:
                hint = nearest(str(name), columns) or f": {', '.join(columns)}"
                raise InvalidValue("write_files: partition_by", name, f"a column of the rows{hint}")
        if known <= {name.lower() for name in self.partition_by}:
            allowed = "some of the columns: Spark writes no files without another column"
            raise InvalidValue("write_files: partition_by", list(self.partition_by), allowed)

    def __call__(self, df: DataFrame, number: int) -> None:
        """Write one micro-batch, or one chunk of held records."""
        writer = self._writer(df)
        if self.number_column is None:
            writer.mode("append").save(self.path)
        else:
            folder = f"{self.path.rstrip('/')}/{self.number_column}={number}"
            # Static mode regardless of the session: the folder belongs to this number only.
            writer.mode("overwrite").option("partitionOverwriteMode", "static").save(folder)

    def write_into(self, df: DataFrame, folder: str) -> None:
        """Write the same files into another folder, which must not exist."""
        self._writer(df).mode("errorifexists").save(folder)

    def _writer(self, df: DataFrame) -> DataFrameWriter:
        writer = df.write.format(self.format).options(**self.options)
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    def is_atomic(self, spark: SparkSession) -> bool:
        """Whether nothing is visible before everything is committed.

        Hadoop's commit algorithm 2 shows the files of a task before the job commits. Other commit
        protocols than Spark's own are unknown.
        """
        algorithm = self.options.get(_ALGORITHM) or hadoop_option(spark, _ALGORITHM, "1")
        return algorithm == "1" and spark.conf.get(_PROTOCOL, _OWN_PROTOCOL) == _OWN_PROTOCOL


def checked_files(
    columns: Sequence[str],
    *,
    path: object,
    format: str,
    partition_by: object,
    options: Mapping[str, Any] | None,
    number_column: str | None,
) -> Files:
    """Return the sink of `.write_files` for rows with `columns`; raises InvalidValue."""
    check_mapping("write_files: options", options, "a mapping of the format's options")
    if number_column is not None:
        allowed = "the name of a further column, whose value is the number of the micro-batch"
        check_text("write_files: number_column", number_column, allowed)
    names = (partition_by,) if isinstance(partition_by, str) else partition_by
    if not isinstance(names, list | tuple):
        raise wrong_type("write_files: partition_by", names, "names of columns, in a list")
    files = Files(
        path=checked_path("write_files: path", path, "a folder"),
        format=format,
        partition_by=tuple(names),
        options=dict(options or {}),
        number_column=number_column,
    )
    files.check_columns(columns)
    return files
