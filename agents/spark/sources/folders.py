"""Whether a folder overlaps with a folder that a source reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from arrester.agents.spark.jvm.plans.source_plan import leaves_of, paths_of
from arrester.agents.spark.jvm.stores.hadoop import (
    folders_matching,
    glob_alternatives,
    matches_glob,
    qualified_location,
)

_GLOB_CHARACTERS = "*?[{\\"


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder, or a pattern of folders.

    On a local disk, the part before a pattern has no symbolic links.
    """

    #: Scheme and authority.
    store: str
    parts: tuple[str, ...]


def folder_read_at(source: DataFrame, location: str) -> str | None:
    """Return the path by which `source` reads the folder `location`, one in it or one around it.

    None if it reads no such folder. Spark reads no folder whose name begins with _ or a dot.
    """
    spark = source.sparkSession
    written = _folder(spark, location)
    for path in (path for leaf in leaves_of(source) for path in paths_of(source, leaf)):
        for folder in _expand(spark, path):
            if written is not None and _overlap(spark, folder, written):
                return path
    return None


def is_inside(spark: SparkSession, location: str, other: str) -> bool:
    """Whether the folder `location` is `other`, or is in it."""
    inner, outer = _folder(spark, location), _folder(spark, other)
    if inner is None or outer is None or inner.store != outer.store:
        return False
    return inner.parts[: len(outer.parts)] == outer.parts


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
    return matches_glob(spark, pattern, name)


def _expand(spark: SparkSession, path: str) -> list[_Folder]:
    """Return the folders of a pattern: patterns of possible folders, and the existing folders."""
    if not _has_glob(path):
        folders = [_folder(spark, path)]
    else:
        # An existing folder may be a symbolic link to another place.
        paths = [*glob_alternatives(spark, path), *_local_folders(spark, path)]
        folders = [_folder(spark, each) for each in paths]
    return [folder for folder in folders if folder is not None]


def _local_folders(spark: SparkSession, pattern: str) -> Sequence[str]:
    """Return the existing folders of a pattern on the local disk."""
    location = qualified_location(spark, pattern)
    if location is None or location.scheme != "file":
        return ()
    return folders_matching(spark, pattern)


def _folder(spark: SparkSession, location: str) -> _Folder | None:
    """Return a folder, None if its file system is unknown; the run itself reports that."""
    qualified = qualified_location(spark, location)
    if qualified is None:
        return None
    names = [name for name in qualified.path.split("/") if name]
    if qualified.scheme == "file":
        plain = next((n for n, name in enumerate(names) if _has_glob(name)), len(names))
        real = os.path.realpath("/" + "/".join(names[:plain]))
        names = [name for name in real.split("/") if name] + names[plain:]
    return _Folder(f"{qualified.scheme}://{qualified.authority}", tuple(names))


def _has_glob(text: str) -> bool:
    return any(character in text for character in _GLOB_CHARACTERS)
