"""Iceberg's Java API: tables, the summaries of their snapshots, and empty copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import class_object, has_jvm_class, jvm_class
from arrester.agents.spark.jvm.hadoop import hadoop_conf

_UTIL: Final = "org.apache.iceberg.spark.Spark3Util"
_TABLE: Final = "org.apache.iceberg.spark.source.SparkTable"
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
        _java_map(jvm, properties | {"format-version": str(version)}),
        folder,
    )


def _java_map(jvm: Any, items: Mapping[str, str]) -> Any:
    made = jvm_class(jvm, "java.util.HashMap")()
    for name, value in items.items():
        made.put(name, value)
    return made


def _found(spark: SparkSession, name: str) -> Any:
    return jvm_class(spark._jvm, _UTIL).catalogAndIdentifier(spark._jsparkSession, name)
