"""Hadoop's configuration and file systems, through the JVM of a session."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession

from arrester.agents.journal.storage import FileExists, LocalStorage, Storage


def storage(spark: SparkSession, location: str) -> Storage:
    """Return the storage for `location`: a local disk, or a Hadoop file system."""
    qualified = str(_file_system(spark, location).makeQualified(_path(spark, location)).toString())
    if urlsplit(qualified).scheme == "file":
        return LocalStorage(unquote(urlsplit(qualified).path) if ":" in location else location)
    return HadoopStorage(spark, qualified)


def folder_bytes(spark: SparkSession, location: str) -> int:
    """Return the size of all files in a folder, in bytes."""
    summary = _file_system(spark, location).getContentSummary(_path(spark, location))
    return int(summary.getLength())


def hadoop_option(spark: SparkSession, name: str, default: str) -> str:
    """Return an option of Hadoop's configuration in a session."""
    return str(hadoop_conf(spark).get(name, default))


def hadoop_conf(spark: SparkSession) -> Any:
    """Return Hadoop's configuration, including the session's settings."""
    session: Any = spark._jsparkSession
    return session.sessionState().newHadoopConf()


def _file_system(spark: SparkSession, location: str) -> Any:
    return _path(spark, location).getFileSystem(hadoop_conf(spark))


def _path(spark: SparkSession, location: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.Path(location)


class HadoopStorage:
    """A folder on any Hadoop file system through FileContext, whose rename never overwrites."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        jvm: Any = spark._jvm
        self._jvm = jvm
        conf = hadoop_conf(spark)
        self._files = jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            jvm.org.apache.hadoop.fs.Path(self.root).toUri(), conf
        )
        fs = jvm.org.apache.hadoop.fs
        gateway: Any = spark.sparkContext._gateway
        self._no_rename_options = gateway.new_array(fs.Options.Rename, 0)
        self._no_create_options = gateway.new_array(fs.Options.CreateOpts, 0)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        if not self.exists(path):
            return None
        stream = self._files.open(self._at(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def create(self, path: str, content: bytes) -> None:
        """Create a file completely or not at all; raises FileExists."""
        folder, _, name = path.rpartition("/")
        draft = f"{folder}/.{name}.{uuid.uuid4()}.tmp"
        flags = self._jvm.java.util.EnumSet.of(self._jvm.org.apache.hadoop.fs.CreateFlag.CREATE)
        self._make_folder(folder)
        stream = self._files.create(self._at(draft), flags, self._no_create_options)
        stream.write(bytearray(content))
        stream.close()
        try:
            self.move(draft, path)
        finally:
            self.delete(draft)

    def exists(self, path: str) -> bool:
        """Whether a file or folder exists."""
        return bool(self._files.util().exists(self._at(path)))

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        if not self.exists(path):
            return []
        found = self._files.util().listStatus(self._at(path))
        return sorted(str(each.getPath().getName()) for each in found)

    def move(self, source: str, target: str) -> None:
        """Move a file or folder; raises FileExists if the target exists."""
        self._make_folder(target.rpartition("/")[0])
        if self.exists(target):
            raise FileExists(f"{self.root}/{target} exists")
        try:
            self._files.rename(self._at(source), self._at(target), self._no_rename_options)
        except Py4JJavaError as exc:
            name = exc.java_exception.getClass().getSimpleName()
            if name == "FileAlreadyExistsException":
                raise FileExists(f"{self.root}/{target} exists") from exc
            raise

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content."""
        if self.exists(path):
            self._files.delete(self._at(path), True)

    def _make_folder(self, path: str) -> None:
        permission = self._jvm.org.apache.hadoop.fs.permission.FsPermission.getDirDefault()
        if not self.exists(path):
            self._files.mkdir(self._at(path), permission, True)

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{path}" if path else self.root)
