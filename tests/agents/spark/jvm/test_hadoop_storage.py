"""Hadoop file systems in a checkpoint: which create is exclusive, and which stores are refused.

Java's compiler is not everywhere, so Spark's own (Janino) compiles the stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from arrester.agents.handlers import ErrorContext, Record, RecordError
from arrester.agents.journal.exclusive_create import check_exclusive_create
from arrester.agents.journal.storage import (
    CheckpointUnusable,
    FileExists,
    LocalStorage,
    Storage,
)
from arrester.agents.spark.jvm.stores.hadoop_storage import HadoopStorage, storage
from arrester.domain.error_policy.policy import Response
from tests.agents.journal.test_journal import check_storage
from tests.agents.pipeline_bench import Bench
from tests.patience import wait_until

pytestmark = pytest.mark.spark

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
PACKAGES = (
    "org.apache.spark.sql.execution.streaming.checkpointing",
    "org.apache.spark.sql.execution.streaming",
)

Open = Callable[..., HadoopStorage]


@pytest.fixture(scope="session")
def java_classes(spark: SparkSession) -> Any:
    """Return the class loader of the stores in Java. Py4j remembers classes by their name."""
    jvm: Any = spark._jvm
    folder = Path(__file__).parent
    stores = jvm.org.codehaus.janino.SimpleCompiler()
    stores.cook((folder / "Stores.java").read_text())
    source = (folder / "Manager.java").read_text()
    for package in PACKAGES:
        manager = jvm.org.codehaus.janino.SimpleCompiler()
        manager.setParentClassLoader(stores.getClassLoader())
        try:
            manager.cook(source.replace("SPARK_PACKAGE", package))
        except Exception:
            if package == PACKAGES[-1]:
                raise
        else:
            break
    return manager.getClassLoader()


@contextmanager
def configured(spark: SparkSession, java_classes: Any, names: dict[str, str]) -> Iterator[Any]:
    """Set options of Hadoop and give its configuration."""
    jvm: Any = spark._jvm
    java: Any = spark._jsc
    conf, thread = java.hadoopConfiguration(), jvm.java.lang.Thread.currentThread()
    loaders = conf.getClassLoader(), thread.getContextClassLoader()
    conf.setClassLoader(java_classes)
    thread.setContextClassLoader(java_classes)
    for name, value in names.items():
        conf.set(name, value)
    yield conf
    conf.setClassLoader(loaders[0])
    thread.setContextClassLoader(loaders[1])
    for name in names:
        conf.unset(name)


@pytest.fixture
def opened(spark: SparkSession, java_classes: Any) -> Iterator[Open]:
    """Return a function that opens a new folder of a scheme: `s3a` or `hdfs`."""
    names = {
        "fs.s3a.impl": "arrestertest.ObjectStore",
        "fs.s3a.impl.disable.cache": "true",
        "fs.hdfs.impl": "arrestertest.ObjectStore",
        "fs.hdfs.impl.disable.cache": "true",
        "fs.AbstractFileSystem.hdfs.impl": "arrestertest.ObjectStore$NameNode",
        "arrestertest.conditional": "true",
    }
    root = f"bucket/{uuid4()}"
    with configured(spark, java_classes, names) as conf:

        def opened(scheme: str, *, conditional: bool = True) -> HadoopStorage:
            conf.set("arrestertest.conditional", str(conditional).lower())
            return HadoopStorage(spark, f"{scheme}://{root}")

        yield opened


@pytest.fixture
def disk(spark: SparkSession, java_classes: Any) -> Iterator[str]:
    """Return the URL of the local disk as a Hadoop file system."""
    names = {
        "fs.hdfs.impl": "arrestertest.ObjectStore$Disk",
        "fs.AbstractFileSystem.hdfs.impl": "arrestertest.ObjectStore$DiskNameNode",
    }
    jvm: Any = spark._jvm
    with configured(spark, java_classes, names) as conf:
        # Executors find the file system in the cache of the JVM, and load no class.
        cached = jvm.org.apache.hadoop.fs.Path("hdfs://disk/").getFileSystem(conf)
        yield "hdfs://disk"
        cached.close()


def race(stores: tuple[Storage, Storage], entries: int) -> None:
    """Let two writers create each of some files at the same time, and check that one wins."""
    together = Barrier(2)

    def write(writer: int) -> set[int]:
        won = set()
        for number in range(entries):
            complete = stores[writer].draft(f"journal/{number}", str(writer).encode())
            together.wait()
            try:
                complete()
            except FileExists:
                continue
            won.add(number)
        return won

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(write, range(2))
    assert first & second == set()
    assert first | second == set(range(entries))
    assert all(stores[0].read(f"journal/{number}") == b"0" for number in first)
    assert all(stores[0].read(f"journal/{number}") == b"1" for number in second)


@pytest.mark.parametrize("entries", [100, pytest.param(1_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("scheme", ["hdfs", "s3a"])
def test_of_two_drivers_on_a_hadoop_file_system_one_creates_each_entry(
    opened: Open, scheme: str, entries: int
) -> None:
    check_storage(opened(scheme))
    race((opened(scheme), opened(scheme)), entries)


@pytest.mark.parametrize("scheme", ["hdfs", "s3a"])
def test_a_hadoop_file_system_that_fences_is_accepted_and_left_empty(
    opened: Open, scheme: str
) -> None:
    files = opened(scheme)
    check_exclusive_create(files)
    assert files.names("") == []


def test_s3_without_conditional_writes_is_refused(opened: Open) -> None:
    files = opened("s3a", conditional=False)
    with pytest.raises(CheckpointUnusable, match=r"created the same file\. Use a bucket with"):
        check_exclusive_create(files)
    assert files.names("") == []


def test_the_class_of_a_platform_for_checkpoints_creates_the_files(
    opened: Open, spark: SparkSession
) -> None:
    spark.conf.set(MANAGER, "arrestertest.Manager")
    try:
        files = opened("s3a", conditional=False)
        check_storage(files)
        check_exclusive_create(files)
        spark.conf.set(MANAGER, "com.example.Missing")
        with pytest.raises(CheckpointUnusable, match=f"{MANAGER}=com.example.Missing: the class"):
            opened("s3a")
    finally:
        spark.conf.unset(MANAGER)


def test_a_local_path_of_any_form_is_a_local_disk(spark: SparkSession, tmp_path: Path) -> None:
    for location in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        files = storage(spark, location)
        assert isinstance(files, LocalStorage)
        assert files.root == str(tmp_path)
        check_exclusive_create(files)


def test_hadoops_own_access_to_a_local_disk_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Its create opens the file at once, and its rename replaces an existing one."""
    files = HadoopStorage(spark, f"file:{tmp_path}/hadoop")
    with pytest.raises(CheckpointUnusable, match="visible before it is complete"):
        check_exclusive_create(files)
    assert files.names("") == []


