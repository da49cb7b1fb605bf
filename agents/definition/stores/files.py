"""The sink of `.write_files`: files that Spark commits by its own protocol."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from arrester.agents.arguments import (
    check_known,
    check_mapping,
    check_text,
    checked_path,
    nearest,
    wrong_type,
)
from arrester.agents.definition.stores.sink_store import WritesIntoFolder
from arrester.agents.definition.stores.staged_write import StagedWrite
from arrester.agents.spark.jvm.stores.hadoop import (
    delete_folder,
    folders_in,
    hadoop_option,
    merge_folder,
    renames_at_once,
    replace_folder,
)
from arrester.domain.errors import InvalidValue

_log = logging.getLogger("arrester.thread")

#: Staged files are as deep and hidden as Spark's own before a commit: patterns such as `path/*` do
#: not find them.
_STAGED_BELOW = "_temporary/0/_temporary"
#: Formats that Spark writes as files and commits by its own protocol.
FILE_FORMATS = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
_ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"
_PROTOCOL = "spark.sql.sources.commitProtocolClass"
#: Spark's default.
_OWN_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
#: That of spark-hadoop-cloud, for the committers of a store, such as those of S3A (`magic`,
#: `directory`): they complete all uploads when the job commits.
_CLOUD_PROTOCOL = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"


@dataclass(frozen=True, slots=True, kw_only=True)
class Files(WritesIntoFolder):
    """Files below `path`: appended, or in one folder for each number."""

    path: str
    format: str = "parquet"
    partition_by: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The name in the folders `<name>=<number>`, which a replay replaces; None: append.
    number_column: str | None = None
    #: The id of the checkpoint whose numbers these are; empty before a run.
    checkpoint: str = ""

    def __post_init__(self) -> None:
        allowed = f"one of {', '.join(FILE_FORMATS)}; for others, .write(fn, atomic=...)"
        check_known("write_files: format", self.format, FILE_FORMATS, allowed)

    @property
    def label(self) -> str:
        """`parquet files`."""
        return f"{self.format} files"

    @property
    def folder(self) -> str:
        """The path."""
        return self.path

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
            folder = self.folder_of(number)
            # Static mode regardless of the session: the folder belongs to this number only.
            writer.mode("overwrite").option("partitionOverwriteMode", "static").save(folder)

    def at(self, checkpoint: str) -> Files:
        """Return the files for the numbers of a checkpoint."""
        return replace(self, checkpoint=checkpoint)

    def folder_of(self, number: int) -> str:
        """Return the folder of a number."""
        return f"{self.path.rstrip('/')}/{self.number_column}={number}"

    def delete_staged(self, spark: SparkSession) -> None:
        """Delete the folders that earlier runs at this checkpoint staged."""
        try:
            for folder in folders_in(spark, self.path, f"{self._staging_prefix}*"):
                delete_folder(spark, folder)
        except Exception:  # they only take disk space, until the next run
            _log.warning("staged files in %s could not be deleted", self.path, exc_info=True)

    def can_stage(self, spark: SparkSession) -> bool:
        """Whether a folder of staged files becomes visible at once."""
        return self.is_atomic(spark) and renames_at_once(spark, self.path)

    def open_staged_write(self, spark: SparkSession) -> StagedFiles:
        """Return a write into a folder beside the files."""
        folder = f"{self.path.rstrip('/')}/{self._staging_prefix}{uuid4().hex}"
        return StagedFiles(files=self, spark=spark, folder=folder)

    @property
    def _staging_prefix(self) -> str:
        # Spark ignores names that begin with _.
        return f"_arrester_{self.checkpoint}_"

    def write_into(self, df: DataFrame, folder: str) -> None:
        """Write the same files into another folder, which must not exist."""
        self._writer(df).mode("errorifexists").save(folder)

    def _writer(self, df: DataFrame) -> DataFrameWriter:
        writer = df.write.format(self.format).options(**self.options)
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    def is_atomic(self, spark: SparkSession) -> bool:
        """Whether nothing is visible before everything is committed.

        Hadoop's commit algorithm 2 shows the files of a task before the job commits. Other commit
        protocols are unknown.
        """
        algorithm = self.options.get(_ALGORITHM) or hadoop_option(spark, _ALGORITHM, "1")
        protocol = spark.conf.get(_PROTOCOL, _OWN_PROTOCOL)
        return algorithm == "1" and protocol in (_OWN_PROTOCOL, _CLOUD_PROTOCOL)


@dataclass(slots=True, kw_only=True)
class StagedFiles(StagedWrite):
    """Files in a folder of their own, until they are published."""

    files: Files
    spark: SparkSession
    folder: str

    def stage(self, df: DataFrame, number: int) -> None:
        """Write the files below the folder."""
        self.files.write_into(df, self._files_folder)

    def publish(self, number: int) -> None:
        """Move the files to the others, or rename their folder to that of their number.

        Raises OSError and exceptions of Hadoop.
        """
        if self.files.number_column is None:
            merge_folder(self.spark, self._files_folder, self.files.path)
        else:
            replace_folder(self.spark, self._files_folder, self.files.folder_of(number))

    @property
    def _files_folder(self) -> str:
        return f"{self.folder}/{_STAGED_BELOW}"

    def discard(self) -> None:
        """Delete the folder."""
        with suppress(Exception):  # the next run deletes it
            delete_folder(self.spark, self.folder)


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
