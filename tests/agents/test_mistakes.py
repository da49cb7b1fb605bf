"""Each mistake of an author is answered where it is made, with its name and what is allowed."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester import Agent
from arrester.agents.definition.builder import define
from arrester.agents.handlers import RETRY, LogAndPause
from arrester.domain.errors import ArresterError
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
        self.agent: Any = Agent(spark, application="mistakes")

    def define(self, **more: Any) -> Any:  # the table gives what the types forbid
        given: dict[str, Any] = {"task": "task", "position": "position", **more}
        return define("lines", self.source, runner=self.agent, **given)

    def sink(self) -> Any:
        return self.define().write(write)

    def stream(self) -> Any:
        source = self.spark.readStream.format("rate").load()
        return define("rate", source, position="value", runner=self.agent).write(write)


def write(df: DataFrame, number: int) -> None:
    """Write nothing."""


def using(value: object) -> Callable[..., Any]:
    """Return a function whose closure has a value."""

    def fn(*args: object) -> object:
        return value

    return fn


class Locked:
    """An object of an author, with a lock."""

    def __init__(self) -> None:
        self.guard = threading.Lock()

    def __call__(self, row: Row) -> Row:
        return row

    def method(self, row: Row) -> Row:
        return row


Mistake = Callable[[Any], object]

#: The table gives what the types forbid.
begin: Any = define
made: Any = Agent
STOPPED = SimpleNamespace(_jvm=None, sparkContext=SimpleNamespace(_jsc=None))

ASYNC = "without async: it is called and not awaited"

MISTAKES: Mapping[str, tuple[Mistake, str]] = {
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
    # The source and its columns.
    "source is a path": (
        lambda it: begin("lines", "/data/in"),
        "source: '/data/in' is not…a DataFrame",
    ),
    "source is None": (lambda it: begin("lines", None), "source: None is not…a DataFrame"),
    "source is an RDD": (
        lambda it: begin("lines", it.spark.sparkContext.parallelize([1])),
        "source: …a DataFrame…this is of type",
    ),
    "source is a reader": (
        lambda it: begin("lines", it.spark.readStream),
        "this is of type DataStreamReader",
    ),
    "source is rows of Python": (lambda it: begin("lines", [{"a": 1}]), "this is of type list"),
    "name is None": (lambda it: begin(None, it.source), "pipeline: None is not allowed"),
    "name with a capital letter": (lambda it: begin("Lines", it.source), "pipeline: 'Lines'…a-z"),
    "no position": (
        lambda it: begin("lines", it.source),
        "position: None…a unique, sortable integer",
    ),
    "position is a number": (
        lambda it: it.define(position=5),
        "position: 5…a column of the source: its name or a Column; this is of type int",
    ),
    "position is a text column": (
        lambda it: it.define(position="value"),
        "position: 'value'…an integer column; this is string",
    ),
    "position misspelt": (
        lambda it: it.define(position="positon"),
        "position: 'positon'…a column of the source",
    ),
    "task is a list": (
        lambda it: it.define(task=["task"]),
        "task: ['task']…its name or a Column; this is of type list",
    ),
    "task is a function": (
        lambda it: it.define(task=later),
        "task: …its name or a Column; this is of type function",
    ),
    "task misspelt": (lambda it: it.define(task="tasks"), "task: 'tasks'…a column of the source"),
    "task is empty": (lambda it: it.define(task=""), "task: ''"),
    "key is a dict": (lambda it: it.define(key={"a": 1}), "key: {'a': 1}…this is of type dict"),
    "value is True": (lambda it: it.define(value=True), "value: True…this is of type bool"),
    "column of another frame": (lambda it: it.define(task=it.spark.range(1)["id"]), "task: "),
    "on_error is a text": (
        lambda it: it.define(on_error="CONTINUE"),
        "on_error: 'CONTINUE'…handle(context, record, exception)",
    ),
    "on_error is a class": (lambda it: it.define(on_error=LogAndPause), "on_error: …not a class"),
    "redact is a number": (lambda it: it.define(redact=5), "redact: 5"),
    "show is a number": (lambda it: it.define(show=5), "show: 5"),
    # Steps.
    "deserialize a text": (
        lambda it: it.define().deserialize("x", "value"),
        "deserialize 'x': x: 'value'…a Column, such as F.col(...)",
    ),
    "deserialize None": (lambda it: it.define().deserialize("x", None), "a Column…this is None"),
    "deserialize a lambda": (
        lambda it: it.define().deserialize("x", lambda row: row),
        "a Column…this is of type function",
    ),
    "deserialize an unknown column": (
        lambda it: it.define().deserialize("x", F.col("nope")),
        "deserialize 'x': ",
    ),
    "deserialize with RETRY": (
        lambda it: it.define().deserialize("x", F.col("value"), on={ValueError: RETRY}),
        "on: 'RETRY'",
    ),
    "columns without one": (
        lambda it: it.define().columns("add"),
        "no column is given; write column=expression",
    ),
    "columns with a number": (
        lambda it: it.define().columns("add", x=5),
        "columns 'add': x: 5…a Column",
    ),
    "step without a name": (lambda it: it.define().process("", dict), "step: ''…a text"),
    "step name is a function": (
        lambda it: it.define().process(dict, dict),
        "step: <class 'dict'>…a text",
    ),
    "step name twice": (
        lambda it: it.define().process("a", dict).process("a", dict),
        "step 'a' is there twice",
    ),
    "process with None": (
        lambda it: it.define().process("check", None),
        "process 'check': fn: None…this is None",
    ),
    "process with a text": (
        lambda it: it.define().process("check", "f"),
        "process 'check': fn: 'f'",
    ),
    "process without arguments": (
        lambda it: it.define().process("check", lambda: {}),
        "a function of one row, a dict; this one takes ()",
    ),
    "process of two rows": (
        lambda it: it.define().process("check", lambda a, b: a),
        "this one takes (a, b)",
    ),
    "schema is a number": (
        lambda it: it.define().process("check", dict, schema=5),
        "process 'check': schema: 5…this is of type int",
    ),
    "schema is a list": (
        lambda it: it.define().process("check", dict, schema=["a"]),
        "schema: ['a']…this is of type list",
    ),
    "schema with an unknown type": (
        lambda it: it.define().process("check", dict, schema="a INTT"),
        "process 'check': schema: …INTT",
    ),
    "schema without a type": (
        lambda it: it.define().process("check", dict, schema="a,b"),
        "process 'check': schema: ",
    ),
    "schema of one type": (
        lambda it: it.define().process("check", dict, schema="INT"),
        "process 'check': schema: ",
    ),
    "on is a list": (
        lambda it: it.define().process("check", dict, on=[ValueError]),
        "step 'check': on: …this is of type list",
    ),
    "on is a class": (
        lambda it: it.define().process("check", dict, on=ValueError),
        "on: …this is the class ValueError",
    ),
    "on with an unknown answer": (
        lambda it: it.define().process("check", dict, on={ValueError: "SKIP"}),
        "CONTINUE, RETRY, PAUSE or FAIL",
    ),
    "on with a number": (
        lambda it: it.define().process("check", dict, on={5: "PAUSE"}),
        "step 'check': on: {5: 'PAUSE'}",
    ),
    "handle without arguments": (
        lambda it: it.define().process("check", dict, on_error=Handler(lambda: None)),
        "on_error.handle: …this one takes ()",
    ),
    "handle of one argument": (
        lambda it: it.define().process("check", dict, on_error=Handler(lambda exception: None)),
        "handle(context, record, exception)…this one takes (exception)",
    ),
    "handler is a function": (
        lambda it: it.define().process("check", dict, on_error=dict),
        "on_error: <class 'dict'>",
    ),
    "transform without arguments": (
        lambda it: it.define().transform("parse", lambda: None),
        "a function of a DataFrame; this one takes ()",
    ),
    "transform returns nothing": (
        lambda it: it.define().transform("parse", lambda df: None),
        "transform 'parse': it returned a NoneType",
    ),
    "transform raises": (
        lambda it: it.define().transform("parse", lambda df: df.nope),
        "transform 'parse': with an empty DataFrame it raised …AttributeError",
    ),
    "transform counts": (
        lambda it: it.define().transform("parse", lambda df: df.groupBy("task").count()),
        "transform 'parse': ",
    ),
    "stateful is a text": (
        lambda it: it.define().transform("parse", lambda df: df, stateful="no"),
        "stateful: 'no'…True or False",
    ),
    # Sinks.
    "write with None": (lambda it: it.define().write(None), "write: fn: None"),
    "write with a path": (
        lambda it: it.define().write("/out"),
        "write: fn: '/out'…a function of a DataFrame and a number",
    ),
    "write of one argument": (
        lambda it: it.define().write(lambda df: None),
        "write: fn: …this one takes (df)",
    ),
    "write of three arguments": (
        lambda it: it.define().write(lambda a, b, c: None),
        "this one takes (a, b, c)",
    ),
    "atomic is a text": (
        lambda it: it.define().write(write, atomic="yes"),
        "write: atomic: 'yes'…True or False",
    ),
    "probe of two arguments": (
        lambda it: it.define().write(write, probe=write),
        "write: probe: …this one takes (df",
    ),
    "write_files without a path": (lambda it: it.define().write_files(""), "write_files: path: ''"),
    "write_files with None": (lambda it: it.define().write_files(None), "write_files: path: None"),
    "write_files into a number": (
        lambda it: it.define().write_files(5),
        "write_files: path: 5…this is of type int",
    ),
    "format misspelt": (
        lambda it: it.define().write_files("/out", format="paquet"),
        "format: 'paquet'…(nearest: parquet)",
    ),
    "format that is no file": (
        lambda it: it.define().write_files("/out", format="delta"),
        "for others, .write(fn, atomic=...)",
    ),
    "format is None": (
        lambda it: it.define().write_files("/out", format=None),
        "write_files: format: None",
    ),
    "options is a list": (
        lambda it: it.define().write_files("/out", options=["sep"]),
        "write_files: options: ['sep']",
    ),
    "partition_by is a number": (
        lambda it: it.define().write_files("/out", partition_by=5),
        "partition_by: 5…names of columns",
    ),
    "partition_by is a column": (
        lambda it: it.define().write_files("/out", partition_by=F.col("task")),
        "partition_by: Column",
    ),
    "number_column is a number": (
        lambda it: it.define().write_files("/out", number_column=5),
        "number_column: 5",
    ),
    "number_column is empty": (
        lambda it: it.define().write_files("/out", number_column=""),
        "number_column: ''",
    ),
    "produce nothing": (lambda it: it.define().produce(), "produce: send: None…or connect="),
    "produce both": (lambda it: it.define().produce(print, connect=dict), "not both"),
    "produce to a topic": (
        lambda it: it.define().produce("topic"),
        "produce: send: 'topic'…a function of a row",
    ),
    "send of two arguments": (
        lambda it: it.define().produce(lambda a, b: None),
        "this one takes (a, b)",
    ),
    "connect of a row": (
        lambda it: it.define().produce(connect=lambda row: None),
        "produce: connect: …this one takes (row)",
    ),
    # Starts.
    "start without a sink": (
        lambda it: it.define().start("/cp"),
        "has no sink: finish it with .write, .write_files, .write_delta, .write_iceberg, "
        ".write_jdbc, .write_kafka or .produce",
    ),
    "run without a sink": (lambda it: it.define().process("a", dict).run("/cp"), "has no sink"),
    "start of a static source": (
        lambda it: it.sink().start("/cp"),
        "has a static source: run(checkpoint=",
    ),
    "run of a stream": (lambda it: it.stream().run("/cp"), "has a stream as its source"),
    "run without an agent": (
        lambda it: begin("lines", it.source, position="position").write(write).run("/cp"),
        "was not made by agent.pipeline()",
    ),
    "checkpoint is None": (lambda it: it.sink().run(None), "checkpoint: None…a folder of its own"),
    "checkpoint is a number": (lambda it: it.sink().run(5), "checkpoint: 5…this is of type int"),
    "checkpoint is empty": (lambda it: it.stream().start(" "), "checkpoint: ' '"),
    "trigger is a text": (
        lambda it: it.stream().start("/cp", trigger="1 second"),
        "trigger: '1 second'…a mapping: …processingTime",
    ),
    "trigger misspelt": (
        lambda it: it.stream().start("/cp", trigger={"procesingTime": "1 second"}),
        "trigger: 'procesingTime'…(nearest: processingTime)",
    ),
    "trigger that Spark refuses": (
        lambda it: it.stream().start("/cp", trigger={"processingTime": "1 sekond"}),
        "trigger: {'processingTime': '1 sekond'}",
    ),
    "trigger of two": (
        lambda it: it.stream().start(
            "/cp", trigger={"processingTime": "1 second", "availableNow": True}
        ),
        "trigger: ",
    ),
    "trigger is empty": (
        lambda it: it.stream().start("/cp", trigger={"availableNow": False}),
        "trigger: {'availableNow': False}",
    ),
    "start_pipeline of a builder": (
        lambda it: it.agent.start_pipeline(it.define(), "/cp"),
        "pipeline: …that .write, .write_files, .write_delta, .write_iceberg, .write_jdbc, "
        ".write_kafka or .produce has returned",
    ),
    "adopt is a text": (lambda it: it.sink().run("/cp", adopt="yes"), "adopt: 'yes'…True or False"),
    # The agent.
    "agent without a session": (
        lambda it: made(None, application="a"),
        "needs a classic Spark session…this is of type NoneType",
    ),
    "agent of a builder": (
        lambda it: made(SparkSession.builder, application="a"),
        "needs a classic Spark session…this is of type Builder",
    ),
    "agent of a stopped session": (
        lambda it: made(STOPPED, application="a"),
        "the Spark session is stopped",
    ),
    "application is None": (lambda it: made(it.spark, application=None), "application: None"),
    "errors is a list": (
        lambda it: made(it.spark, application="a", errors=["x"]),
        "errors: ['x']…a mapping of settings",
    ),
    "errors with a number": (
        lambda it: made(it.spark, application="a", errors={5: "x"}),
        "errors: 5…keys that are texts",
    ),
    "errors misspelt": (
        lambda it: made(it.spark, application="a", errors={"errors.tolerence.limit": 1}),
        "did you mean errors.tolerance.limit?",
    ),
    "on_uncaught is a number": (
        lambda it: made(it.spark, application="a", on_uncaught=5),
        "on_uncaught: 5",
    ),
    "on_uncaught is async": (
        lambda it: made(it.spark, application="a", on_uncaught=later),
        f"on_uncaught: …{ASYNC}",
    ),
    # What exists in one process only.
    "step that uses the session": (
        lambda it: it.define().process("check", using(it.spark)),
        "process 'check': fn: …a function that can be sent to executors; this one uses value, "
        "a SparkSession. Use plain values",
    ),
    "step that uses a DataFrame": (
        lambda it: it.define().process("check", using(it.source)),
        "process 'check': fn: …this one uses value, a DataFrame",
    ),
    "step that uses the agent": (
        lambda it: it.define().process("check", using(it.agent)),
        "process 'check': fn: …this one uses value, an Agent",
    ),
    "step that uses a lock": (
        lambda it: it.define().process("check", using(threading.Lock())),
        "process 'check': fn: …this one uses value, a lock",
    ),
    "step that uses a list with a lock": (
        lambda it: it.define().process("check", using([threading.Lock()])),
        "process 'check': fn: …this one uses value, a list",
    ),
    "method of an object with a lock": (
        lambda it: it.define().process("check", Locked().method),
        "process 'check': fn: …this one uses guard, a lock",
    ),
    "object with a lock": (
        lambda it: it.define().process("check", Locked()),
        "process 'check': fn: …this one uses guard, a lock",
    ),
    "partial of a lock": (
        lambda it: it.define().process("check", functools.partial(using(1), threading.Lock())),
        "process 'check': fn: …this one uses argument 1, a lock",
    ),
    "send that uses the session": (
        lambda it: it.define().produce(using(it.spark)),
        "produce: send: …this one uses value, a SparkSession",
    ),
    "connect that uses a lock": (
        lambda it: it.define().produce(connect=using(threading.Lock())),
        "produce: connect: …this one uses value, a lock",
    ),
    "function of Python in deserialize": (
        lambda it: it.define().deserialize("loud", F.udf(str.upper)(F.col("value"))),
        "deserialize 'loud': loud: 'upper(value)' is not allowed; allowed: no Python function",
    ),
    "resume an unknown task": (
        lambda it: it.agent.resume("nope"),
        "task: 'nope'…a task of agent.tasks()",
    ),
    "resume None": (lambda it: it.agent.resume(None), "task: None…this is None"),
    "skip without a reason": (lambda it: it.agent.skip("t", reason=""), "reason: ''"),
    "resume_at a text": (
        lambda it: it.agent.resume_at("t", "5", reason="r"),
        "position: '5'…an integer",
    ),
    "set_policy with an unknown answer": (
        lambda it: it.agent.set_policy("lines", "produce", "SKIP", reason="r"),
        "answer: 'SKIP'",
    ),
    "set_policy without a reason": (
        lambda it: it.agent.set_policy("lines", "produce", None, reason=""),
        "reason: ''",
    ),
    "remove_thread of a pipeline": (lambda it: it.agent.remove_thread(it.sink()), "pipeline: "),
    "timeout is a text": (
        lambda it: it.agent.await_termination("5"),
        "timeout_seconds: '5'…a number of seconds",
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


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_where_it_is_made(scene: Scene, name: str) -> None:
    assert_answers(MISTAKES[name][0], scene, MISTAKES[name][1])


def test_usual_callables_are_accepted(scene: Scene, tmp_path: Path) -> None:
    pipeline = (
        scene.define().process("copy", dict).process("same", functools.partial(dict, task="a"))
    )
    pipeline.write(sink_to(tmp_path))
    pipeline.produce(print)
    pipeline.write_files(str(tmp_path), partition_by="TASK", number_column="batch")
    scene.define().process("check", lambda row, factor=2: row, on_error=LogAndPause())
