"""Memory of the driver after a million failures, and memory and threads after fifty replaced
threads."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
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
_FIRST_MEASURED = 5
#: Spark's pools of threads (exchanges, query stages) keep an idle one for 60 s.
_POOL_TIMEOUT_SECONDS = 65.0
_MEGABYTE = 2**20


@dataclass(slots=True, kw_only=True)
class Usage:
    """Memory in MB and threads of the driver, of Python and of the JVM."""

    resident: float
    heap: float
    python_threads: int
    java_threads: int

    @classmethod
    def now(cls, spark: SparkSession) -> Usage:
        """Return the usage after a garbage collection on both sides."""
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
    """Return the usage, measured in a Spark session of its own; `only` names one of the two."""
    parts: dict[str, tuple[str, Callable[[World], list[Figure]]]] = {
        "memory": (CLUSTER, _after_failures),
        "replaced": (LOCAL, _after_replacements),
    }
    found: list[Figure] = []
    for name, (master, part) in parts.items():
        if only in ("", name):
            spark = session(master)
            try:
                found += part(World(spark=spark, folder=folder, rows=failures))
            finally:
                spark.stop()
    return found


def _after_failures(world: World) -> list[Figure]:
    """A micro-batch in which each record fails, compared to one without a failure."""
    healthy = Flights(rows=world.rows, files=1)
    failing = Flights(rows=world.rows, files=1, dirty_every=1)
    # To write the input takes more memory than to run it.
    for flights in (healthy, failing):
        world.input(flights)
    world.took(world.guarded(PARSE, healthy, atomic=True), healthy)
    before = Usage.now(world.spark)
    without = _peak(world, healthy)
    between = Usage.now(world.spark)
    with_failures = _peak(world, failing)
    name = f"{world.rows:,} failures above none, MB"
    python = (with_failures.resident - between.resident) - (without.resident - before.resident)
    return [
        Figure(name=f"Python's peak memory, {name}", value=python, goal="≤ 200"),
        Figure(
            name=f"JVM's peak heap after collections, {name}",
            value=with_failures.heap - without.heap,
            goal="≤ 200",
        ),
    ]


@dataclass(slots=True)
class _Peak:
    """The largest memory in MB during a run."""

    resident: float
    heap: float


def _peak(world: World, flights: Flights) -> _Peak:
    """Run the pipeline; measure its memory again and again."""
    done, peak = threading.Event(), _Peak(_resident(), 0.0)

    def watch_python() -> None:
        while not done.wait(0.02):
            peak.resident = max(peak.resident, _resident())

    def watch_heap() -> None:
        while not done.wait(0.2):
            peak.heap = max(peak.heap, _heap(world.spark))

    watchers = [threading.Thread(target=watch) for watch in (watch_python, watch_heap)]
    for watcher in watchers:
        watcher.start()
    name = str(time.time_ns())
    checkpoint = str(world.folder / "checkpoint" / name)
    try:
        run = world.guarded(PARSE, flights, atomic=True)
        run(world.folder / f"output-{name}", checkpoint, lambda: None)
    finally:
        done.set()
        for watcher in watchers:
            watcher.join()
    return peak


def _heap(spark: SparkSession) -> float:
    """Return the used heap of the JVM after a collection, in MB."""
    jvm: Any = spark._jvm
    memory = jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
    memory.gc()
    return float(memory.getHeapMemoryUsage().getUsed()) / _MEGABYTE


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / _MEGABYTE


def _after_replacements(world: World) -> list[Figure]:
    """Threads that die one after the other at one checkpoint, as with REPLACE_THREAD."""
    flights = Flights(rows=1_000, files=1, dirty_at=500)
    agent = Agent(world.spark, application="benchmarks")
    builder = agent.pipeline(
        "departures", world.source(flights), task="origin", position="position"
    )
    pipeline = builder.deserialize(
        "departure", F.from_csv("value", SCHEMA), on_error=LogAndFail()
    ).write(lambda df, number: df.write.format("noop").mode("overwrite").save())
    checkpoint = str(world.folder / "checkpoint" / "replaced")
    measured: list[Usage] = []
    for number in range(1, REPLACEMENTS + 1):
        _run_until_dead(pipeline, checkpoint)
        if number in (_FIRST_MEASURED, REPLACEMENTS):
            time.sleep(_POOL_TIMEOUT_SECONDS)
            measured.append(Usage.now(world.spark))
    first, last = measured
    return [
        Figure(
            name=f"{what}, from the {_FIRST_MEASURED}th to the {REPLACEMENTS}th replaced thread",
            value=float(getattr(last, name) - getattr(first, name)),
            goal="flat",
        )
        for what, name in (
            ("Python threads", "python_threads"),
            ("JVM threads", "java_threads"),
            ("JVM heap, MB", "heap"),
            ("Python memory, MB", "resident"),
        )
    ]


class _NoOutbox:
    """Accept events and drop them."""

    flow = None

    def put(self, batch_id: object, events: object) -> None:
        """Drop the events."""

    def is_confirmed(self, batch_id: object) -> bool:
        """Return True: nothing is waiting."""
        return True

    def is_stored(self, batch_id: object) -> bool:
        """Return False: nothing is stored."""
        return False


def _run_until_dead(pipeline: Any, checkpoint: str) -> None:
    dead = threading.Event()
    thread = PipelineThread(
        pipeline,
        application="benchmarks",
        instance=uuid4(),
        outbox=_NoOutbox(),
        config=AgentConfig.read("benchmarks", {}),
        on_end=lambda end: dead.set(),
    )
    thread.start(checkpoint)
    if not dead.wait(120):
        raise RuntimeError("the thread did not die within 120 s")
