"""Iceberg's Java API: tables, summaries of snapshots, uncommitted appends, and empty copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from arrester.agents.spark.jvm.classes import (
    class_object,
    has_jvm_class,
    has_jvm_method,
    jvm_class,
)
from arrester.agents.spark.jvm.plans.catalyst import (
    analysed_plan,
    frame_of,
    to_java_map,
    to_scala_map,
)
from arrester.agents.spark.jvm.stores.hadoop import hadoop_conf

_UTIL: Final = "org.apache.iceberg.spark.Spark3Util"
_TABLE: Final = "org.apache.iceberg.spark.source.SparkTable"
_STAGED_TABLE: Final = "org.apache.iceberg.spark.source.StagedSparkTable"
_WRITE_CONF: Final = "org.apache.iceberg.spark.SparkWriteConf"
_APPEND: Final = "org.apache.spark.sql.catalyst.plans.logical.AppendData"
_RELATION: Final = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"
_BY_RANGE: Final = "org.apache.spark.sql.connector.distributions.OrderedDistribution"
_COPIED: Final = ("write.format.default", "write.parquet.", "write.orc.", "write.avro.")


def has_iceberg(spark: SparkSession) -> bool:
    """Whether Spark has Iceberg's runtime."""
    return has_jvm_class(spark._jvm, _UTIL)


def catalog_and_namespace(spark: SparkSession, name: str) -> tuple[str, list[str]]:
    """Return the catalog and the namespace of a table's name; raises exceptions of Spark."""
    found = _found(spark, name)
    return str(found.catalog().name()), list(found.identifier().namespace())


def spark_table(spark: SparkSession, name: str) -> Any:
    """Return Spark's table of this name as its catalog has it now, of any format.

    Raises exceptions of Spark and of the catalog.
    """
    found = _found(spark, name)
    # A cached table of this name may have been dropped since.
    found.catalog().invalidateTable(found.identifier())
    return found.catalog().loadTable(found.identifier())


def iceberg_table(spark: SparkSession, table: Any) -> Any | None:
    """Return Iceberg's table of a Spark table; None if it is of another format."""
    is_iceberg = class_object(spark._jvm, _TABLE).isInstance(table)  # type: ignore[union-attr]
    return table.table() if is_iceberg else None


def summaries(table: Any, names: tuple[str, ...]) -> Iterator[tuple[str | None, ...]]:
    """Yield these properties of the table's snapshots, from the newest to its ancestors.

    Ancestors that have expired are left out.
    """
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        summary = snapshot.summary()
        yield tuple(summary.get(name) for name in names)
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)


def sorts_by_range(spark: SparkSession, table: Any, options: Mapping[str, str]) -> bool:
    """Whether Spark sorts the rows of an append across files, for which it samples them first."""
    jvm: Any = spark._jvm
    given = jvm_class(jvm, "org.apache.spark.sql.util.CaseInsensitiveStringMap")(
        to_java_map(jvm, options)
    )
    writes = jvm_class(jvm, _WRITE_CONF)(spark._jsparkSession, table, given).writeRequirements()
    return bool(class_object(jvm, _BY_RANGE).isInstance(writes.distribution()))  # type: ignore[union-attr]


def can_append_in_transaction(spark: SparkSession) -> bool:
    """Whether `append_in_transaction` knows the classes of this session."""
    jvm = spark._jvm
    # Spark 4.2 has a further argument, and no Iceberg yet.
    is_known = not has_jvm_method(jvm, _APPEND, "byName$default$4")
    return is_known and has_jvm_class(jvm, _STAGED_TABLE)


def append_in_transaction(
    df: DataFrame, table: Any, *, name: str, options: Mapping[str, str]
) -> Any:
    """Append rows to a table in a transaction, and return it: its commit shows them.

    Spark and Iceberg write the rows of `REPLACE TABLE … AS SELECT` in the same way.
    """
    spark = df.sparkSession
    jvm: Any = spark._jvm
    transaction = table.newTransaction()
    # Functions of the catalog compute partitions.
    found, option = _found(spark, name), jvm_class(jvm, "scala.Option")
    relation = jvm_class(jvm, _RELATION).create(
        jvm_class(jvm, _STAGED_TABLE)(transaction),
        option.apply(found.catalog()),
        option.apply(found.identifier()),
    )
    given = to_scala_map(jvm, options)
    # Spark runs a command when it makes its frame.
    frame_of(spark, jvm_class(jvm, _APPEND).byName(relation, analysed_plan(df), given))
    return transaction


def delete_uncommitted_files(transaction: Any) -> None:
    """Delete the files of an append whose transaction was never committed."""
    table = transaction.table()
    snapshot, store = table.currentSnapshot(), table.io()
    manifests = [
        each.path()
        for each in snapshot.allManifests(store)
        if each.snapshotId() == snapshot.snapshotId()
    ]
    files = [each.location() for each in snapshot.addedDataFiles(store)]
    for file in (*files, *manifests, snapshot.manifestListLocation()):
        store.deleteFile(file)


def create_empty_copy(spark: SparkSession, table: Any, folder: str) -> None:
    """Create a table in a new folder, with the columns, partitions and file format of another."""
    properties = {
        name: value for name, value in dict(table.properties()).items() if name.startswith(_COPIED)
    }
    version = table.operations().current().formatVersion()
    jvm: Any = spark._jvm
    tables = jvm_class(jvm, "org.apache.iceberg.hadoop.HadoopTables")(hadoop_conf(spark))
    tables.create(
        table.schema(),
        table.spec(),
        table.sortOrder(),
        to_java_map(jvm, properties | {"format-version": str(version)}),
        folder,
    )


def _found(spark: SparkSession, name: str) -> Any:
    return jvm_class(spark._jvm, _UTIL).catalogAndIdentifier(spark._jsparkSession, name)
