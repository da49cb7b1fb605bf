"""Hadoop's configuration, and questions to its file systems."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import jvm_class

_HADOOP = "org.apache.hadoop.fs"
#: The schemes of file systems that rename a folder at once.
_RENAMING: Final = ("file", "hdfs", "viewfs")
#: The empty file by which Hadoop marks a finished write.
_MARKER: Final = "_SUCCESS"


class Location(NamedTuple):
    """The parts of a complete URI."""

    scheme: str
    authority: str
    path: str


def hadoop_option(spark: SparkSession, name: str, default: str) -> str:
    """Return an option of Hadoop's configuration in a session."""
    return str(hadoop_conf(spark).get(name, default))


def hadoop_conf(spark: SparkSession) -> Any:
    """Return Hadoop's configuration, including the session's settings."""
    session: Any = spark._jsparkSession
    return session.sessionState().newHadoopConf()


def hadoop_path(spark: SparkSession, location: str) -> Any:
    """Return Hadoop's path of `location`."""
    jvm: Any = spark._jvm
    return jvm_class(jvm, f"{_HADOOP}.Path")(location)


def qualified_path(spark: SparkSession, location: str) -> Any:
    """Return Hadoop's path of `location`, completed with scheme, authority and working folder."""
    return _file_system(spark, location).makeQualified(hadoop_path(spark, location))


def qualified_location(spark: SparkSession, location: str) -> Location | None:
    """Return the complete URI of `location`, None if its file system is unknown."""
    try:
        uri = qualified_path(spark, location).toUri()
    except Py4JJavaError:
        return None
    return Location(str(uri.getScheme()), str(uri.getAuthority() or ""), str(uri.getPath()))


def folders_matching(spark: SparkSession, pattern: str) -> Sequence[str]:
    """Return the existing folders that a pattern matches."""
    statuses = _file_system(spark, pattern).globStatus(hadoop_path(spark, pattern)) or ()
    return [str(status.getPath().toString()) for status in statuses if status.isDirectory()]


def folders_in(spark: SparkSession, folder: str, pattern: str) -> Sequence[str]:
    """Return the folders in another one whose names match a pattern; none, if it is missing."""
    jvm: Any = spark._jvm
    files, path = _file_system(spark, folder), hadoop_path(spark, folder)
    if not files.exists(path):
        return []
    statuses = files.listStatus(path, jvm_class(jvm, f"{_HADOOP}.GlobFilter")(pattern))
    return [str(status.getPath().toString()) for status in statuses if status.isDirectory()]


def matches_glob(spark: SparkSession, pattern: str, name: str) -> bool:
    """Whether a pattern of Hadoop matches the name of a file or folder."""
    jvm: Any = spark._jvm
    return bool(jvm_class(jvm, f"{_HADOOP}.GlobPattern")(pattern).matches(name))


def glob_alternatives(spark: SparkSession, pattern: str) -> list[str]:
    """Return a pattern as patterns whose alternatives in braces are within one folder name."""
    jvm: Any = spark._jvm
    return [str(path) for path in jvm_class(jvm, f"{_HADOOP}.GlobExpander").expand(pattern)]


def folder_bytes(spark: SparkSession, location: str) -> int:
    """Return the size of all files in a folder, in bytes."""
    summary = _file_system(spark, location).getContentSummary(hadoop_path(spark, location))
    return int(summary.getLength())


def why_not_writable(spark: SparkSession, location: str) -> str | None:
    """Return why no file can be created in a folder, None if one can.

    Creates the folder.
    """
    try:
        files = _file_system(spark, location)
        # Readers ignore names that begin with _.
        path = hadoop_path(spark, f"{location.rstrip('/')}/_arrester_{uuid.uuid4()}")
        files.create(path, False).close()
    except Py4JJavaError as exc:
        cause = exc.java_exception
        return f"{cause.getClass().getName()}: {cause.getMessage()}"
    # A store may forbid deletions.
    with suppress(Py4JJavaError):
        files.delete(path, False)
    return None


def renames_at_once(spark: SparkSession, location: str) -> bool:
    """Whether the file system of `location` is known to rename a folder at once, with its files.

    Object stores copy each file.
    """
    found = qualified_location(spark, location)
    return found is not None and found.scheme in _RENAMING


def delete_folder(spark: SparkSession, location: str) -> None:
    """Delete a folder with all files, if it exists."""
    _file_system(spark, location).delete(hadoop_path(spark, location), True)


def replace_folder(spark: SparkSession, source: str, target: str) -> None:
    """Give a folder the name of another one, which is deleted; raises OSError.

    Without the folder, the other one is kept.
    """
    files, path = _file_system(spark, target), hadoop_path(spark, target)
    new = hadoop_path(spark, source)
    if not files.exists(new):
        raise FileNotFoundError(source)
    files.delete(path, True)
    _rename(files, new, path)


def rename(spark: SparkSession, source: str, target: str) -> None:
    """Rename a file or folder; raises OSError."""
    paths = (hadoop_path(spark, source), hadoop_path(spark, target))
    _rename(_file_system(spark, target), *paths)


def create_empty(spark: SparkSession, location: str) -> None:
    """Create an empty file, or replace one."""
    _file_system(spark, location).create(hadoop_path(spark, location), True).close()


def merge_folder(spark: SparkSession, source: str, target: str) -> None:
    """Move the files of a folder into another one, with the folders that they are in.

    Raises OSError; then those that were moved are deleted.
    """
    files, moved = _file_system(spark, target), []
    to = hadoop_path(spark, target)
    files.mkdirs(to)
    try:
        to_move = list(_to_move(spark, files, hadoop_path(spark, source), to))
        # The marker last, in place of an earlier one.
        for path, new in sorted(to_move, key=lambda each: each[0].getName() == _MARKER):
            if path.getName() == _MARKER:
                files.delete(new, False)
            _rename(files, path, new)
            moved.append(new)
    except BaseException:
        for path in moved:
            files.delete(path, True)
        raise


def _to_move(
    spark: SparkSession, files: Any, source: Any, target: Any
) -> Iterator[tuple[Any, Any]]:
    """Yield what is in a folder, with its new path; of folders that exist, what is in them."""
    jvm: Any = spark._jvm
    for status in files.listStatus(source):
        path = status.getPath()
        new = jvm_class(jvm, f"{_HADOOP}.Path")(target, path.getName())
        if status.isDirectory() and files.exists(new):
            yield from _to_move(spark, files, path, new)
            continue
        yield path, new


def _rename(files: Any, source: Any, target: Any) -> None:
    if not files.rename(source, target):
        raise OSError(f"{source.toString()} cannot be renamed to {target.toString()}")


def _file_system(spark: SparkSession, location: str) -> Any:
    return hadoop_path(spark, location).getFileSystem(hadoop_conf(spark))
