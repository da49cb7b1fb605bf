"""Three acts enter the modules that the architecture page lists.

`make trips` prints all modules that they enter, and how many calls enter each.
"""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest
from django.test import Client
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from redis import Redis

from arrester import Agent, LogAndContinue, LogAndPause
from arrester.controlplane import embedded
from arrester.controlplane.ingest import fold_stream
from arrester.domain.identity import redis_keys
from tests.agents.flights import FLIGHT, World, validate
from tests.dashboard.story import Story
from tests.patience import wait_until
from tests.services import REPOSITORY
from tests.trips import Trip, profiled

#: The modules that a page of failures enters, with those of its session. A new one is another file
#: that a reader has to open.
MODULES = 22
#: Entered by a browser's connection, which no test client has.
LIVE = "dashboard/live/stream.py"


def check_hops(trip: Trip, section: str) -> None:
    """Check that a trip enters each module that a section of the architecture page names."""
    print(trip.report(section))
    text = (REPOSITORY / "docs/explanation/architecture.md").read_text()
    [hops] = re.findall(rf"^## {section}.*?$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`(\S+\.py)`", hops)) - {LIVE}
    assert named
    assert named <= trip.modules


@pytest.mark.long
@pytest.mark.spark
def test_a_failed_record_and_a_command_enter_the_modules_of_the_docs(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fresh_database: embedded.Urls,
    redis: Redis,
    operator: Client,
) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(tmp_path / "spool"))
    world, stream = World(spark, tmp_path), redis_keys.events("flights")
    failed, commanded = Trip(), Trip()
    world.arrive("first", [("EWR", 0, "0,0")])
    with profiled(failed, commanded, threads=True), Agent(spark, application="flights") as agent:
        flights = (
            agent.pipeline("flights", world.source(), task="origin", position="position")
            .deserialize("flight", F.from_csv("value", FLIGHT), on_error=LogAndContinue())
            .process("validate", validate, on_error=LogAndPause())
            .write_files(str(tmp_path / "sink"), format="json")
        )
        flights.start(world.checkpoint)
        wait_until(lambda: [*tmp_path.glob("sink/*.json")])
        wait_until(lambda: redis.xlen(stream))
        fold_stream.fold_stream("flights")
        operator.get("/errors")  # imports what the page needs

        with failed.counting():
            world.arrive("second", [("JFK", 0, "1000,3")])
            wait_until(agent.paused_tasks)
            wait_until(lambda: redis.xlen(stream))
            fold_stream.fold_stream("flights")
            [task] = agent.paused_tasks()
            assert "minutes late" in operator.get("/errors").content.decode()
            assert operator.get(f"/tasks/{task.id.digest}").status_code == 200

        form = {"reason": "a typo", "id": str(uuid4()), "lost": "on"}
        with commanded.counting():
            page = operator.post(f"/tasks/{task.id.digest}/skip", form)
            assert page.status_code < 400, page.content
            wait_until(lambda: not agent.paused_tasks())
            wait_until(lambda: redis.xlen(stream))
            fold_stream.fold_stream("flights")
    check_hops(failed, "A failed record")
    check_hops(commanded, "A command")


def test_a_page_of_failures_enters_the_modules_of_the_docs(flights: Story, viewer: Client) -> None:
    task = flights.pauses("JFK").digest
    flights.skips("EWR", 40)
    for wanted in ("application=flights", f"task={task}"):
        url, trip = f"/api/v1/failures?{wanted}", Trip()
        viewer.get(url)  # imports what the page needs, and reads rows of the session
        with profiled(trip, threads=False), trip.counting():
            assert viewer.get(url).json()["results"]
        check_hops(trip, "A page of failures")
        assert len(trip.modules) <= MODULES, trip.modules
