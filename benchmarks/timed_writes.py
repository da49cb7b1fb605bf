"""Runs of a stream of flights into a sink, timed between the ends of its writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from itertools import pairwise
from statistics import median
from typing import Any

from pyspark.sql import DataFrame

from arrester import Agent
from arrester.agents.definition.builder import PipelineBuilder
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Sink
from benchmarks.pipelines import Flights, World

#: Called at the end of each write.
AtEnd = Callable[[], None]


def seconds_between_writes(run: Callable[[AtEnd], None]) -> float:
    """Return the median time between the ends of two writes."""
    ends: list[float] = []
    run(lambda: ends.append(time.perf_counter()))
    return median(after - before for before, after in pairwise(ends))


def run_plain(
    world: World, flights: Flights, write: Callable[[DataFrame], None], at_end: AtEnd
) -> None:
    """Write all micro-batches without an agent."""

    run_batches(world, flights, lambda df, _: write(df), at_end)


def run_batches(
    world: World, flights: Flights, write: Callable[[DataFrame, int], None], at_end: AtEnd
) -> None:
    """Write all micro-batches without an agent, by a function that gets their number, too."""

    def write_batch(df: DataFrame, number: int) -> None:
        write(df, number)
        at_end()

    query = world.source(flights).writeStream.foreachBatch(write_batch)
    query = query.option("checkpointLocation", _new_checkpoint(world))
    query.trigger(availableNow=True).start().awaitTermination()


def run_guarded(
    world: World,
    flights: Flights,
    finish: Callable[[PipelineBuilder], Pipeline],
    *,
    errors: Mapping[str, object] | None = None,
) -> None:
    """Run a pipeline, which `finish` gives its sink, to the end of the flights."""
    agent = Agent(world.spark, application="benchmarks", errors=errors)
    source = world.source(flights)
    pipeline = finish(agent.pipeline("flights", source, task="origin", position="position"))
    with agent:
        pipeline.start(_new_checkpoint(world), trigger={"availableNow": True})
        agent.await_termination()


def timed_table(pipeline: Pipeline, kind: type[Any], at_end: AtEnd) -> Pipeline:
    """Return the pipeline with its table as an instance of `kind`, which has an `at_end`, too."""
    sink = pipeline.sink
    assert isinstance(sink, Sink)
    table: Any = sink.function
    parts = {each.name: getattr(table, each.name) for each in fields(table)}
    return replace(pipeline, sink=replace(sink, function=kind(**parts, at_end=at_end)))


def _new_checkpoint(world: World) -> str:
    return str(world.folder / "checkpoint" / str(time.time_ns()))
