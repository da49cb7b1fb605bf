"""What guarding costs: each row is one function, and stands in the table at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.pipelines import (
    CASTS,
    NATIVE_TRANSFORM,
    PARSE,
    PYTHON,
    PYTHON_TRANSFORM,
    Flights,
    Pair,
    Stage,
    World,
)
from benchmarks.table import Figure

#: Pairs of what has no goal.
_FEW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One row: measured in pairs, whose ratio is guarded ÷ plain, of a micro-batch."""

    name: str
    goal: str
    measure: Callable[[World], Pair]
    #: So many pairs at most.
    most: int = 1_000


def table(world: World, *, pairs: int, only: str = "") -> str:
    """Measure each row so many times, and return medians of the ratios."""
    lines = [
        "| pipeline | plain, ms | guarded ÷ plain | least to most | in CPU | goal |",
        "|---|---:|---:|---|---:|---|",
    ]
    for row in ROWS:
        if only not in row.name:
            continue
        began = time.monotonic()
        row.measure(world)  # warms up, writes the input
        found = [row.measure(world) for _ in range(min(pairs, row.most))]
        line = f"| {row.name} | {_figures(found)} | {row.goal} |"
        print(f"{line} {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        lines.append(line)
    return "\n".join(lines)


def _figures(found: list[Pair]) -> str:
    each = sorted(pair.guarded.batch / pair.plain.batch for pair in found)
    cpu = median(pair.guarded.cpu / pair.plain.cpu for pair in found)
    plain = median(pair.plain.batch for pair in found) * 1_000
    return f"{plain:.0f} | {median(each):.2f} | {each[0]:.2f} to {each[-1]:.2f} | {cpu:.2f}"


def once(world: World, *, pairs: int) -> list[Figure]:
    """Return what a run costs that has next to nothing to do, from its start to its end."""
    flights = Flights(rows=1_000, files=1)
    found = [world.pair(PARSE, flights, atomic=True) for _ in range(pairs + 2)][2:]
    plain = median(pair.plain.whole for pair in found) * 1_000
    more = median(pair.guarded.whole - pair.plain.whole for pair in found) * 1_000
    return [
        Figure(name="a run of two small micro-batches written plainly, ms", value=plain),
        Figure(name="more than that when it is guarded, ms", value=more),
    ]


def healthy(stage: Stage, *, atomic: bool) -> Callable[[World], Pair]:
    """No record fails, in four micro-batches."""
    return lambda world: world.pair(stage, Flights(rows=world.rows), atomic=atomic)


def one_fails(stage: Stage, *, atomic: bool) -> Callable[[World], Pair]:
    """One micro-batch, in whose middle a record fails."""

    def measure(world: World) -> Pair:
        clean = Flights(rows=world.rows, files=1)
        dirty = Flights(rows=world.rows, files=1, dirty_at=world.rows // 2)
        return world.pair(stage, dirty, atomic=atomic, clean=clean)

    return measure


def one_percent_fails(stage: Stage, *, atomic: bool) -> Callable[[World], Pair]:
    """A hundredth of each micro-batch is left out."""

    def measure(world: World) -> Pair:
        dirty = Flights(rows=world.rows, dirty_every=100)
        return world.pair(stage, dirty, atomic=atomic, clean=Flights(rows=world.rows))

    return measure


def small_batches(stage: Stage, *, atomic: bool) -> Callable[[World], Pair]:
    """100 micro-batches of 1,000 rows."""
    return lambda world: world.pair(stage, Flights(rows=100_000, files=100), atomic=atomic)


ROWS = (
    Cost(name="native parse, atomic sink", goal="≤ 1.06", measure=healthy(PARSE, atomic=True)),
    Cost(name="native casts, atomic sink", goal="≤ 1.06", measure=healthy(CASTS, atomic=True)),
    Cost(name="native parse, other sink", goal="≤ 1.25", measure=healthy(PARSE, atomic=False)),
    Cost(name="native casts, other sink", goal="≤ 1.25", measure=healthy(CASTS, atomic=False)),
    Cost(name="Python step, atomic sink", goal="≤ 1.06", measure=healthy(PYTHON, atomic=True)),
    Cost(
        name="Python step, other sink",
        goal="",
        measure=healthy(PYTHON, atomic=False),
        most=_FEW,
    ),
    Cost(
        name="Python transform, atomic sink",
        goal="",
        measure=healthy(PYTHON_TRANSFORM, atomic=True),
        most=_FEW,
    ),
    Cost(
        name="one record of a micro-batch fails: parse, atomic sink",
        goal="≤ 2.0",
        measure=one_fails(PARSE, atomic=True),
    ),
    Cost(
        name="one record of a micro-batch fails: native transform, atomic sink",
        goal="≤ 2.5",
        measure=one_fails(NATIVE_TRANSFORM, atomic=True),
    ),
    Cost(
        name="one record of a micro-batch fails: Python transform, atomic sink",
        goal="≤ 4",
        measure=one_fails(PYTHON_TRANSFORM, atomic=True),
    ),
    Cost(
        name="1% of each micro-batch fails, CONTINUE: parse, atomic sink",
        goal="≤ 1.5",
        measure=one_percent_fails(PARSE, atomic=True),
    ),
    Cost(
        name="micro-batches of 1,000 rows: parse, atomic sink",
        goal="≤ 1.10",
        measure=small_batches(PARSE, atomic=True),
    ),
    Cost(
        name="micro-batches of 1,000 rows: parse, other sink",
        goal="",
        measure=small_batches(PARSE, atomic=False),
        most=_FEW,
    ),
)


def measured(folder: Path, *, rows: int, pairs: int, only: str = "") -> tuple[str, list[Figure]]:
    """Return the table, and what a run costs once, measured in a Spark of its own."""
    from benchmarks.pipelines import session

    if not any(only in row.name for row in ROWS):
        return "", []
    spark = session()
    try:
        world = World(spark=spark, folder=folder, rows=rows)
        return table(world, pairs=pairs, only=only), [] if only else once(world, pairs=pairs)
    finally:
        spark.stop()
