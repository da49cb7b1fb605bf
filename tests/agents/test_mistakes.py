"""Each mistake of an author is answered where it is made, with its name and what is allowed."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.definition.builder import define
from arrester.agents.handlers import LogAndPause
from arrester.controlplane.domain.errors import ArresterError
from tests.agents.pipeline_bench import sink_to

pytestmark = pytest.mark.spark

Row = dict[str, Any]


async def later(*args: object) -> None:
    """Do nothing, later."""


async def many(row: Row) -> AsyncIterator[Row]:
    yield row


class AsyncCallable:
    """An object whose call is a coroutine function."""

    async def __call__(self, *args: object) -> None:
        """Do nothing, later."""

    async def method(self, *args: object) -> None:
        """Do nothing, later."""


class Handler:
    """A handler without a constant answer, with the given function."""

    def __init__(self, handle: Callable[..., object]) -> None:
        self.handle = handle


class Scene:
    """A static source of four columns, and what is made of it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        schema = "task STRING, position BIGINT, value STRING, Amount INT"
        self.source = spark.createDataFrame([], schema)

    def define(self, **more: Any) -> Any:  # the table gives what the types forbid
        given: dict[str, Any] = {"task": "task", "position": "position", **more}
        return define("lines", self.source, **given)


def write(df: DataFrame, number: int) -> None:
    """Write nothing."""


Mistake = Callable[[Scene], object]

ASYNC = "without async: it is called and not awaited"

DEFINITIONS: Mapping[str, tuple[Mistake, str]] = {
    "async send": (
        lambda it: it.define().produce(later),
        f"produce: send: <function later at …{ASYNC}",
    ),
    "async method as send": (lambda it: it.define().produce(AsyncCallable().method), ASYNC),
    "async object as send": (lambda it: it.define().produce(AsyncCallable()), ASYNC),
    "partial of an async send": (
        lambda it: it.define().produce(functools.partial(functools.partial(later), 1)),
        ASYNC,
    ),
    "async connect": (lambda it: it.define().produce(connect=later), f"produce: connect: …{ASYNC}"),
    "async step": (
        lambda it: it.define().process("check", later),
        f"process 'check': fn: …{ASYNC}",
    ),
    "async generator as step": (lambda it: it.define().process("check", many), ASYNC),
    "async transform": (
        lambda it: it.define().transform("parse", later),
        f"transform 'parse': fn: …{ASYNC}",
    ),
    "async write": (lambda it: it.define().write(later), f"write: fn: …{ASYNC}"),
    "async probe": (lambda it: it.define().write(write, probe=later), f"write: probe: …{ASYNC}"),
    "async handler": (
        lambda it: it.define().process("check", dict, on_error=Handler(later)),
        f"step 'check': on_error.handle: …{ASYNC}",
    ),
    "number_column is a column": (
        lambda it: it.define().write_files("/out", number_column="value"),
        "write_files: number_column: 'value' is not allowed; …a name that is no column of the rows",
    ),
    "number_column is a column in another case": (
        lambda it: it.define().write_files("/out", number_column="AMOUNT"),
        "number_column: 'AMOUNT' is not allowed",
    ),
    "number_column is a column of a step": (
        lambda it: (
            it.define().columns("add", batch=F.lit(1)).write_files("/out", number_column="batch")
        ),
        "number_column: 'batch' is not allowed",
    ),
    "partition_by of no column": (
        lambda it: it.define().write_files("/out", partition_by=["tusk"]),
        "write_files: partition_by: 'tusk' is not allowed…a column of the rows (nearest: task)",
    ),
    "partition_by of nothing alike": (
        lambda it: it.define().write_files("/out", partition_by=["x"]),
        "allowed: a column of the rows: task, position, value, Amount",
    ),
    "partition_by of all columns": (
        lambda it: it.define().write_files(
            "/out", partition_by=["task", "position", "value", "amount"]
        ),
        "some of the columns: Spark writes no files without another column",
    ),
}


@pytest.fixture(scope="module")
def scene(spark: SparkSession) -> Scene:
    return Scene(spark)


def assert_answers(mistake: Mistake, scene: Scene, expected: str) -> None:
    """Assert that an error of ours has these parts, which … separates, in one short line."""
    with pytest.raises(ArresterError) as caught:
        mistake(scene)
    text, start = str(caught.value), 0
    for part in expected.split("…"):
        assert part in text[start:], text
        start = text.index(part, start) + len(part)
    assert len(text) < 900, text
    assert "\n" not in text, text


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_mistake_in_a_definition_is_answered_there(scene: Scene, name: str) -> None:
    assert_answers(DEFINITIONS[name][0], scene, DEFINITIONS[name][1])


def test_usual_callables_are_accepted(scene: Scene, tmp_path: Path) -> None:
    pipeline = (
        scene.define().process("copy", dict).process("same", functools.partial(dict, task="a"))
    )
    pipeline.write(sink_to(tmp_path))
    pipeline.produce(print)
    pipeline.write_files(str(tmp_path), partition_by="TASK", number_column="batch")
    scene.define().process("check", lambda row, factor=2: row, on_error=LogAndPause())
