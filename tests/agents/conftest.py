from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.agents.redis_server import FoldingSide, Server, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def redis_process() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def redis_server(redis_process: Server) -> Iterator[Server]:
    """Return a Redis that is up and empty; the test may stop it and start it again."""
    redis_process.client.flushall()
    yield redis_process
    if not redis_process.process.alive():
        redis_process.start()


@pytest.fixture
def folding(redis_server: Server) -> FoldingSide:
    return FoldingSide(redis_server.client)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for all tests; each has its own folders."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # It tells of each connection, also after pytest has closed the stream it would tell it to.
    logging.getLogger("py4j").setLevel(logging.ERROR)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stopTimeout", "60s")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
