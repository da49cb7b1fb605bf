"""Servers for the tests that ask for them, and a clean database for each test.

Event tables refuse TRUNCATE, so a test that commits gets its database cloned again from a migrated
template afterwards, where Django would flush it.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Generator, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis as redis_client
from django.conf import settings
from django.db import connections
from django.test import TransactionTestCase
from hypothesis import HealthCheck
from hypothesis import settings as properties
from pytest_django.plugin import DjangoDbBlocker

from arrester.controlplane import embedded
from arrester.controlplane.celery import app
from arrester.controlplane.redis import redis_urls
from arrester.controlplane.settings import database_settings
from tests import delta_lake, iceberg, s3_server, scratch
from tests import kafka_broker as broker_process
from tests import services as running_services
from tests.postgres_server import jdbc_driver
from tests.schema_registry_process import spark_avro
from tests.spark import py4j_lookups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.durations"]

# No test fails because the machine is busy.
patient = properties(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `make test-long` has 100 examples for each property.
properties.register_profile("release", patient)
properties.register_profile("suite", patient, max_examples=50)
properties.load_profile("suite")

scratch.use()
# Spark uses the python3 on the PATH for its workers, unless it is configured otherwise.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark"))
settings.SECRET_KEY = "only for tests " * 4
settings.PASSWORD_HASHERS = ["tests.password_hasher.FastHasher"]
# No test sees or changes the data of a product that runs in this checkout, nor does a process of
# a test; and none has an alert because the disk of this machine is full.
HOME = Path(scratch.FOLDER) / "no-arrester"
os.environ["ARRESTER_HOME"] = str(HOME)
settings.ENVIRONMENT = replace(settings.ENVIRONMENT, home=HOME)


@pytest.fixture(scope="session")
def services() -> Iterator[embedded.Urls]:
    """Start PostgreSQL and Redis once; settings and child processes find them there."""
    with running_services.running() as urls:
        os.environ["DATABASE_URL"] = settings.DATABASE_URL = urls.database
        os.environ["MIGRATE_DATABASE_URL"] = settings.MIGRATE_DATABASE_URL = urls.migrate_database
        os.environ["REDIS_URL"] = settings.REDIS_URL = urls.redis
        os.environ["ARRESTER_SECRET_KEY"] = settings.SECRET_KEY
        connections["default"].settings_dict.update(
            database_settings("DATABASE_URL", urls.database) | {"CONN_MAX_AGE": 0}
        )
        settings.BROKER_URL = urls.broker
        app.conf.update(broker_url=redis_urls.for_celery(urls.broker))
        yield urls


@pytest.fixture(scope="session")
def django_db_setup(
    services: embedded.Urls,
    django_test_environment: None,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[None]:
    """Migrate a template as the owner and clone the test database from it."""

    def clone_again(test_case: TransactionTestCase) -> None:
        connections.close_all()
        running_services.clone(services)

    running_services.make_template(services)
    running_services.clone(services)
    with pytest.MonkeyPatch.context() as patch:
        # What Django does here is to TRUNCATE every table.
        patch.setattr(TransactionTestCase, "_fixture_teardown", clone_again)
        yield
    with django_db_blocker.unblock():
        connections.close_all()


@pytest.fixture
def fresh_database(transactional_db: None, services: embedded.Urls) -> embedded.Urls:
    """Return where child processes find the test database; the test's commits are real."""
    return services


@pytest.fixture
def redis(services: embedded.Urls) -> Iterator[redis_client.Redis]:
    """Return a client of an empty Redis."""
    with redis_client.Redis.from_url(services.redis) as client:
        client.flushall()
        yield client
        client.flushall()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for all tests; each has its own folders."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # It logs each connection, also after pytest has closed the stream of the log.
    logging.getLogger("py4j").setLevel(logging.ERROR)
    jars = (
        *broker_process.connector(),
        *spark_avro(),
        *jdbc_driver(),
        *delta_lake.archives(),
        *iceberg.archives(),
        *s3_server.archives(),
    )
    session = (
        SparkSession.builder.master("local[2]")
        .config(map=delta_lake.configuration())
        .config("spark.ui.enabled", "false")
        # Long-lived applications have more stages than Spark retains; it drops skipped ones first.
        .config("spark.ui.retainedStages", "10")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stopTimeout", "60s")
        .config("spark.python.daemon.module", "tests.spark.daemon")
        .config("spark.jars", ",".join(map(str, jars)))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    with pytest.MonkeyPatch.context() as patch:
        py4j_lookups.keep(patch)
        yield session
    session.stop()


def pytest_configure(config: pytest.Config) -> None:
    """Accept warnings of older versions of PySpark itself."""
    if tuple(map(int, version("pyspark").split(".")[:2])) < (4, 3):
        # The garbage collector closes the sockets of py4j.
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
        config.addinivalue_line("filterwarnings", "ignore:distutils:DeprecationWarning")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the tests and their modules, which stay, out of the collections of garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files that start processes of their own first, so that no long one is left at the end."""
    long_files = {
        item.path for item in items for mark in ("e2e", "chaos") if item.get_closest_marker(mark)
    }
    items.sort(key=lambda item: item.path not in long_files)
