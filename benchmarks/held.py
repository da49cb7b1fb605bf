"""Held records: how soon a skip is applied, and how fast they drain."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyspark.sql import functions as F

from arrester import Agent, LogAndPause
from arrester.controlplane.domain.state.states import TaskState
from arrester.examples.flights import SCHEMA
from benchmarks.pipelines import PARSE, Flights, World, file_sink, session
from benchmarks.table import Figure

_TICK_SECONDS = 0.01
_TIMEOUT_SECONDS = 1_800.0
#: The micro-batches in which the held records arrived.
_FILES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A number of held records, of some tasks."""

    rows: int
    tasks: int

    @property
    def name(self) -> str:
        """The name of its figures."""
        return f"{self.rows:,} held records of {self.tasks:,} tasks"

    @property
    def flights(self) -> Flights:
        """The first record of each task fails."""
        return Flights(rows=self.rows, files=_FILES, dirty_first=self.tasks)


def figures(folder: Path, *, rows: int) -> list[Figure]:
    """Return the figures for 1%, 10% and all of `rows`, of one task and of many."""
    spark = session()
    try:
        world = World(spark=spark, folder=folder, rows=rows)
        cases = [Case(rows=part, tasks=1) for part in (rows // 100, rows // 10, rows)]
        many = Case(rows=rows // 10, tasks=min(1_000, rows // 100))
        return [each for case in [*cases, many] for each in _figures(world, case)]
    finally:
        spark.stop()


def _figures(world: World, case: Case) -> Iterator[Figure]:
    clean = Flights(rows=case.rows, files=_FILES)
    plain = median(world.took(world.plainly(PARSE, clean), clean).batch for _ in range(3))
    plain_rate = case.rows / _FILES / plain
    with _paused(world, case) as agent:
        first, *others = agent.paused_tasks()
        began = time.perf_counter()
        skipped_ms = _skip(agent, first)
        for task in others:
            _skip(agent, task)
        _wait_for(agent, held=0)
        rate = (case.rows - case.tasks) / (time.perf_counter() - began)
    found = [
        Figure(name=f"skip of the first of {case.name}, ms", value=skipped_ms, goal="≤ 150"),
        Figure(name=f"{case.name} drain, records/s", value=rate),
        Figure(name=f"{case.name}, drain ÷ plain", value=rate / plain_rate, goal="≥ 0.5"),
    ]
    for each in found:
        print(f"{each.name}: {each.value:,.3g}", file=sys.stderr, flush=True)
    yield from found


def _skip(agent: Agent, task: TaskState) -> float:
    """Skip the failed record of a task; return the milliseconds until it is applied."""
    began = time.perf_counter()
    if not agent.skip(task, reason="a benchmark"):
        raise RuntimeError(f"the skip of {task.id.printed} was refused")
    return (time.perf_counter() - began) * 1_000


@contextmanager
def _paused(world: World, case: Case) -> Iterator[Agent]:
    """Run a pipeline until each of its records is held."""
    output, checkpoint = world.folder / "output", world.folder / "held"
    for folder in (output, checkpoint, world.folder / "dead-letters"):
        shutil.rmtree(folder, ignore_errors=True)
    errors = {"errors.dlq.enable": True, "errors.dlq.path": str(world.folder / "dead-letters")}
    agent = Agent(world.spark, application="benchmarks", errors=errors)
    task = F.expr(f"cast(pmod(position, {case.tasks}) AS STRING)")
    with agent:
        (
            agent.pipeline("departures", world.source(case.flights), task=task, position="position")
            .deserialize("departure", F.from_csv("value", SCHEMA), on_error=LogAndPause())
            .write(file_sink(output), atomic=True)
            .start(str(checkpoint))
        )
        _wait_for(agent, held=case.rows)
        yield agent


def _wait_for(agent: Agent, *, held: int) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while sum(task.held for task in agent.tasks()) != held:
        if time.monotonic() > deadline or not agent.is_running:
            raise RuntimeError(f"{agent.exception or 'time is up'}: {held} held records expected")
        time.sleep(_TICK_SECONDS)
