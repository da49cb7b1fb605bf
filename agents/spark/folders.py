"""Folders that a source reads, and whether another folder is one of them or nested with one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import DataFrame, SparkSession

from arrester.agents.spark.catalyst import node_name, to_list
from arrester.agents.spark.hadoop import hadoop_path, qualified_uri
from arrester.agents.spark.jvm import jvm_class
from arrester.agents.spark.kafka_source import leaves_of, options_of

_GLOB = "*?[{\\"


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder, or a pattern of folders, without symbolic links as far as it is known."""

    #: Scheme and authority.
    store: str
    parts: tuple[str, ...]


def folder_read_at(source: DataFrame, location: str) -> str | None:
    """Return the path by which `source` reads the folder `location`, one in it or one around it.

    None if it reads no such folder. Spark reads no folder whose name begins with _ or a dot.
    """
    spark = source.sparkSession
    written = _folder(spark, location)
    for path in _paths(source):
        for each in _expanded(spark, path):
            if written is not None and _overlap(spark, each, written):
                return path
    return None


def is_inside(spark: SparkSession, location: str, other: str) -> bool:
    """Whether the folder `location` is `other`, or is in it."""
    inner, outer = _folder(spark, location), _folder(spark, other)
    if inner is None or outer is None or inner.store != outer.store:
        return False
    return inner.parts[: len(outer.parts)] == outer.parts


def _paths(source: DataFrame) -> Iterator[str]:
    """Yield the paths and patterns of files in the plan of `source`."""
    for leaf in leaves_of(source):
        if node_name(leaf) == "LogicalRelation":
            relation = leaf.relation()
            if relation.getClass().getSimpleName() == "HadoopFsRelation":
                yield from (str(path) for path in to_list(relation.location().rootPaths()))
        elif path := options_of(source, leaf).get("path"):
            yield path


def _overlap(spark: SparkSession, pattern: _Folder, written: _Folder) -> bool:
    if pattern.store != written.store:
        return False
    pairs = zip(pattern.parts, written.parts, strict=False)
    if not all(_matches(spark, one, other) for one, other in pairs):
        return False
    return not any(_is_hidden(name) for name in written.parts[len(pattern.parts) :])


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _matches(spark: SparkSession, pattern: str, name: str) -> bool:
    if pattern == name or not _has_glob(pattern):
        return pattern == name
    jvm: Any = spark._jvm
    return bool(jvm_class(jvm, "org.apache.hadoop.fs.GlobPattern")(pattern).matches(name))


def _expanded(spark: SparkSession, path: str) -> list[_Folder]:
    """Return the folders of a pattern: those that may appear, and those that are there now."""
    if not _has_glob(path):
        found = [_folder(spark, path)]
    else:
        jvm: Any = spark._jvm
        patterns = list(jvm_class(jvm, "org.apache.hadoop.fs.GlobExpander").expand(path))
        found = [_folder(spark, str(each)) for each in patterns]
        # A match may be a symbolic link to another place.
        found += [_folder(spark, each) for each in _local_matches(spark, path)]
    return [each for each in found if each is not None]


def _local_matches(spark: SparkSession, path: str) -> Sequence[str]:
    uri, files = qualified_uri(spark, path)
    if uri.getScheme() != "file":
        return ()
    statuses = files.globStatus(hadoop_path(spark, path)) or ()
    return [str(each.getPath().toString()) for each in statuses if each.isDirectory()]


def _folder(spark: SparkSession, location: str) -> _Folder | None:
    """Return a folder; None if its file system is unknown here, which the run itself reports."""
    try:
        uri, _ = qualified_uri(spark, location)
    except Py4JJavaError:
        return None
    names = [name for name in str(uri.getPath()).split("/") if name]
    if uri.getScheme() == "file":
        plain = next((n for n, name in enumerate(names) if _has_glob(name)), len(names))
        real = os.path.realpath("/" + "/".join(names[:plain]))
        names = [name for name in real.split("/") if name] + names[plain:]
    return _Folder(f"{uri.getScheme()}://{uri.getAuthority() or ''}", tuple(names))


def _has_glob(text: str) -> bool:
    return any(each in text for each in _GLOB)
