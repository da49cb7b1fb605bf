"""The pipeline of the frozen samples."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arrester.agents.definition.pipeline import Pipeline
    from tests.agents.pipeline_bench import Bench

APPLICATION = "flights"
#: Task `a` pauses at position 1 and holds three records; position 0 of `b` is a dead letter.
ROWS = [
    ("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"), ("a", 3, "x"), ("b", 0, "skip"), ("b", 1, "x"),
]  # fmt: skip
#: Its traces name this file, not the place of the repository.
STEPS = """
def skip(row):
    if row["value"] == "skip":
        raise ValueError("skip")
    return row


def check(row):
    if row["value"] == "bad":
        raise ValueError("bad")
    return row
"""


def pipeline_over(bench: Bench) -> Pipeline:
    """Return the sample's pipeline, over the static rows of `bench`."""
    from arrester.agents.definition.builder import define
    from arrester.agents.handlers import LogAndContinue, LogAndPause
    from tests.agents.pipeline_bench import SCHEMA, sink_to

    steps: dict[str, Any] = {}
    exec(compile(STEPS, "pipeline.py", "exec"), steps)
    linecache.cache["pipeline.py"] = (len(STEPS), None, STEPS.splitlines(True), "pipeline.py")
    source = bench.spark.read.schema(SCHEMA).json(str(bench.folder / "in"))
    return (
        define("lines", source, task="task", position="position", value="value")
        .process("skip", steps["skip"], on_error=LogAndContinue())
        .process("check", steps["check"], on_error=LogAndPause())
        .write(sink_to(bench.folder / "out"))
    )
