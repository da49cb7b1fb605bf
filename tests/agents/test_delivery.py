"""Delivery from each source to each sink, against real servers.

The scripts of the how-to from a Kafka topic to a table run unchanged. A repeated micro-batch writes
as often as docs/reference/delivery.md has in its table.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester import Agent
from arrester.agents.definition.builder import PipelineBuilder, define
from arrester.agents.definition.pipeline import Pipeline
from tests import delta_lake, iceberg, postgres_server
from tests.agents.pipeline_bench import SCHEMA, Bench, Row, sink_to
from tests.agents.test_examples_of_the_docs import examples, paused, run
from tests.kafka_broker import KafkaBroker, Sent, connector
from tests.patience import wait_until
from tests.postgres_server import PostgresServer
from tests.services import REPOSITORY

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not connector(), reason="there is no Kafka connector for this Spark"),
]

HOW_TO = "docs/how-to/kafka-to-a-table.md"
DELTA_REFUSAL = "org.apache.spark.sql.delta.schema.DeltaInvariantViolationException"
Counts = list[tuple[Any, ...]]


DELIVERY = REPOSITORY / "docs" / "reference" / "delivery.md"
ROWS = [("a", 0, "x"), ("a", 1, "y"), ("b", 0, "z")]
COLUMNS = ", ".join(["task {text}", "position bigint", "value {text}"])


def blocks_of(language: str) -> list[str]:
    """Return the blocks of the page in another language than Python."""
    page = (REPOSITORY / HOW_TO).read_text()
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


@pytest.fixture
def topic(kafka_broker: KafkaBroker) -> str:
    """Return a topic of two partitions with a record of each kind on the page."""
    name = f"flights-{uuid.uuid4().hex[:8]}"
    kafka_broker.make(name, 2)
    flights = [
        (0, {"number": "UA 1", "origin": "JFK", "delay": 12}),
        (0, {"number": "UA 2", "origin": "JFK", "delay": 5_000}),
        (0, {"number": "UA 3", "origin": "EWR", "delay": None}),
        (1, {"number": "UA 4", "origin": "LGA", "delay": 0}),
        (1, {"number": "UA 5"}),
        (1, {"number": "UA 6", "origin": "LGA", "delay": "late"}),
    ]
    sent = [Sent(partition=at, value=json.dumps(flight).encode()) for at, flight in flights]
    last = Sent(partition=1, value=json.dumps(flights[3][1]).encode())
    kafka_broker.send(name, *sent, Sent(partition=1, value=None), last)
    return name


def check(
    script: str,
    bench: Bench,
    kafka_broker: KafkaBroker,
    topic: str,
    counts: Callable[[str], Counts],
    refusal: str,
    *replaced: tuple[str, str],
) -> None:
    """Run a script of the page, skip the implausible record, and compare what is where."""
    for text, replacement in (
        ("kafka-1:9092,kafka-2:9092", kafka_broker.servers),
        ('"subscribe", "flights"', f'"subscribe", "{topic}"'),
        *replaced,
        ("/data", str(bench.folder)),
    ):
        assert text in script
        script = script.replace(text, replacement)
    query = blocks_of("sql")[-1]

    def operate(agent: Agent) -> bool:
        wait_until(lambda: paused(agent) == [("0", 1)], what="the pause")
        wait_until(lambda: counts(query) == [(0, 1, 1, 0), (1, 2, 2, 4)], what="the other rows")
        [task] = agent.paused_tasks()
        assert task.held == 2
        assert agent.skip(task, reason="a typing error")
        wait_until(lambda: counts(query) == [(0, 2, 2, 2), (1, 2, 2, 4)], what="the held rows")
        return True

    run(script, operate)

    complete = (bench.folder / "dead-letters").rglob("_SUCCESS")
    dead_letters = bench.spark.read.parquet(*[str(mark.parent) for mark in complete])
    found = dead_letters.select("task", "position", "stage", "exception_class", "reason").collect()
    assert sorted(map(tuple, found)) == [
        ("0", 1, "process:plausible", "ValueError", "a typing error"),
        ("1", 1, "produce", refusal, None),
        ("1", 2, "deserialize", "org.apache.spark.SparkException", None),
    ]


@pytest.fixture
def bench(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    return bench


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server.running() as server:
        yield server


@pytest.mark.skipif(not delta_lake.archives(), reason="there is no Delta Lake for this Spark")
def test_the_script_into_delta(
    bench: Bench, spark: SparkSession, kafka_broker: KafkaBroker, topic: str
) -> None:
    script, _ = examples(HOW_TO)

    def counts(query: str) -> Counts:
        table = f"delta.`{bench.folder / 'flights'}`"
        return list(map(tuple, spark.sql(query.replace("FROM flights", f"FROM {table}")).collect()))

    check(script, bench, kafka_broker, topic, counts, DELTA_REFUSAL)


def test_the_script_into_postgresql(
    bench: Bench,
    kafka_broker: KafkaBroker,
    topic: str,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, script = examples(HOW_TO)
    monkeypatch.setenv("DB_PASSWORD", postgres.options["password"])
    postgres.execute(cast(Any, blocks_of("sql")[0]))
    check(
        script,
        bench,
        kafka_broker,
        topic,
        lambda query: postgres.rows(cast(Any, query)),
        "org.postgresql.util.PSQLException",
        ("jdbc:postgresql://db.example.com:5432/flights", postgres.url),
        ('"loader"', f'"{postgres.options["user"]}"'),
    )


def test_the_packages_are_those_of_the_tests() -> None:
    tested = {
        f"{organisation}:{name}:{revision}"
        for part in ("kafka-4.0", "delta-4.0", "postgresql")
        for organisation, name, revision in re.findall(
            r'org="(.+?)" name="(.+?)" rev="(.+?)"',
            Path(REPOSITORY / f"tests/jars/{part}.xml").read_text(),
        )
    }
    delta, postgresql = (
        set(re.findall(r"[\w.]+:[\w.-]+:[\d.]+", block)) for block in blocks_of("sh")
    )
    assert (len(delta), len(postgresql)) == (2, 2)
    assert delta <= tested
    # The connector is that of the newest Spark: see test_docs.
    assert {each for each in postgresql if "kafka" not in each} <= tested


class Sinks:
    """All sinks, by their names in the table, each with what counts the rows in it."""

    def __init__(self, bench: Bench, broker: KafkaBroker, postgres: PostgresServer) -> None:
        self.bench, self.broker, self.postgres = bench, broker, postgres
        self.name = f"out_{uuid.uuid4().hex[:8]}"

    def finish(self, sink: str, rows: PipelineBuilder) -> Pipeline:
        """Return the rows with a new sink."""
        folder = self.bench.folder / "sinks"
        match sink:
            case ".write_jdbc":
                create = f"CREATE TABLE {self.name} ({COLUMNS.format(text='text')})"
                self.postgres.execute(cast(Any, create))
                server = self.postgres
                return rows.write_jdbc(self.name, url=server.url, options=server.options)
            case ".write_delta":
                table = f"delta.`{folder / 'delta'}`"
                columns = COLUMNS.format(text="string")
                self.bench.spark.sql(f"CREATE TABLE {table} ({columns}) USING delta")
                return rows.write_delta(str(folder / "delta"))
            case ".write_iceberg":
                warehouse = iceberg.catalog(self.name, self.bench.folder / "warehouse")
                for name, value in warehouse.items():
                    self.bench.spark.conf.set(name, value)
                columns = COLUMNS.format(text="string")
                table = f"{self.name}.db.lines"
                self.bench.spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg")
                return rows.write_iceberg(table)
            case ".write_files, number_column=":
                return rows.write_files(folder / "numbered", number_column="batch")
            case ".write_files":
                return rows.write_files(folder / "appended")
            case ".write_kafka":
                self.broker.make(self.name)
                servers = {"kafka.bootstrap.servers": self.broker.servers}
                return rows.write_kafka(self.name, options=servers)
            case ".produce":
                return rows.produce(sending(str(self.bench.folder / "sent")))
            case ".write, appending":
                appended = str(folder / "added" / "all")
                return rows.write(lambda df, number: df.write.mode("append").json(appended))
        assert sink == ".write, replacing by number"
        return rows.write(sink_to(folder / "replaced"))

    def count(self, sink: str) -> int:
        folder, spark = self.bench.folder / "sinks", self.bench.spark
        match sink:
            case ".write_jdbc":
                [[rows]] = self.postgres.rows(cast(Any, f"SELECT count(*) FROM {self.name}"))
                return int(rows)
            case ".write_delta":
                return spark.read.format("delta").load(str(folder / "delta")).count()
            case ".write_iceberg":
                return spark.table(f"{self.name}.db.lines").count()
            case ".write_files, number_column=":
                return spark.read.parquet(str(folder / "numbered")).count()
            case ".write_files":
                return spark.read.parquet(str(folder / "appended")).count()
            case ".write_kafka":
                return len(self.broker.messages(self.name))
            case ".produce":
                return len((self.bench.folder / "sent").read_text().splitlines())
        function = "added" if sink == ".write, appending" else "replaced"
        return spark.read.json(str(folder / function / "*")).count()


def sending(file: str) -> Callable[[Row], None]:
    def send(row: Row) -> None:
        with open(file, "a") as sent:
            sent.write(f"{row['position']}\n")

    return send


def source_of(kind: str, bench: Bench, broker: KafkaBroker) -> DataFrame:
    """Return a source with all rows; a stream has them in one micro-batch."""
    if kind != "Kafka":
        bench.add(*ROWS)
        reader = bench.spark.readStream if kind == "files" else bench.spark.read
        return reader.schema(SCHEMA).json(str(bench.folder / "in"))
    topic = f"in-{uuid.uuid4().hex[:8]}"
    broker.make(topic, 2)
    broker.send(topic, *[Sent(value=v.encode(), partition="ab".index(t)) for t, _, v in ROWS])
    reader = bench.spark.readStream.format("kafka").option("startingOffsets", "earliest")
    stream = reader.option("kafka.bootstrap.servers", broker.servers).option("subscribe", topic)
    return stream.load().select(
        F.col("partition").cast("string").alias("task"),
        F.col("offset").alias("position"),
        F.col("value").cast("string"),
    )


def documented() -> dict[str, dict[str, str]]:
    """Return the table of deliveries: by source and sink."""
    section = DELIVERY.read_text().partition("\n## How often\n")[2].partition("\n## ")[0]
    table = section[section.index("| sink ") :].partition("\n\n")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines()]
    head, _, *rows = [[cell.strip().replace("`", "") for cell in line] for line in lines]
    kinds = head[1:]
    return {kind: {row[0]: row[at] for row in rows} for at, kind in enumerate(kinds, start=1)}


@pytest.mark.parametrize(
    "kind",
    [
        "Kafka",
        pytest.param("files", marks=pytest.mark.long),
        pytest.param("static data", marks=pytest.mark.long),
    ],
)
def test_a_repeated_micro_batch_is_delivered_as_documented(
    kind: str, bench: Bench, kafka_broker: KafkaBroker, postgres: PostgresServer
) -> None:
    source = source_of(kind, bench, kafka_broker)
    rows = define("lines", source, task="task", position="position")
    sinks = Sinks(bench, kafka_broker, postgres)
    of_tables = {".write_delta": delta_lake.archives(), ".write_iceberg": iceberg.archives()}
    absent = {sink for sink, archives in of_tables.items() if not archives}
    for sink, delivery in documented()[kind].items():
        if sink in absent:
            continue
        pipeline = sinks.finish(sink, rows)
        bench.checkpoint = str(bench.folder / f"checkpoint-{sink}")
        folder = Path(bench.checkpoint) / ("arrester/batch" if kind == "static data" else "")
        commit = folder / "commits" / "0"
        for _ in range(2):
            # As after a kill between the sink and Spark's commit.
            commit.unlink(missing_ok=True)
            commit.with_name(".0.crc").unlink(missing_ok=True)
            thread = bench.start(pipeline)
            wait_until(lambda: commit.exists() or not thread.is_running, what=sink)  # noqa: B023
            bench.stop()
        assert all(each.finished for each in bench.ends), sink
        times = {"exactly once": 1, "at least once": 2}[delivery]
        assert sinks.count(sink) == times * len(ROWS), sink
