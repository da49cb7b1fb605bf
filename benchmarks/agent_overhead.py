"""Overhead of guarding: guarded ÷ plain time of a micro-batch, one row per measurement."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import by_hand
from benchmarks.pipelines import (
    CASTS,
    NATIVE_TRANSFORM,
    PARSE,
    PYTHON,
    PYTHON_ONLY,
    PYTHON_TRANSFORM,
    STRICT_JSON,
    Flights,
    Pair,
    Stage,
    World,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """One row: measured in pairs of runs."""

    name: str
    goal: str
    measure: Callable[[World], Pair]


def healthy(stage: Stage, *, atomic: bool, files: bool = False) -> Callable[[World], Pair]:
    """No record fails, in four micro-batches."""
    return lambda world: world.pair(stage, Flights(rows=world.rows), atomic=atomic, files=files)


def one_fails(stage: Stage, *, files: bool = False) -> Callable[[World], Pair]:
    """One micro-batch, in whose middle a record fails."""

    def measure(world: World) -> Pair:
        clean = Flights(rows=world.rows, files=1)
        dirty = Flights(rows=world.rows, files=1, dirty_at=world.rows // 2)
        return world.pair(stage, dirty, atomic=True, files=files, clean=clean)

    return measure


def one_percent_fails(
    *, files: bool = False, dead_letters: bool = False
) -> Callable[[World], Pair]:
    """A hundredth of each micro-batch is skipped."""

    def measure(world: World) -> Pair:
        dirty, clean = Flights(rows=world.rows, dirty_every=100), Flights(rows=world.rows)
        errors = by_hand.dead_letters_in(world.folder / "dead-letters") if dead_letters else None
        return world.pair(PARSE, dirty, atomic=True, files=files, clean=clean, errors=errors)

    return measure


def written_by_hand(*, dirty_every: int) -> Callable[[World], Pair]:
    """Plain is the same work written by hand. Both write dead letters."""
    return lambda world: by_hand.pair(world, Flights(rows=world.rows, dirty_every=dirty_every))


def small_batches(*, atomic: bool, files: bool = False) -> Callable[[World], Pair]:
    """100 micro-batches of 1,000 rows."""
    flights = Flights(rows=100_000, files=100)
    return lambda world: world.pair(PARSE, flights, atomic=atomic, files=files)


def small_batches_with_failures(world: World) -> Pair:
    """100 micro-batches of 1,000 rows, of which one becomes a dead letter."""
    dirty, clean = (Flights(rows=100_000, files=100, dirty_every=every) for every in (1_000, 0))
    errors = by_hand.dead_letters_in(world.folder / "dead-letters")
    return world.pair(PARSE, dirty, atomic=True, files=True, clean=clean, errors=errors)


ROWS = tuple(
    Overhead(name=name, goal=goal, measure=measure)
    for name, goal, measure in (
        ("native parse, atomic sink", "≤ 1.06", healthy(PARSE, atomic=True)),
        ("native casts, atomic sink", "≤ 1.06", healthy(CASTS, atomic=True)),
        ("strict JSON, atomic sink", "≤ 1.10", healthy(STRICT_JSON, atomic=True)),
        ("Python step, atomic sink", "≤ 1.06", healthy(PYTHON, atomic=True)),
        ("native parse, other sink", "≤ 1.25", healthy(PARSE, atomic=False)),
        ("native casts, other sink", "≤ 1.25", healthy(CASTS, atomic=False)),
        (
            "micro-batches of 1,000 rows: parse, atomic sink",
            "≤ 1.10",
            small_batches(atomic=True),
        ),
        (
            "micro-batches of 1,000 rows: parse, other sink",
            "≤ 1.25",
            small_batches(atomic=False),
        ),
        ("one failed record: parse, atomic sink", "≤ 2.0", one_fails(PARSE)),
        ("one failed record: native transform, atomic sink", "≤ 2.5", one_fails(NATIVE_TRANSFORM)),
        ("one failed record: Python transform, atomic sink", "≤ 3", one_fails(PYTHON_TRANSFORM)),
        ("1% of records fail, CONTINUE: parse, atomic sink", "≤ 1.5", one_percent_fails()),
        ("native parse, files", "≤ 1.04", healthy(PARSE, atomic=True, files=True)),
        ("native casts, files", "≤ 1.04", healthy(CASTS, atomic=True, files=True)),
        (
            "micro-batches of 1,000 rows: parse, files",
            "≤ 1.10",
            small_batches(atomic=True, files=True),
        ),
        ("one failed record: parse, files", "≤ 1.15", one_fails(PARSE, files=True)),
        ("Python step, files", "≤ 1.04", healthy(PYTHON, atomic=True, files=True)),
        ("one failed record: Python step, files", "≤ 1.2", one_fails(PYTHON_ONLY, files=True)),
        ("1% of records fail, CONTINUE: parse, files", "≤ 1.2", one_percent_fails(files=True)),
        (
            "1% of records become dead letters: parse, files",
            "≤ 1.2",
            one_percent_fails(files=True, dead_letters=True),
        ),
        (
            "micro-batches of 1,000 rows, one dead letter each: parse, files",
            "≤ 1.5",
            small_batches_with_failures,
        ),
        ("parse, files, ÷ written by hand", "", written_by_hand(dirty_every=0)),
        ("1% of records fail, files, ÷ written by hand", "≤ 0.9", written_by_hand(dirty_every=100)),
    )
)


def table(folder: Path, *, rows: int, pairs: int, only: str = "") -> str:
    """Measure each row in a Spark session of its own, and return medians of the ratios."""
    from benchmarks.pipelines import session

    chosen = [row for row in ROWS if only in row.name]
    if not chosen:
        return ""
    lines = [
        "| pipeline | plain, ms | guarded ÷ plain | least to most | in CPU | goal |",
        "|---|---:|---:|---|---:|---|",
    ]
    spark = session()
    try:
        world = World(spark=spark, folder=folder, rows=rows)
        for row in chosen:
            began = time.monotonic()
            row.measure(world)  # warms up, writes the input
            found = [row.measure(world) for _ in range(pairs)]
            lines.append(f"| {row.name} | {_figures(found)} | {row.goal} |")
            seconds = time.monotonic() - began
            print(f"{lines[-1]} {seconds:.0f} s", file=sys.stderr, flush=True)
    finally:
        spark.stop()
    return "\n".join(lines)


def _figures(found: list[Pair]) -> str:
    each = sorted(pair.guarded.batch / pair.plain.batch for pair in found)
    cpu = median(pair.guarded.cpu / pair.plain.cpu for pair in found)
    plain = median(pair.plain.batch for pair in found) * 1_000
    return f"{plain:.0f} | {median(each):.2f} | {each[0]:.2f} to {each[-1]:.2f} | {cpu:.2f}"
