"""From a topic with framed Avro to a table, under kills: each record is there exactly once."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyspark.sql import SparkSession

from tests import delta_lake, kafka_broker, postgres_server, schema_registry_process
from tests.kafka_broker import KafkaBroker, Sent
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.schema_registry_process import Registry
from tests.services import REPOSITORY

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(3600)]

KILLS = 30
TOPIC = "flights"
PARTITIONS = 3
FIELDS = [{"name": "number", "type": "long"}, {"name": "delay", "type": "int"}]
SCHEMA = {"type": "record", "name": "Flight", "fields": FIELDS}
#: Some records of each hundred are no Avro, and some have a negative delay, which pauses.
INVALID, NEGATIVE = {17, 58}, {33, 91}


class Flights:
    """A topic with numbered flights."""

    def __init__(self, broker: KafkaBroker, registry: Registry) -> None:
        self.broker = broker
        broker.make(TOPIC, PARTITIONS)
        with SchemaRegistryClient({"url": registry.url}) as client:
            self._id = client.register_schema(f"{TOPIC}-value", Schema(json.dumps(SCHEMA), "AVRO"))
        self._schema = fastavro.parse_schema(SCHEMA)
        self.numbers: list[int] = []

    def send(self, count: int) -> None:
        first = len(self.numbers)
        self.numbers += range(first, first + count)
        self.broker.send(TOPIC, *[self._record(number) for number in self.numbers[first:]])

    def _record(self, number: int) -> Sent:
        body = io.BytesIO()
        delay = -1 if number % 100 in NEGATIVE else 1
        fastavro.schemaless_writer(body, self._schema, {"number": number, "delay": delay})
        value = b"\0" + self._id.to_bytes(4, "big") + body.getvalue()
        key = str(number).encode()
        invalid = number % 100 in INVALID
        return Sent(key=key, value=b"{}" if invalid else value, partition=number % PARTITIONS)

    def expected(self) -> tuple[list[int], list[int]]:
        """Return the numbers of the records in the table, and of those that fail."""
        failing = [n for n in self.numbers if n % 100 in INVALID | NEGATIVE]
        return sorted({*self.numbers} - {*failing}), failing


class Driver:
    """Successive driver processes at one checkpoint."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        module = "tests.agents.kafka_to_table_driver"
        command = [sys.executable, "-m", module, str(self.folder), *self._arguments]
        with (self.folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        self._process.kill()
        self._process.wait()

    def is_running(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        return True

    def stop(self) -> None:
        assert self._process is not None
        (self.folder / "stop").touch()
        assert self._process.wait(timeout=PATIENCE_SECONDS) == 0, self.log()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return (self.folder / "driver.log").read_text()[-5_000:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table, by the driver's arguments, and the numbers in it, read without Arrester."""

    arguments: tuple[str, ...]
    numbers: Callable[[], list[int]]


@pytest.fixture(params=["PostgreSQL", "Delta"])
def table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Table]:
    if request.param == "Delta":
        if not delta_lake.archives():
            pytest.skip("there is no Delta Lake for this Spark")
        path = str(tmp_path / "table")
        columns = "partition INT, offset BIGINT, number BIGINT"
        spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta")

        def numbers() -> list[int]:
            rows = spark.sql(f"SELECT number FROM delta.`{path}` ORDER BY 1").collect()
            return [row[0] for row in rows]

        yield Table(arguments=(path,), numbers=numbers)
        return
    with postgres_server.running() as postgres:
        postgres.execute('CREATE TABLE flights (partition int, "offset" bigint, number bigint)')
        yield Table(
            arguments=(postgres.url, postgres.options["user"], postgres.options["password"]),
            numbers=lambda: [
                row[0] for row in postgres.rows("SELECT number FROM flights ORDER BY 1")
            ],
        )


@pytest.fixture
def parts() -> Iterator[tuple[KafkaBroker, Registry]]:
    with ExitStack() as stack:
        broker = stack.enter_context(kafka_broker.running())
        yield broker, stack.enter_context(schema_registry_process.running())


def test_each_record_is_in_the_table_or_a_dead_letter_once_after_random_kills(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    parts: tuple[KafkaBroker, Registry],
    table: Table,
) -> None:
    broker, registry = parts
    flights = Flights(broker, registry)
    driver = Driver(tmp_path, broker.servers, TOPIC, registry.url, *table.arguments)
    request.addfinalizer(driver.close)
    driver.start()
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(KILLS):
        flights.send(40)
        time.sleep(chance.uniform(2, 15))
        if chance.random() < 0.25:
            broker.kill()
            time.sleep(chance.uniform(0, 3))
            broker.start()
        else:
            driver.kill()
            driver.start()
        if chance.random() < 0.5:
            (tmp_path / "skip").touch()
        else:
            (tmp_path / "skip").unlink(missing_ok=True)
    (tmp_path / "skip").touch()
    in_table, failing = flights.expected()

    def dead() -> list[int]:
        complete = [str(mark.parent) for mark in (tmp_path / "dlq").glob("day=*/*/_SUCCESS")]
        if not complete:
            return []
        reader = spark.read.option("basePath", str(tmp_path / "dlq"))
        rows = reader.parquet(*complete).select("task", "position").collect()
        return sorted(row.position * PARTITIONS + int(row.task) for row in rows)

    def wait_for(found: Callable[[], list[int]], expected: list[int], what: str) -> None:
        """Wait for each further row: micro-batches are small, and many are left."""
        while (rows := len(found())) < len(expected):
            wait_until(lambda: driver.is_running() and len(found()) > rows, what=what)

    wait_for(table.numbers, in_table, "all rows")
    wait_for(dead, failing, "all dead letters")
    driver.stop()
    assert (table.numbers(), dead()) == (in_table, failing)
