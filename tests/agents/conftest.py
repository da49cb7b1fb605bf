from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from arrester.agents.transport.spool import Spool
from tests import hdfs_cluster, s3_server
from tests import kafka_broker as broker_process
from tests.agents.pipeline_bench import Bench
from tests.agents.redis_server import FoldingSide, Server, running
from tests.agents.sample_events import batch_id


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    """Return a bench in a new folder."""
    made = Bench(spark, tmp_path)
    yield made
    made.close()


@pytest.fixture
def spool(bench: Bench) -> Iterator[Spool]:
    """Return a spool, into which the runs of the bench measure their flow."""
    made = Spool(bench.folder / "spool.sqlite", id=batch_id(0), limit_bytes=2**20)
    bench.outbox.flow = made.flow
    yield made
    bench.stop()
    made.close()


@pytest.fixture(scope="session")
def redis_process() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[broker_process.KafkaBroker]:
    """Run one Kafka broker; each test has topics of its own."""
    with broker_process.running() as broker:
        yield broker


@pytest.fixture
def redis_server(redis_process: Server) -> Iterator[Server]:
    """Return a running, empty Redis; the test may stop and start it."""
    redis_process.client.config_set("maxmemory", 0)
    redis_process.client.flushall()
    yield redis_process
    if not redis_process.process.alive():
        redis_process.start()


@pytest.fixture
def folding(redis_server: Server) -> FoldingSide:
    return FoldingSide(redis_server.client)


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Run a server of S3, and return its URL."""
    if not s3_server.archives():
        pytest.skip("tests/jars names no S3A for this Spark")
    with s3_server.running() as url:
        yield url


@pytest.fixture(scope="session")
def hdfs() -> Iterator[str]:
    """Run a cluster of HDFS, and return its URL."""
    with hdfs_cluster.running() as url:
        yield url


@pytest.fixture(scope="session")
def s3a(spark: SparkSession, s3: str) -> Any:
    """Set the options of S3A, and return Hadoop's configuration."""
    java: Any = spark._jsc
    conf = java.hadoopConfiguration()
    # Without the cache, two storages are of two drivers.
    options = s3_server.configuration(s3) | {"fs.s3a.impl.disable.cache": "true"}
    for name, value in options.items():
        conf.set(name, value)
    return conf


@pytest.fixture
def bucket(s3a: Any, s3: str) -> str:
    """Return the URL of a new bucket."""
    return s3_server.new_bucket(s3)