def test_a_pipeline_with_its_checkpoint_on_a_hadoop_file_system_pauses_and_resumes(
    bench: Bench, disk: str
) -> None:
    repaired = str(bench.folder / "repaired")

    def check(row: dict[str, Any]) -> dict[str, Any]:
        import os

        if row["value"] == "skip" or (row["value"] == "bad" and not os.path.exists(repaired)):
            raise ValueError(row["value"])
        return row

    class Both:
        def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Response:
            return Response.CONTINUE if record.row["value"] == "skip" else Response.PAUSE

    def start() -> None:
        thread = bench.thread(bench.checking(check, Both()))
        thread.start(f"{disk}{bench.checkpoint}")

    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"), ("b", 0, "skip"), ("b", 1, "x"))
    start()
    bench.wait_for_input()
    bench.stop()
    assert sorted(bench.written()) == [("a", 0), ("b", 1)]
    assert [dead_letter["position"] for dead_letter in bench.dead_letters()] == [0]

    Path(repaired).touch()
    start()
    wait_until(lambda: len(bench.written()) == 4)
    bench.stop()
    assert bench.positions("a") == [0, 1, 2]
    assert bench.ends == []
    folder = Path(bench.checkpoint) / "arrester"
    assert list((folder / "dead-letters").iterdir()) == []
    names = [path.name for path in (folder / "journal").iterdir() if path.name[0] != "."]
    assert sorted(names) == [f"{number:020d}.json" for number in range(1, len(names) + 1)]
