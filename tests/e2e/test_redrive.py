"""Cancelled flights of a year are dead letters: some mended, some discarded, some fail again."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrester.examples import flights_data
from tests import kafka_broker
from tests.e2e.stack import Stack, eventually, sink_positions
from tests.services import REPOSITORY

pytestmark = [
    *(pytest.mark.e2e, pytest.mark.spark, pytest.mark.long, pytest.mark.chaos),
    pytest.mark.timeout(1800),
]
CANCELLED, ROWS_PER_FILE, SECONDS = 8_255, 20_000, 600
ORIGINS = ("EWR", "JFK", "LGA")
MEND = [
    {"op": "test", "path": "/dep_time", "value": "NA"},
    {"op": "replace", "path": "/dep_time", "value": "0"},
]


@pytest.fixture
def departures(tmp_path: Path) -> dict[int, tuple[str, bool]]:
    """Write all flights of the year, and return origin and whether each departed, by position."""
    (tmp_path / "input").mkdir(parents=True)
    known, rows = {}, []
    for row in flights_data.rows():
        dep_time = str(row["value"]).split(",")[3]
        rows.append({**row, "dep_time": dep_time})
        known[int(str(row["position"]))] = (str(row["origin"]), dep_time != "NA")
    columns = [*flights_data.COLUMNS.names[:3], "dep_time"]
    for begin in range(0, len(rows), ROWS_PER_FILE):
        part = [
            {name: row[name] for name in columns} for row in rows[begin : begin + ROWS_PER_FILE]
        ]
        path = tmp_path / "input" / f"{begin // ROWS_PER_FILE:05d}.parquet"
        pq.write_table(pa.Table.from_pylist(part), path)
    assert Counter(departed for _, departed in known.values())[False] == CANCELLED
    return known


@pytest.fixture(params=["parquet", "topic"])
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the environment of a driver with this destination of dead letters."""
    if request.param == "parquet":
        errors = {"errors.dlq.enable": True, "errors.dlq.path": str(tmp_path / "dead-letters")}
        yield {"ERRORS": json.dumps(errors)}
        return
    with kafka_broker.running() as broker:
        broker.make("cancelled", partitions=3)
        errors = {
            "errors.dlq.enable": True,
            "errors.dlq.topic.name": "cancelled",
            "errors.dlq.producer.bootstrap.servers": broker.servers,
        }
        jars = (REPOSITORY / "build" / "jars" / "kafka-4.3").glob("*.jar")
        yield {"ERRORS": json.dumps(errors), "JARS": ",".join(map(str, jars))}


def start_driver(stack: Stack, destination: dict[str, str]) -> None:
    command = [sys.executable, "-m", "tests.e2e.redrive_driver", str(stack.folder)]
    stack.run("driver", command, REDIS_URL=stack.redis_url, **destination)


def redrive(stack: Stack, ids: list[str], **more: Any) -> str:
    body = {"application": "flights", "ids": ids, "reason": "a test", **more}
    status, command = stack.post("/api/v1/dead-letters/redrive", body)
    assert status == 202, command
    return str(command["id"])


def ended(stack: Stack, id: str) -> dict[str, Any]:
    def final() -> dict[str, Any]:
        command: dict[str, Any] = stack.get(f"/api/v1/commands/{id}")
        return {} if command["status"] == "ISSUED" else command

    return eventually(final, what="the redrive has ended", seconds=SECONDS, every=1)


def written(stack: Stack) -> dict[str, list[int]]:
    return {key: sink_positions(stack.folder, key) for key in ORIGINS}


def all_written(stack: Stack) -> list[int]:
    """Return the positions of all rows in the sink, as written."""
    positions: list[int] = []
    for part in sorted((stack.folder / "sink").glob("number=*")):
        if (part / "_SUCCESS").exists():
            positions += pq.read_table(part, columns=["position"]).column("position").to_pylist()
    return positions


def statuses(stack: Stack) -> Counter[str]:
    return Counter(each["status"] for each in stack.all_of("/api/v1/dead-letters"))


