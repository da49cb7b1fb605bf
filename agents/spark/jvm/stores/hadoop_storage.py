"""Storage of a checkpoint on any file system of Hadoop."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession

from arrester.agents.journal.storage import (
    CheckpointUnusable,
    FileExists,
    LocalStorage,
    Storage,
)
from arrester.agents.spark.jvm.classes import class_object, jvm_class
from arrester.agents.spark.jvm.stores.hadoop import hadoop_conf, qualified_path
from arrester.agents.spark.jvm.stores.s3_uploads import S3A, s3_uploads

_HADOOP = "org.apache.hadoop.fs"
#: The encoding in which each byte is a character.
_ANY_BYTE = "ISO-8859-1"
#: Schemes whose file systems rename in one step, and never onto an existing file.
_RENAMING = ("hdfs", "abfs", "abfss")
#: Option of Hadoop's `createFile`, from 3.4.2. The file appears on close, unless it exists then.
_CONDITIONAL = "fs.option.create.conditional.overwrite"
#: The setting of the class for files of Spark's checkpoints. Some platforms have their own class.
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
#: Schemes of S3. Platforms have file systems of their own for `s3`.
_S3 = ("s3", "s3a")
_S3_REMEDY = (
    "Use a bucket with conditional writes (If-None-Match: *) and hadoop-aws 3.3.2 or later with "
    "fs.s3a.create.conditional.enabled=true, or put the checkpoint on another store."
)
_REMEDIES = {
    **dict.fromkeys(_S3, _S3_REMEDY),
    "viewfs": "Give the URL of the file system that is mounted there, such as hdfs://.",
}
_REMEDY = "Put the checkpoint on HDFS, abfss://, gs://, s3a:// or a shared disk."


def storage(spark: SparkSession, location: str) -> Storage:
    """Return the storage for `location`: a local disk, or a Hadoop file system."""
    qualified = str(qualified_path(spark, location).toString())
    if urlsplit(qualified).scheme == "file":
        return LocalStorage(unquote(urlsplit(qualified).path) if ":" in location else location)
    return HadoopStorage(spark, qualified)


class HadoopStorage:
    """A folder on any Hadoop file system.

    A file is created by the operation that the store makes exclusive: a rename (HDFS, Azure), the
    platform's own class for Spark's checkpoints, or a conditional create (S3, GCS).
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        scheme = urlsplit(self.root).scheme
        self.remedy = _REMEDIES.get(scheme, _REMEDY)
        jvm: Any = spark._jvm
        self._paths = jvm_class(jvm, f"{_HADOOP}.Path")
        self._streams = jvm_class(jvm, "org.apache.commons.io.IOUtils")
        conf = hadoop_conf(spark)
        path = self._at("")
        self._files = path.getFileSystem(conf)
        #: The file system and its root that files are created by.
        self._created_by, self._created_at = self._files, self.root
        manager = str(conf.get(_MANAGER, ""))
        self._open: Callable[[str], tuple[Any, Callable[[], None]]] = self._open_conditional
        if scheme in _RENAMING:
            contexts = jvm_class(jvm, f"{_HADOOP}.FileContext")
            self._context = contexts.getFileContext(path.toUri(), conf)
            gateway: Any = spark.sparkContext._gateway
            self._no_options = gateway.new_array(jvm_class(jvm, f"{_HADOOP}.Options$Rename"), 0)
            self._open = self._open_draft
        # Spark's own classes check first and write then, so they do not make creation exclusive.
        elif manager and not manager.startswith("org.apache.spark."):
            self._manager = _new_manager(jvm, manager, path, conf)
            self._open = self._open_by_platform
        elif scheme in _S3:
            self._create_on_s3(jvm, conf)

    def _create_on_s3(self, jvm: Any, conf: Any) -> None:
        """Create files by S3A, also if another file system of S3 reads and lists them."""
        root = f"s3a:{self.root.partition(':')[2]}"
        path = self._paths(f"{root}/")
        try:
            files = path.getFileSystem(conf)
        except Py4JJavaError:
            return
        s3a = class_object(jvm, S3A)
        if s3a is None or not s3a.isInstance(files):
            return
        self._created_by, self._created_at = files, root
        if not files.hasPathCapability(path, _CONDITIONAL):
            uploads = s3_uploads(jvm, files)
            if uploads is not None:
                self._open = lambda path: uploads.open(self._paths(f"{root}/{path}"))

    def read(self, path: str) -> bytes | None:
        try:
            stream = self._files.open(self._at(path))
            try:
                # As text: py4j reads bytes one at a time.
                return str(self._streams.toString(stream, _ANY_BYTE)).encode(_ANY_BYTE)
            finally:
                stream.close()
        except Py4JJavaError as exc:
            if _is_missing(exc):
                return None
            raise

    def create(self, path: str, content: bytes) -> None:
        self.draft(path, content)()

    def draft(self, path: str, content: bytes) -> Callable[[], None]:
        with self._refusing(path):
            stream, complete = self._open(path)
            stream.write(bytearray(content))
        return partial(self._complete, path, complete)

    def _complete(self, path: str, complete: Callable[[], None]) -> None:
        with self._refusing(path):
            complete()

    def _open_conditional(self, path: str) -> tuple[Any, Callable[[], None]]:
        target = self._paths(f"{self._created_at}/{path}")
        builder = self._created_by.createFile(target).create().recursive().overwrite(False)
        stream = builder.opt(_CONDITIONAL, "true").build()
        return stream, stream.close

    def _open_by_platform(self, path: str) -> tuple[Any, Callable[[], None]]:
        self._files.mkdirs(self._at(path).getParent())
        stream = self._manager.createAtomic(self._at(path), False)
        return stream, stream.close

    def _open_draft(self, path: str) -> tuple[Any, Callable[[], None]]:
        folder, _, name = path.rpartition("/")
        draft = f"{folder}/.{name}.{uuid.uuid4()}.tmp" if folder else f".{name}.{uuid.uuid4()}.tmp"
        stream = self._files.create(self._at(draft), True)
        return stream, partial(self._rename, stream, draft, path)

    def _rename(self, stream: Any, draft: str, path: str) -> None:
        try:
            stream.close()
            self._context.rename(self._at(draft), self._at(path), self._no_options)
        except BaseException:
            self.delete(draft)
            raise

    @contextmanager
    def _refusing(self, path: str) -> Iterator[None]:
        """Raise FileExists for any failure if the file exists: each store has its own exception."""
        try:
            yield
        except Py4JJavaError as exc:
            if self.exists(path):
                raise FileExists(f"{self.root}/{path} exists") from exc
            raise

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._at(path)))

    def names(self, path: str) -> list[str]:
        try:
            statuses = self._files.listStatus(self._at(path))
        except Py4JJavaError as exc:
            if _is_missing(exc):
                return []
            raise
        return sorted(str(status.getPath().getName()) for status in statuses)

    def delete(self, path: str) -> None:
        self._files.delete(self._at(path), True)

    def _at(self, path: str) -> Any:
        # The path of a bucket without a slash is no absolute one.
        return self._paths(f"{self.root}/{path}")


def _new_manager(jvm: Any, manager: str, path: Any, conf: Any) -> Any:
    try:
        return jvm_class(jvm, manager)(path, conf)
    except (Py4JError, TypeError) as exc:
        raise CheckpointUnusable(
            f"{_MANAGER}={manager}: the class cannot be created for {path}: {exc}"
        ) from exc


def _is_missing(exc: Py4JJavaError) -> bool:
    return str(exc.java_exception.getClass().getSimpleName()) == "FileNotFoundException"
