"""The examples of README, tutorial and how-tos run unchanged, in other folders."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester import Agent
from arrester.agents.dead_letters.destinations import LAYOUT
from arrester.agents.dead_letters.rows import COLUMNS
from arrester.agents.definition.builder import define
from arrester.examples.flights import SCHEMA, plausible
from tests.agents.pipeline_bench import Bench, write_batch
from tests.patience import wait_until
from tests.services import REPOSITORY

pytestmark = pytest.mark.spark


def examples(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), re.DOTALL)


@pytest.fixture
def bench(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    return bench


def run(example: str, stop_when: Callable[[Agent], bool], **given: Any) -> dict[str, Any]:
    """Run a script until a condition holds; return its variables."""
    # As in a script: its functions travel to executors by value.
    variables: dict[str, Any] = {"__name__": "__main__", **given}
    found: list[BaseException | None] = []

    def stop() -> None:
        try:
            wait_until(lambda: "agent" in variables and stop_when(variables["agent"]))
            found.append(None)
        except BaseException as exc:
            found.append(exc)
        finally:
            variables["agent"].stop()

    stopper = threading.Thread(target=stop, daemon=True)
    stopper.start()
    exec(compile(example, "example", "exec"), variables)
    stopper.join()
    assert found == [None]
    return variables


def paused(agent: Agent) -> list[tuple[str | None, int | None]]:
    return [(task.id.key, task.position) for task in agent.paused_tasks()]


def test_the_example_of_the_readme(bench: Bench) -> None:
    [example] = examples("README.md")
    (bench.folder / "flights").mkdir()
    rows = [("JFK", 0, "12"), ("JFK", 1, "901"), ("JFK", 2, "3"), ("EWR", 0, "NA"), ("EWR", 1, "7")]
    lines = [
        json.dumps(dict(zip(("airport", "position", "delay"), row, strict=True))) for row in rows
    ]
    (bench.folder / "flights" / "all.json").write_text("\n".join(lines))

    def done(agent: Agent) -> bool:
        # A task is PAUSED before the other records are written.
        files = list((bench.folder / "delays").glob("batch=0/*.parquet"))
        return paused(agent) == [("JFK", 1)] and bool(files)

    run(example.replace("/data", str(bench.folder)), done)

    written = bench.spark.read.parquet(str(bench.folder / "delays")).collect()
    assert sorted((row["airport"], row["position"]) for row in written) == [("EWR", 1), ("JFK", 0)]
    assert list((bench.folder / "dead-letters").glob("day=*/*/_SUCCESS"))


def test_the_script_of_the_tutorial(bench: Bench) -> None:
    [script] = examples("docs/tutorial/first-pipeline.md")
    faster = script.replace('"rowsPerSecond", 5', '"rowsPerSecond", 200')
    faster = faster.replace("/tmp/first", str(bench.folder))
    assert faster.count("200") == 1

    run(faster, lambda agent: paused(agent) == [("shop-1", 100)])


def test_the_cell_of_the_notebook_page(bench: Bench, spark: SparkSession) -> None:
    [cell] = examples("docs/how-to/deploy/notebook.md")
    (bench.folder / "lines").mkdir()
    lines = [json.dumps({"shop": "a", "n": n}) for n in (0, 100)]
    (bench.folder / "lines/all.json").write_text("\n".join(lines))

    def plausible(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 100:
            raise ValueError("100 is not plausible")
        return row

    names: dict[str, Any] = {
        "spark": spark,
        "source": spark.readStream.schema("shop STRING, n BIGINT").json(f"{bench.folder}/lines"),
        "plausible": plausible,
    }
    exec(cell.replace("/tmp", str(bench.folder)), names)
    agent = names["agent"]
    wait_until(lambda: paused(agent) == [("a", 100)])
    [task] = agent.paused_tasks()
    assert agent.skip(task, reason="a typo")
    assert agent.remove_thread("numbers")
    agent.stop()


def test_the_examples_of_the_guide(bench: Bench, spark: SparkSession) -> None:
    pipeline, strict, connect, table, answers, probe = examples("docs/how-to/guard-a-pipeline.md")
    folder, dead_letters = bench.folder / "flights", bench.folder / "dlq" / "flights"
    folder.mkdir()
    row = {"origin": "JFK", "position": 0, "flight": "UA 1", "value": "no csv"}
    (folder / "all.json").write_text(json.dumps(row))
    source = spark.readStream.schema("origin STRING, position BIGINT, flight STRING, value STRING")

    run(
        pipeline.replace("/data", str(bench.folder)),
        lambda agent: list(dead_letters.glob("day=*/*/_SUCCESS")) != [],
        spark=spark,
        source=source.json(str(folder)),
        SCHEMA=SCHEMA,
        plausible=plausible,
    )

    *read, kafka = examples("docs/reference/dead-letters.md")
    assert "headers" in kafka  # its test is with Kafka's columns
    for example in read:
        reading: dict[str, Any] = {"spark": spark}
        exec(example.replace("/data/dlq", str(dead_letters)), reading)
        found = reading["dead_letters"]
        columns = found.toPandas() if isinstance(found, DataFrame) else found
        assert list(columns.columns) == [*COLUMNS, LAYOUT, "day"]
        assert [columns["task"][0], json.loads(columns["row"][0])] == ["JFK", row]
    names = {
        "builder": define("lines", source.json(str(folder)), task="origin", position="position"),
        "os": SimpleNamespace(environ={"DB_PASSWORD": ""}),
        "requests": SimpleNamespace(Session=SimpleNamespace),
        "URL": "http://localhost",
        "F": F,
        "enrich": dict,
        "number": F.col("value").cast("int"),
    }
    exec("from arrester import LogAndContinue, LogAndPause", names)
    for example in (strict, connect, table, answers, probe):
        exec(example, names)


def test_the_example_of_a_stateful_source(bench: Bench, spark: SparkSession) -> None:
    """Copies of written, held and skipped records are dropped, also after a restart."""
    [example] = examples("docs/how-to/stateful-sources.md")
    folder = bench.folder / "payments"

    def add(number: int, *rows: tuple[str, int, str]) -> None:
        names = ("customer", "number", "amount")
        at = "2026-01-01T00:00:00Z"
        events = [
            {**dict(zip(names, row, strict=True)), "event": f"{row[0]}-{row[1]}", "at": at}
            for row in rows
        ]
        write_batch(folder, number, events)

    def stopped(agent: Agent, held: int) -> bool:
        return [(task.id.key, task.position, task.held) for task in agent.paused_tasks()] == [
            ("a", 1, held)
        ]

    def skipped(agent: Agent) -> bool:
        wait_until(lambda: stopped(agent, 3), what="the pause of the earlier run")
        assert agent.skip("a", reason="a typing error")
        add(3, ("a", 1, "NA"), ("a", 2, "3"), ("b", 0, "4"), ("b", 1, "5"))
        wait_until(lambda: len(written()) == 5, what="the held records")
        return True

    def written() -> list[tuple[str, int]]:
        if not (bench.folder / "paid").exists():
            return []
        rows = spark.read.schema("customer STRING, number BIGINT").parquet(
            str(bench.folder / "paid")
        )
        return sorted((row.customer, row.number) for row in rows.collect())

    given: dict[str, Any] = {"spark": spark, "data": str(bench.folder)}
    add(1, ("a", 0, "1"), ("a", 1, "NA"), ("a", 2, "3"), ("b", 0, "4"))
    add(2, ("a", 1, "NA"), ("a", 0, "1"), ("a", 3, "6"))
    run(example, lambda agent: stopped(agent, 3), **given)
    assert written() == [("a", 0), ("b", 0)]
    run(example, skipped, **given)
    assert written() == [("a", 0), ("a", 2), ("a", 3), ("b", 0), ("b", 1)]
