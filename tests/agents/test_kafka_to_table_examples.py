"""The scripts of the how-to from a Kafka topic to a table run unchanged, against real servers."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from arrester import Agent
from tests import delta_lake, postgres_server
from tests.agents.pipeline_bench import Bench
from tests.agents.test_examples_of_the_docs import examples, paused, run
from tests.kafka_broker import KafkaBroker, Sent, connector
from tests.patience import wait_until
from tests.services import REPOSITORY

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not connector(), reason="there is no Kafka connector for this Spark"),
]

HOW_TO = "docs/how-to/kafka-to-a-table.md"
DELTA_REFUSAL = "org.apache.spark.sql.delta.schema.DeltaInvariantViolationException"
Counts = list[tuple[Any, ...]]


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


@pytest.mark.smoke
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
    bench: Bench, kafka_broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, script = examples(HOW_TO)
    create = blocks_of("sql")[0]
    with postgres_server.running() as postgres:
        monkeypatch.setenv("DB_PASSWORD", postgres.options["password"])
        postgres.execute(cast(Any, create))
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
        set(re.findall(r"--packages (\S+)", block)[0].split(",")) for block in blocks_of("sh")
    )
    assert delta <= tested
    # The connector is that of the newest Spark: see test_docs.
    assert {each for each in postgresql if "kafka" not in each} <= tested
