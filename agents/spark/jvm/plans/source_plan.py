"""The inputs of a source, as its plan has them: options, columns, files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.plans.catalyst import (
    analysed_plan,
    children,
    node_name,
    nodes,
    to_list,
    to_seq,
)

#: Physical operators whose rows come from the driver's code.
_LOCAL: Final = frozenset(
    {"EmptyRelationExec", "LocalTableScanExec", "OneRowRelationExec", "RangeExec"}
)


def leaves_of(source: DataFrame) -> list[Any]:
    """Return the leaves of a source's analysed plan: its inputs."""
    return to_list(analysed_plan(source).collectLeaves())


def columns_of(leaf: Any) -> list[str]:
    """Return the names of an input's columns."""
    return list(leaf.schema().fieldNames())


def options_of(source: DataFrame, leaf: Any) -> Mapping[str, str]:
    """Return the options of an input by lower-case name, empty if its plan has none."""
    match node_name(leaf):
        case "StreamingRelationV2":
            options = dict(leaf.extraOptions())
        case "StreamingRelation":
            options = dict(_java_map(source, leaf.dataSource().options()))
        case "DataSourceV2Relation":
            options = dict(leaf.options())
        case _:
            options = {}
    return {name.lower(): value for name, value in options.items()}


def streams_kafka(leaf: Any) -> bool:
    """Whether an input is a stream of Spark's Kafka connector."""
    return node_name(leaf) == "StreamingRelationV2" and leaf.sourceName() == "kafka"


def paths_of(source: DataFrame, leaf: Any) -> list[str]:
    """Return the paths and patterns of an input's files."""
    if node_name(leaf) == "LogicalRelation":
        relation = leaf.relation()
        if node_name(relation) != "HadoopFsRelation":
            return []
        return [str(path) for path in to_list(relation.location().rootPaths())]
    path = options_of(source, leaf).get("path")
    return [path] if path else []


def files_scanned(source: DataFrame) -> tuple[dict[str, tuple[int, int]], bool]:
    """Return the files of a static source, and whether it reads nothing else.

    They are of the partitions that its scans read, as Spark has listed them. The values are the
    length in bytes and the modification time in milliseconds, by path.
    """
    files: dict[str, tuple[int, int]] = {}
    only_files = True
    for node in nodes(source._jdf.queryExecution().sparkPlan()):
        if node_name(node) == "FileSourceScanExec":
            files |= _files_of_scan(source, node)
        elif not children(node) and node_name(node) not in _LOCAL:
            only_files = False
    return files, only_files


def _files_of_scan(source: DataFrame, scan: Any) -> dict[str, tuple[int, int]]:
    jvm: Any = source.sparkSession._jvm
    # Filters that depend on a query have no value before it runs.
    filters = [
        partition_filter
        for partition_filter in to_list(scan.partitionFilters())
        if not any("Subquery" in node_name(node) for node in nodes(partition_filter))
    ]
    no_filters = to_seq(jvm, [])
    folders = scan.relation().location().listFiles(to_seq(jvm, filters), no_filters)
    return {
        str(file.getPath().toString()): (int(file.getLen()), int(file.getModificationTime()))
        for folder in to_list(folders)
        for file in to_list(folder.files())
    }


def _java_map(source: DataFrame, options: Any) -> Any:
    jvm: Any = source.sparkSession._jvm
    return jvm_class(jvm, "scala.collection.JavaConverters").mapAsJavaMap(options)
