"""Hadoop's configuration, and questions to its file systems."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import jvm_class

_HADOOP = "org.apache.hadoop.fs"


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


def _file_system(spark: SparkSession, location: str) -> Any:
    return hadoop_path(spark, location).getFileSystem(hadoop_conf(spark))
