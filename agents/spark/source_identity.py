"""What identifies a static source: its columns, and its files or its number of rows."""

from __future__ import annotations

from typing import Any

import msgspec
from pyspark.sql import DataFrame

from arrester.agents.spark.catalyst import children, node_name, nodes, to_list, to_seq

#: Rows that the driver's code makes.
_LOCAL = frozenset({"EmptyRelationExec", "LocalTableScanExec", "OneRowRelationExec", "RangeExec"})
#: At most this many files are named in a message.
_NAMED = 3


class SourceIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts by which a repeated run recognizes its source."""

    #: The columns with their types.
    columns: str
    #: By path: the length in bytes, and the modification time in milliseconds.
    files: dict[str, tuple[int, int]] = {}
    #: The number of rows, for a source that is not made of files alone.
    rows: int | None = None

    def difference(self, now: SourceIdentity) -> str | None:
        """Return how the source differs `now`, None if it is the same."""
        if self.columns != now.columns:
            return f"its columns were {self.columns} and are {now.columns}"
        changed = {
            "missing": self.files.keys() - now.files.keys(),
            "new": now.files.keys() - self.files.keys(),
            "changed": {
                path
                for path in self.files.keys() & now.files.keys()
                if self.files[path] != now.files[path]
            },
        }
        found = [f"{_named(paths)} {kind}" for kind, paths in changed.items() if paths]
        if self.rows != now.rows and not found:
            return f"it had {self.rows} rows and has {now.rows}"
        return "; ".join(found) or None


def _named(paths: set[str]) -> str:
    first = sorted(paths)[:_NAMED]
    more = "" if len(paths) == len(first) else f" and {len(paths) - len(first)} more"
    return f"{', '.join(first)}{more} {'is' if len(paths) == 1 else 'are'}"


def identity_of(source: DataFrame) -> SourceIdentity:
    """Return the identity of a static source; a Spark job counts the rows of one without files."""
    files: dict[str, tuple[int, int]] = {}
    is_files = True
    for leaf in nodes(source._jdf.queryExecution().sparkPlan()):
        if node_name(leaf) == "FileSourceScanExec":
            files |= _files(source, leaf)
        elif not children(leaf) and node_name(leaf) not in _LOCAL:
            is_files = False
    rows = None if files and is_files else source.count()
    return SourceIdentity(columns=source.schema.simpleString(), files=files, rows=rows)


def _files(source: DataFrame, scan: Any) -> dict[str, tuple[int, int]]:
    """Return the files of the partitions that a scan reads, as Spark has listed them."""
    spark = source.sparkSession
    # Filters that depend on a query are not known before it runs.
    filters = [
        each
        for each in to_list(scan.partitionFilters())
        if not any("Subquery" in node_name(node) for node in nodes(each))
    ]
    no_filters = to_seq(spark._jvm, [])
    folders = scan.relation().location().listFiles(to_seq(spark._jvm, filters), no_filters)
    return {
        str(file.getPath().toString()): (int(file.getLen()), int(file.getModificationTime()))
        for folder in to_list(folders)
        for file in to_list(folder.files())
    }
