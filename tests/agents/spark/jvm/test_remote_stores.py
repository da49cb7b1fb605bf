"""A checkpoint on S3, by the real S3A of this Spark (Hadoop 3.3.4, 3.4.1 or 3.5.0), and on HDFS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from arrester.agents.handlers import ErrorContext, LogAndContinue, Record, RecordError
from arrester.agents.journal.exclusive_create import check_exclusive_create
from arrester.agents.journal.storage import CheckpointUnusable, FileExists, last_committed
from arrester.agents.spark.jvm.classes import has_jvm_class
from arrester.agents.spark.jvm.stores.hadoop_storage import HadoopStorage, storage
from arrester.domain.error_policy.policy import Response
from arrester.domain.state.states import ThreadStatus
from tests import s3_server
from tests.agents.journal.test_fencing import claimed_by_another
from tests.agents.journal.test_journal import check_storage
from tests.agents.pipeline_bench import Bench
from tests.agents.spark.jvm.test_hadoop_storage import race
from tests.patience import wait_until

pytestmark = pytest.mark.spark

PROTOCOL = "spark.sql.sources.commitProtocolClass"
CLOUD_COMMITTERS = {
    PROTOCOL: "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": (
        "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"
    ),
}


# The smoke tests are those of S3: its clients differ by the version of Hadoop.
@pytest.fixture(
    params=[
        pytest.param("bucket", marks=pytest.mark.smoke),
        pytest.param("hdfs", marks=pytest.mark.long),
    ]
)
def root(request: pytest.FixtureRequest) -> str:
    """Return the URL of a bucket, or of a folder on HDFS."""
    url: str = request.getfixturevalue(request.param)
    return url if request.param == "bucket" else f"{url}/{uuid4()}"


@pytest.fixture
def folder(root: str) -> str:
    return f"{root}/checkpoints/lines"


@pytest.mark.parametrize("entries", [100, pytest.param(1_000, marks=pytest.mark.long)])
def test_of_two_drivers_on_s3_or_hdfs_one_creates_each_entry(
    spark: SparkSession, folder: str, entries: int
) -> None:
    files = storage(spark, folder)
    check_storage(files)
    check_exclusive_create(files)
    assert files.names("") == []
    race((storage(spark, folder), storage(spark, folder)), entries)


@pytest.mark.smoke
def test_s3_that_ignores_the_condition_is_refused(spark: SparkSession, s3a: Any, s3: str) -> None:
    files = storage(spark, s3_server.new_bucket(s3, s3_server.IGNORING))
    with pytest.raises(CheckpointUnusable, match=r"created the same file\. Use a bucket with"):
        check_exclusive_create(files)
    assert files.names("") == []


@pytest.mark.smoke
@pytest.mark.parametrize(
    "options",
    [
        {"fs.s3a.encryption.algorithm": "AES256"},
        {"fs.s3a.audit.reject.out.of.span.operations": "true"},
        {"fs.s3a.directory.marker.retention": "delete"},
    ],
)
def test_entries_are_created_with_the_options_of_s3a(
    spark: SparkSession, bucket: str, s3a: Any, options: dict[str, str]
) -> None:
    for name, value in options.items():
        s3a.set(name, value)
    try:
        files = storage(spark, bucket)
        files.create("journal/1", b"first")
        with pytest.raises(FileExists):
            files.create("journal/1", b"second")
        assert (files.names("journal"), files.read("journal/1")) == (["1"], b"first")
    finally:
        for name in options:
            s3a.unset(name)


def test_another_file_system_of_s3_reads_what_s3a_creates(
    spark: SparkSession, bucket: str, s3a: Any
) -> None:
    """Platforms have their own for `s3:`; here it is S3A by another name of its class."""
    s3a.set("fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")
    try:
        files = storage(spark, f"s3{bucket[3:]}/lines")
        assert isinstance(files, HadoopStorage)
        check_exclusive_create(files)
        files.create("journal/1", b"first")
    finally:
        s3a.unset("fs.s3.impl")
    assert storage(spark, f"{bucket}/lines").read("journal/1") == b"first"


class Both:
    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Response:
        return Response.CONTINUE if record.row["value"] == "skip" else Response.PAUSE


def test_a_pipeline_with_everything_on_s3_or_hdfs_pauses_and_resumes(
    bench: Bench, root: str, folder: str, spark: SparkSession
) -> None:
    repaired = str(bench.folder / "repaired")
    dead_letters = f"{root}/dlq"

    def check(row: dict[str, Any]) -> dict[str, Any]:
        import os

        if row["value"] == "skip" or (row["value"] == "bad" and not os.path.exists(repaired)):
            raise ValueError(row["value"])
        return row

    def start() -> None:
        pipeline = bench.checking(check, Both())
        thread = bench.thread(pipeline, errors_dlq_path=dead_letters)
        thread.start(folder)

    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"), ("b", 0, "skip"), ("b", 1, "x"))
    start()
    wait_until(lambda: len(bench.written()) == 2)
    bench.stop()
    assert sorted(bench.written()) == [("a", 0), ("b", 1)]
    [dead_letter] = spark.read.parquet(dead_letters).collect()
    assert (dead_letter["task"], dead_letter["position"]) == ("b", 0)

    Path(repaired).touch()
    start()
    wait_until(lambda: len(bench.written()) == 4)
    bench.stop()
    assert bench.positions("a") == [0, 1, 2]
    assert bench.ends == []
    files = storage(spark, folder)
    assert files.names("arrester/dead-letters") == []
    names = files.names("arrester/journal")
    assert names == [f"{number:020d}.json" for number in range(1, len(names) + 1)]


def test_a_newer_run_on_s3_or_hdfs_supersedes_an_older_one_before_it_writes(
    bench: Bench, folder: str, spark: SparkSession
) -> None:
    bench.add(("a", 0, "x"))
    thread = bench.thread(bench.checking(lambda row: row))
    thread.start(folder)
    wait_until(lambda: len(bench.written()) == 1)
    run = claimed_by_another(storage(spark, folder), thread)
    bench.add(("a", 1, "x"))

    wait_until(lambda: bool(bench.ends))

    assert run.epoch == thread.epoch + 1
    assert bench.ends[0].superseded
    assert bench.positions("a") == [0]


@pytest.mark.smoke
@pytest.mark.parametrize(
    "committer",
    ["magic", *(pytest.param(name, marks=pytest.mark.long) for name in ("file", "directory"))],
)
def test_files_on_s3_have_each_record_once_with_each_committer(
    bench: Bench, bucket: str, spark: SparkSession, s3a: Any, committer: str
) -> None:
    folder = f"{bucket}/checkpoint"
    settings = {} if committer == "file" else CLOUD_COMMITTERS
    if settings and not has_jvm_class(spark._jvm, CLOUD_COMMITTERS[PROTOCOL]):
        pytest.skip("no spark-hadoop-cloud for this Spark")
    s3a.set("fs.s3a.committer.name", committer)
    s3a.set("fs.s3a.committer.staging.tmp.path", f"file:{bench.folder}/staging")
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        bench.add(("a", 0, "x"), ("a", 1, "skip"), ("b", 0, "x"))
        bench.add(("a", 2, "x"), ("b", 1, "x"))
        parsed = bench.define().process("parse", parse, on_error=LogAndContinue())
        pipeline = parsed.write_files(f"{bucket}/out", number_column="number")
        assert pipeline.sink.is_atomic(spark)
        thread = bench.thread(pipeline)
        thread.start(folder)
        wait_until(lambda: thread.state is not ThreadStatus.RUNNING or is_committed(spark, folder))
        bench.stop()
        rows = spark.read.parquet(f"{bucket}/out").collect()
        written = sorted((row["number"], row["task"], row["position"]) for row in rows)
        assert written == [(0, "a", 0), (0, "b", 0), (1, "a", 2), (1, "b", 1)]
        assert [each["position"] for each in bench.dead_letters()] == [1]
        # Those of S3A name themselves.
        mark = storage(spark, f"{bucket}/out/number=1").read("_SUCCESS") or b"{}"
        assert json.loads(mark).get("committer", "file") == committer
    finally:
        for name in settings:
            spark.conf.unset(name)
        s3a.unset("fs.s3a.committer.name")


def parse(row: dict[str, Any]) -> dict[str, Any]:
    if row["value"] == "skip":
        raise ValueError("to be skipped")
    return row


def is_committed(spark: SparkSession, folder: str) -> bool:
    return last_committed(storage(spark, folder)) == 1
