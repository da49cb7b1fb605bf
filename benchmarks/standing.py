"""What stays behind: memory after a million failures, and after fifty replaced threads."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester import Agent, LogAndFail
from arrester.agents.config import AgentConfig
from arrester.agents.run.thread import PipelineThread
from arrester.examples.flights import SCHEMA
from benchmarks.pipelines import CLUSTER, LOCAL, PARSE, Flights, World, session
from benchmarks.table import Figure

REPLACEMENTS = 50
_EARLY = 5
#: Spark's pools of threads (exchanges, query stages) keep an idle one for 60 s.
_UNTIL_POOLS_ARE_EMPTY = 65.0
_MEGABYTE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What the driver holds: of Python and of the JVM."""

    resident: float
    heap: float
    python_threads: int
    java_threads: int

    @classmethod
    def now(cls, spark: SparkSession) -> Use:
        """Return it after a collection on both sides; memory in MB."""
        gc.collect()
        jvm: Any = spark._jvm
        threads = jvm.java.lang.management.ManagementFactory.getThreadMXBean()
        return cls(
            resident=_resident(),
            heap=_heap(spark),
            python_threads=threading.active_count(),
            java_threads=threads.getThreadCount(),
        )


def figures(folder: Path, *, failures: int, only: str = "") -> list[Figure]:
    """Return what stays behind, measured in a Spark of its own; `only` names one of the two."""
    parts: dict[str, list[tuple[str, Callable[[World], list[Figure]]]]] = {
        "memory": [
            (CLUSTER, partial(_of_failures, goal="≤ 200")),
            (LOCAL, partial(_of_failures, where=", its own executor")),
        ],
        "replaced": [(LOCAL, _of_replacements)],
    }
    wanted = [each for name, some in parts.items() if only in ("", name) for each in some]
    return [
        figure for master, part in wanted for figure in _measured(master, part, folder, failures)
    ]


def _measured(
    master: str, part: Callable[[World], list[Figure]], folder: Path, rows: int
) -> list[Figure]:
    spark = session(master)
    try:
        return part(World(spark=spark, folder=folder, rows=rows))
    finally:
        spark.stop()


def _of_failures(world: World, *, where: str = "", goal: str = "") -> list[Figure]:
    """A micro-batch of which no record passes, beside one of which all do: what the driver holds.

    Where it is its own executor, that has the rows of the micro-batch in the same heap.
    """
    healthy = Flights(rows=world.rows, files=1)
    failing = Flights(rows=world.rows, files=1, dirty_every=1)
    # To write them takes more memory than to run them.
    for flights in (healthy, failing):
        world.input(flights)
    world.took(world.guarded(PARSE, healthy, atomic=True), healthy)
    before = Use.now(world.spark)
    least = _most_used(world, healthy)
    after = Use.now(world.spark)
    worst = _most_used(world, failing)
    at_last = Use.now(world.spark)
    above = f"{world.rows:,} failures above none{where}, MB"
    return [
        Figure(
            name=f"Python's memory at its most, {above}",
            value=(worst.resident - after.resident) - (least.resident - before.resident),
            goal=goal,
        ),
        Figure(
            name=f"JVM's heap at its most, after collections, {above}",
            value=worst.heap - least.heap,
            goal=goal,
        ),
        Figure(
            name=f"JVM's heap after it, above that after a healthy run{where}, MB",
            value=at_last.heap - after.heap,
            goal=goal,
        ),
    ]


def _places(world: World) -> tuple[Path, str]:
    name = str(time.time_ns())
    return world.folder / f"output-{name}", str(world.folder / "checkpoint" / name)


@dataclass(slots=True)
class _Most:
    """The most memory in MB that was in use while something was at work."""

    resident: float
    heap: float


def _most_used(world: World, flights: Flights) -> _Most:
    """Run the pipeline; of the heap what a collection leaves is looked at again and again."""
    done, most = threading.Event(), _Most(_resident(), 0.0)

    def look_at_python() -> None:
        while not done.wait(0.02):
            most.resident = max(most.resident, _resident())

    def look_at_heap() -> None:
        while not done.wait(0.2):
            most.heap = max(most.heap, _heap(world.spark))

    watchers = [threading.Thread(target=look) for look in (look_at_python, look_at_heap)]
    for watcher in watchers:
        watcher.start()
    try:
        world.guarded(PARSE, flights, atomic=True)(*_places(world), lambda: None)
    finally:
        done.set()
        for watcher in watchers:
            watcher.join()
    return most


def _heap(spark: SparkSession) -> float:
    """Return what the JVM's heap has after a collection, in MB."""
    jvm: Any = spark._jvm
    memory = jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
    memory.gc()
    return float(memory.getHeapMemoryUsage().getUsed()) / _MEGABYTE


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / _MEGABYTE


def _of_replacements(world: World) -> list[Figure]:
    """Threads that die one after the other at one checkpoint, as REPLACE_THREAD has them."""
    flights = Flights(rows=1_000, files=1, dirty_at=500)
    agent = Agent(world.spark, application="benchmarks")
    begun = agent.pipeline("departures", world.source(flights), task="origin", position="position")
    pipeline = begun.deserialize(
        "departure", F.from_csv("value", SCHEMA), on_error=LogAndFail()
    ).write(lambda df, number: df.write.format("noop").mode("overwrite").save())
    checkpoint = str(world.folder / "checkpoint" / "replaced")
    uses: list[Use] = []
    for number in range(1, REPLACEMENTS + 1):
        _one_dies(pipeline, checkpoint)
        if number in (_EARLY, REPLACEMENTS):
            time.sleep(_UNTIL_POOLS_ARE_EMPTY)
            uses.append(Use.now(world.spark))
    first, last = uses
    between = f"from the {_EARLY}th to the {REPLACEMENTS}th replaced thread"
    return [
        Figure(name=f"threads of Python, {between}", value=_more(first, last, "python_threads")),
        Figure(name=f"threads of the JVM, {between}", value=_more(first, last, "java_threads")),
        Figure(name=f"heap of the JVM, {between}, MB", value=_more(first, last, "heap")),
        Figure(name=f"memory of Python, {between}, MB", value=_more(first, last, "resident")),
    ]


def _more(first: Use, last: Use, name: str) -> float:
    return float(getattr(last, name) - getattr(first, name))


class _Nowhere:
    """Takes events and forgets them."""

    def put(self, batch_id: object, events: object) -> None:
        """Forget."""

    def is_confirmed(self, batch_id: object) -> bool:
        """All of it is."""
        return True

    def keeps(self, batch_id: object) -> bool:
        """Nothing is."""
        return False


def _one_dies(pipeline: Any, checkpoint: str) -> None:
    dead = threading.Event()
    thread = PipelineThread(
        pipeline,
        application="benchmarks",
        instance=uuid4(),
        outbox=_Nowhere(),
        config=AgentConfig.read("benchmarks", {}),
        on_death=lambda death: dead.set(),
    )
    thread.start(checkpoint)
    if not dead.wait(120):
        raise RuntimeError("a thread that was to die lives")