def test_dead_letters_are_mended_discarded_and_redriven(
    stack: Stack, departures: dict[int, tuple[str, bool]], destination: dict[str, str]
) -> None:
    start_driver(stack, destination)
    totals = "/api/v1/dead-letters/totals"
    eventually(
        lambda: sum(row["waiting"] for row in stack.get(totals)["results"]) == CANCELLED,
        what="all cancelled flights are dead letters",
        seconds=SECONDS,
    )
    present = len(departures) - CANCELLED
    eventually(
        lambda: sum(map(len, written(stack).values())) == present,
        what="all others are in the sink",
        seconds=SECONDS,
    )
    before = written(stack)
    rows = sorted(stack.all_of("/api/v1/dead-letters"), key=lambda row: row["position"])
    assert [row["position"] for row in rows] == [
        position for position, (_, departed) in departures.items() if not departed
    ]
    half, tenth = CANCELLED // 2, CANCELLED // 10
    mended, discarded, rest = rows[:half], rows[half : half + tenth], rows[half + tenth :]

    id = redrive(stack, [row["id"] for row in mended], patch=MEND)
    eventually(
        lambda: stack.get(f"/api/v1/commands/{id}")["redrive_progress"]["issued"] == half,
        what="the last wave has begun",
        seconds=SECONDS,
        every=0.05,
    )
    stack.kill("driver")
    stack.kill("worker")
    start_driver(stack, destination)
    stack.start_worker()
    status, done = stack.post(
        "/api/v1/dead-letters/discard",
        {
            "application": "flights",
            "ids": [row["id"] for row in discarded],
            "reason": "cancelled",
        },
    )
    assert (status, done["discarded"]) == (200, tenth), done
    found = ended(stack, id)
    assert found["status"] == "APPLIED", found
    assert found["outcome"] == f"{half:,} processed, 0 failed again"

    id = redrive(stack, [row["id"] for row in rest], waves=False)
    found = ended(stack, id)
    assert found["outcome"] == f"0 processed, {len(rest):,} failed again", found
    assert statuses(stack) == {
        "PROCESSED": half,
        "DISCARDED": tenth,
        "FAILED_AGAIN": len(rest),
    }
    after = written(stack)
    for key in ORIGINS:
        assert after[key][: len(before[key])] == before[key]
        expected = [row["position"] for row in mended if row["key"] == key]
        # Each once, in order.
        assert after[key][len(before[key]) :] == expected
    stack.manage("rebuild", "--verify")


def test_redrives_beside_stopped_tasks_survive_killed_drivers(
    stack: Stack, departures: dict[int, tuple[str, bool]], tmp_path: Path
) -> None:
    task_of = {at: f"{origin}{at % 10}" for at, (origin, _) in departures.items()}
    stopped = sorted(set(task_of.values()))[::6]
    assert len(set(task_of.values())) == 30 and len(stopped) == 5
    # In the middle of the year, so that each stopped task has dead letters and holds others.
    stops = {
        key: next(
            at
            for at, (_, departed) in departures.items()
            if departed and at > len(departures) // 2 and task_of[at] == key
        )
        for key in stopped
    }

    def is_held(at: int) -> bool:
        return at >= stops.get(task_of[at], len(departures) + 1)

    errors = {"errors.dlq.enable": True, "errors.dlq.path": str(tmp_path / "dead-letters")}
    environment = {
        "ERRORS": json.dumps(errors),
        "TASK": "concat(origin, position % 10)",
        "STOPS": json.dumps([*stops.values()]),
    }
    start_driver(stack, environment)
    held = sum(map(is_held, departures))
    first = [at for at, (_, departed) in departures.items() if departed and not is_held(at)]
    dead = [at for at, (_, departed) in departures.items() if not departed and not is_held(at)]
    eventually(
        lambda: (
            sum(each["held"] for each in stack.all_of("/api/v1/tasks")) == held
            and len(all_written(stack)) == len(first)
            and statuses(stack).total() == len(dead)
        ),
        what="all records are written, held or dead letters",
        seconds=SECONDS,
        every=2,
    )
    ids = [each["id"] for each in stack.all_of("/api/v1/dead-letters")]
    behind = sum(task_of[at] in stopped for at in dead)
    ready = len(dead) - behind

    id = redrive(stack, ids, patch=MEND)
    for share in (0.001, 0.1, 0.3, 0.6):
        eventually(
            lambda share=share: statuses(stack)["PROCESSED"] >= share * ready,  # type: ignore[misc]
            what=f"{share} of the records are processed",
            seconds=SECONDS,
            every=0.5,
        )
        stack.kill("driver")
        start_driver(stack, environment)
    found = ended(stack, id)
    assert found["status"] == "APPLIED", found
    assert found["outcome"].startswith(f"{ready:,} processed, 0 failed again"), found
    assert statuses(stack) == {"PROCESSED": ready, "REDRIVEN": behind}

    for key in stopped:
        requested = {"kind": "SKIP_RECORD", "task": stack.task(key)["id"], "reason": "a test"}
        assert stack.command(**requested)["status"] == "APPLIED"
    later = [at for at in departures if is_held(at) and at not in stops.values()]
    eventually(lambda: statuses(stack)["PROCESSED"] == len(dead), what="all are", seconds=SECONDS)
    written_now = all_written(stack)
    departed_later = [at for at in later if departures[at][1]]
    assert Counter(written_now) == Counter([*first, *dead, *departed_later])
    for key in set(task_of.values()):
        # What a task held precedes what was redriven to it.
        in_order = (*first, *departed_later, *dead)
        assert [at for at in written_now if task_of[at] == key] == [
            at for at in in_order if task_of[at] == key
        ]
    stack.manage("rebuild", "--verify")
