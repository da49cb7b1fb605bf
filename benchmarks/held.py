"""Held records: how soon a skip is applied, how fast they drain, what a pause costs; redrives."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

from pyspark.sql import functions as F

from arrester import Agent, Handler, LogAndContinue, LogAndPause
from arrester.domain.state.states import TaskState
from arrester.examples.flights import SCHEMA
from benchmarks.pipelines import (
    PARSE,
    Flights,
    World,
    called_after_writes,
    file_sink,
    session,
)
from benchmarks.table import Figure

_TICK_SECONDS = 0.01
_TIMEOUT_SECONDS = 1_800.0
#: The micro-batches in which the held records arrived.
_FILES = 10
#: The micro-batches of a run with a stopped task, and the last of them, which are measured: for
#: eight of them after a failed record, each takes the slow path.
_BATCHES, _MEASURED = 14, 5


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
        held = [each for case in [*cases, many] for each in _figures(world, case)]
        return [*held, *_redriven(world, rows // 10), *_while_paused(world, rows // 5)]
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


def _redriven(world: World, rows: int) -> Iterator[Figure]:
    """Yield the figures of dead letters of 100 tasks that are mended and redriven."""
    clean = Flights(rows=rows, files=_FILES)
    plain = median(world.took(world.plainly(PARSE, clean), clean).batch for _ in range(3))
    flights = Flights(rows=rows, files=_FILES, dirty_every=1)
    with _started(world, flights, tasks=100, on_error=LogAndContinue()) as agent:
        complete = partial(world.folder.glob, "dead-letters/day=*/*/_SUCCESS")
        _wait(agent, lambda: len([*complete()]) == _FILES, what=f"{rows} dead letters")
        folders = [mark.parent for mark in complete()]
        dead_letters = world.spark.read.parquet(*map(str, folders))
        began = time.perf_counter()
        mended = dead_letters.withColumn("row", F.regexp_replace("row", "NA", "0"))
        found = agent.redrive("departures", mended, reason="a benchmark")
        if found.redriven != rows:
            raise RuntimeError(f"{found} of {rows} dead letters")
        taken = time.perf_counter() - began
        _wait_for(agent, held=0)
        seconds = time.perf_counter() - began
    name = f"redrive of {rows:,} dead letters"
    for each in (
        Figure(name=f"{name}, s until it is durable", value=taken),
        Figure(name=f"{name}, rate ÷ plain", value=plain * _FILES / seconds, goal="≥ 0.5"),
    ):
        print(f"{each.name}: {each.value:,.3g}", file=sys.stderr, flush=True)
        yield each


def _while_paused(world: World, rows: int) -> Iterator[Figure]:
    """Yield how much a stopped task slows micro-batches of `rows` records of other tasks."""
    clean = Flights(rows=rows * _BATCHES, files=_BATCHES)
    dirty = Flights(rows=rows * _BATCHES, files=_BATCHES, dirty_at=0)
    for kind in ("files", "atomic sink", "other sink"):
        pairs = [[_batch_seconds(world, each, kind) for each in (dirty, clean)] for _ in range(3)]
        name = f"micro-batches of {rows:,} rows with one PAUSED task ÷ without, {kind}"
        figure = Figure(name=name, value=median(one / two for one, two in pairs), goal="≤ 1.1")
        print(f"{figure.name}: {figure.value:,.3g}", file=sys.stderr, flush=True)
        yield figure


def _batch_seconds(world: World, flights: Flights, kind: str) -> float:
    """Return the median time of the last micro-batches, long after a failed record.

    `kind`: `files` by `.write_files`, or a sink of the author.
    """
    output, checkpoint = world.folder / "output", world.folder / "held"
    for folder in (output, checkpoint):
        shutil.rmtree(folder, ignore_errors=True)
    ends: list[float] = []
    agent = Agent(world.spark, application="benchmarks")
    source = world.source(flights)

    def at() -> None:
        ends.append(time.perf_counter())

    builder = agent.pipeline("departures", source, task="flight", position="position")
    builder = builder.deserialize("departure", F.from_csv("value", SCHEMA), on_error=LogAndPause())
    if kind == "files":
        pipeline = builder.write_files(output, number_column="number")
    else:
        pipeline = builder.write(file_sink(output, at=at), atomic=kind == "atomic sink")
    with agent, called_after_writes(at) if kind == "files" else nullcontext():
        pipeline.start(str(checkpoint), trigger={"availableNow": True})
        agent.await_termination()
    return median(after - before for before, after in pairwise(ends[-_MEASURED - 1 :]))


def _skip(agent: Agent, task: TaskState) -> float:
    """Skip the failed record of a task; return the milliseconds until it is applied."""
    began = time.perf_counter()
    if not agent.skip(task, reason="a benchmark"):
        raise RuntimeError(f"the skip of {task.id.printed} was refused")
    return (time.perf_counter() - began) * 1_000


@contextmanager
def _paused(world: World, case: Case) -> Iterator[Agent]:
    """Run a pipeline until each of its records is held."""
    with _started(world, case.flights, tasks=case.tasks, on_error=LogAndPause()) as agent:
        _wait_for(agent, held=case.rows)
        yield agent


@contextmanager
def _started(world: World, flights: Flights, *, tasks: int, on_error: Handler) -> Iterator[Agent]:
    output, checkpoint = world.folder / "output", world.folder / "held"
    for folder in (output, checkpoint, world.folder / "dead-letters"):
        shutil.rmtree(folder, ignore_errors=True)
    errors = {"errors.dlq.enable": True, "errors.dlq.path": str(world.folder / "dead-letters")}
    agent = Agent(world.spark, application="benchmarks", errors=errors)
    task = F.expr(f"cast(pmod(position, {tasks}) AS STRING)")
    with agent:
        (
            agent.pipeline("departures", world.source(flights), task=task, position="position")
            .deserialize("departure", F.from_csv("value", SCHEMA), on_error=on_error)
            .write(file_sink(output), atomic=True)
            .start(str(checkpoint))
        )
        yield agent


def _wait_for(agent: Agent, *, held: int) -> None:
    _wait(
        agent,
        lambda: sum(task.held for task in agent.tasks()) == held,
        what=f"{held} held records expected",
    )


def _wait(agent: Agent, condition: Callable[[], bool], *, what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline or not agent.is_running:
            raise RuntimeError(f"{agent.exception or 'time is up'}: {what}")
        time.sleep(_TICK_SECONDS)
