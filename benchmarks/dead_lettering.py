"""Dead letters written by a pipeline, and the same records written by plain PySpark."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

from benchmarks.pipelines import PARSE, Flights, World, session
from benchmarks.table import Figure


def figures(folder: Path, *, rows: int, pairs: int) -> list[Figure]:
    """Return how long a micro-batch takes whose records all fail, against one that is written."""
    spark = session()
    try:
        world = World(spark=spark, folder=folder, rows=rows)
        _pair(world, rows)  # warms up, writes the input
        found = sorted(_pair(world, rows) for _ in range(pairs))
    finally:
        spark.stop()
    name = f"dead-lettering {rows:,} records of one micro-batch ÷ writing them plainly"
    print(f"{name}: {found[0]:.2f} to {found[-1]:.2f}", file=sys.stderr, flush=True)
    return [Figure(name=name, value=median(found), goal="≤ 2")]


def _pair(world: World, rows: int) -> float:
    clean, dirty = Flights(rows=rows, files=1), Flights(rows=rows, files=1, dirty_every=1)
    errors = {"errors.dlq.enable": True, "errors.dlq.path": str(world.folder / "dead-letters")}
    plain = world.took(world.plainly(PARSE, clean), clean)
    guarded = world.took(world.guarded(PARSE, dirty, atomic=True, errors=errors), dirty)
    return guarded.batch / plain.batch
