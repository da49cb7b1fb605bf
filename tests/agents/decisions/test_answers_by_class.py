"""Answers by exception class and error condition, beside `on_error`: `on={...}`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester import CONTINUE, FAIL, PAUSE, RETRY
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import (
    ErrorContext,
    LogAndContinue,
    LogAndPause,
    OnClass,
    Record,
    RecordError,
)
from arrester.domain.error_policy.policy import Response
from arrester.domain.errors import InvalidConfiguration, InvalidValue
from arrester.domain.events import RecordFailed, RetriesCounted, TaskPaused, ThreadDied
from arrester.domain.state.states import ThreadStatus
from tests.agents.pipeline_bench import Bench, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def raising(row: Row) -> Row:
    kinds = {"key": KeyError, "index": IndexError, "late": TimeoutError, "odd": ArithmeticError}
    if row["value"] in kinds:
        raise kinds[row["value"]](row["value"])
    return row


class RecordingHandler:
    """Records its calls, and answers CONTINUE."""

    def __init__(self) -> None:
        self.classes: list[str] = []

    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Response:
        self.classes.append(exception.exception_class)
        return CONTINUE


def stepping(bench: Bench, on: OnClass, handler: Any = None) -> Pipeline:
    builder = bench.define().process("check", raising, on=on, on_error=handler)
    return builder.write(sink_to(bench.folder / "out"))


def test_the_most_specific_class_answers_and_other_classes_go_to_the_handler(bench: Bench) -> None:
    handler = RecordingHandler()
    bench.add(
        *[("a", n, value) for n, value in enumerate(("x", "key", "x", "odd", "index", "x"))],
        *[("b", n, value) for n, value in enumerate(("key", "odd", "x"))],
    )
    on: OnClass = {LookupError: CONTINUE, "builtins.IndexError": PAUSE}
    bench.start(stepping(bench, on, handler))
    bench.wait_for_input()

    assert bench.positions("a") == [0, 2]
    assert bench.positions("b") == [2]
    assert handler.classes == ["ArithmeticError", "ArithmeticError"]
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 1)
    [paused] = bench.outbox.of(TaskPaused)
    assert (paused.task, paused.position) == ("a", 4)


def test_constant_answers_by_class_are_counted(bench: Bench) -> None:
    values = ["odd", *["key"] * 250, "index", "key"]
    bench.add(*[("a", n, value) for n, value in enumerate(values)], ("b", 0, "x"))
    on: OnClass = {"KeyError": CONTINUE, IndexError: PAUSE}
    bench.start(stepping(bench, on, LogAndContinue()), errors_examples_limit=3)
    bench.wait_for_input()

    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 1)
    [paused] = bench.outbox.of(TaskPaused)
    assert paused.position == 251
    assert len(bench.dead_letters()) == 251


def test_retry_makes_a_class_retriable_and_then_the_handler_answers(bench: Bench) -> None:
    handler = RecordingHandler()
    bench.add(("a", 0, "odd"), ("a", 1, "key"), ("a", 2, "x"))
    pipeline = stepping(bench, {ArithmeticError: RETRY}, handler)
    bench.start(pipeline, errors_retries_limit=2, errors_retries_delay_max_ms=1)
    bench.wait_for_input()

    assert bench.positions("a") == [2]
    assert handler.classes == ["ArithmeticError", "KeyError"]
    wait_until(lambda: len(bench.outbox.of(RecordFailed)) == 2)
    attempts = [each.failure.attempts for each in bench.outbox.of(RecordFailed)]
    assert attempts == [3, 1]
    assert bench.outbox.of(RetriesCounted) == []


def native(bench: Bench, on: OnClass, handler: Any) -> Pipeline:
    number = F.lit(10) / F.col("value").cast("int")
    builder = bench.define().deserialize("number", number, on=on, on_error=handler)
    return builder.write(sink_to(bench.folder / "out"))


def test_native_failures_are_answered_by_condition_and_by_jvm_class(bench: Bench) -> None:
    bench.add(*[("a", n, value) for n, value in enumerate(("1", "x", "2", "0", "5"))])
    bench.add(("b", 0, "0"), ("b", 1, "x"), ("b", 2, "5"), ("c", 0, "x"))
    on: OnClass = {"CAST_INVALID_INPUT": CONTINUE, "java.lang.ArithmeticException": PAUSE}
    bench.start(native(bench, on, None))
    bench.wait_for_input()

    assert bench.positions("a") == [0, 2]
    assert bench.positions("b") == []
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 2)
    places = [(each.task, each.position) for each in bench.outbox.of(TaskPaused)]
    assert places == [("a", 3), ("b", 0)]
    conditions = {each.failure.condition for each in bench.outbox.of(RecordFailed)}
    assert conditions == {"CAST_INVALID_INPUT", "DIVIDE_BY_ZERO"}


def test_a_class_that_fails_ends_the_run(bench: Bench) -> None:
    bench.add(("a", 0, "key"), ("b", 0, "index"))
    thread = bench.start(stepping(bench, {"IndexError": FAIL}, LogAndPause()))
    wait_until(lambda: thread.state is ThreadStatus.DEAD)
    [died] = bench.outbox.of(ThreadDied)
    assert "IndexError" in died.reason
    assert bench.outbox.of(TaskPaused) == []


@pytest.mark.parametrize(
    "on",
    [{"no such": PAUSE}, {int: PAUSE}, {ValueError: "PAUSE"}, {3: PAUSE}],
    ids=["name", "class", "answer", "key"],
)
def test_an_invalid_answer_by_class_is_refused(bench: Bench, on: Any) -> None:
    with pytest.raises(InvalidValue, match="step 'check': on"):
        stepping(bench, on)


def test_retry_without_a_budget_or_of_a_native_step_is_refused(bench: Bench) -> None:
    builder = bench.define().process("one", raising, on={TimeoutError: RETRY})
    builder = builder.process("other", raising, on={KeyError: RETRY})
    with pytest.raises(InvalidConfiguration, match="a budget to retry with") as caught:
        bench.start(builder.write(sink_to(bench.folder / "out"), on={OSError: RETRY}))
    names = [fault.name for fault in caught.value.faults]
    assert names == [f"step {name!r}: on" for name in ("one", "other", "produce")]
    # Nothing was claimed, and no checkpoint was created.
    assert not Path(bench.checkpoint).exists()
    assert not bench.outbox.events
    with pytest.raises(InvalidValue, match="RETRY"):
        native(bench, {"CAST_INVALID_INPUT": RETRY}, None)


def test_an_answer_by_class_equal_to_the_handler_is_counted(bench: Bench) -> None:
    """Native failures whose answers are all equal need no diagnosis."""
    bench.add(("a", 0, "1"), ("a", 1, "x"), ("a", 2, "0"), ("a", 3, "x"), ("a", 4, "5"))
    on: OnClass = {"CAST_INVALID_INPUT": CONTINUE}
    bench.start(native(bench, on, LogAndContinue()), errors_tolerance_limit=2)
    wait_until(lambda: bool(bench.ends))
    assert "position 3" in bench.ends[0].reason


def test_a_sink_answers_by_class(bench: Bench) -> None:
    handler, write, calls = RecordingHandler(), sink_to(bench.folder / "out"), list[str]()

    def sink(df: DataFrame, number: int) -> None:
        [row] = df.collect()
        calls.append(row["value"])
        raising(row.asDict())
        write(df, number)

    for number, value in enumerate(("key", "late", "odd", "x", "index")):
        bench.add(("a", number, value))
    on: OnClass = {"KeyError": CONTINUE, IndexError: PAUSE, TimeoutError: RETRY}
    pipeline = bench.define().write(sink, on_error=handler, on=on)
    bench.start(pipeline, errors_retries_limit=1, errors_retries_delay_max_ms=1)
    bench.wait_for_input()

    assert calls == ["key", "late", "late", "odd", "x", "index"]
    assert handler.classes == ["TimeoutError", "ArithmeticError"]
    assert bench.positions("a") == [3]
    wait_until(lambda: [each.position for each in bench.outbox.of(TaskPaused)] == [4])
    with pytest.raises(InvalidValue, match="write: on"):
        bench.define().write(sink, on={"no such": PAUSE})
    with pytest.raises(InvalidValue, match="a budget to retry with"):
        bench.start(bench.define().write(sink, on={TimeoutError: RETRY}))


@pytest.mark.long
def test_sent_records_are_answered_by_class(bench: Bench) -> None:
    handler, place = RecordingHandler(), str(bench.folder / "sent")
    (bench.folder / "sent").mkdir()

    def send(row: Row) -> None:
        kinds = {"key": KeyError, "index": IndexError, "odd": ArithmeticError}
        if row["value"] in kinds:
            raise kinds[row["value"]](row["value"])
        open(f"{place}/{row['task']}{row['position']}", "w").close()

    bench.add(*[("a", n, value) for n, value in enumerate(("key", "x", "odd", "x", "index", "x"))])
    bench.add(("b", 0, "key"), ("b", 1, "x"))
    on: OnClass = {LookupError: CONTINUE, "builtins.IndexError": PAUSE}
    pipeline = bench.define().produce(send, on_error=handler, on=on)
    bench.start(pipeline)
    bench.wait_for_input()

    assert sorted(each.name for each in (bench.folder / "sent").iterdir()) == ["a1", "a3", "b1"]
    assert handler.classes == ["ArithmeticError"]
    wait_until(lambda: [each.position for each in bench.outbox.of(TaskPaused)] == [4])
    # A constant handler does not answer for a class with its own answer.
    bench.add(("c", 0, "odd"), ("c", 1, "index"), ("c", 2, "x"))
    bench.stop()
    other = bench.define().produce(send, on_error=LogAndContinue(), on={IndexError: PAUSE})
    bench.start(other)
    wait_until(lambda: len({each.task for each in bench.outbox.of(TaskPaused)}) == 2)
    assert not (bench.folder / "sent" / "c2").exists()


def test_a_transform_answers_by_class(bench: Bench) -> None:
    handler = RecordingHandler()

    def through(df: DataFrame) -> DataFrame:
        return df.withColumn(
            "value", F.udf(lambda value: raising({"value": value})["value"])("value")
        )

    bench.add(*[("a", n, value) for n, value in enumerate(("key", "x", "odd", "index", "x"))])
    on: OnClass = {LookupError: CONTINUE, "builtins.IndexError": PAUSE}
    builder = bench.define().transform("through", through, on_error=handler, on=on)
    bench.start(builder.write(sink_to(bench.folder / "out")))
    bench.wait_for_input()

    assert bench.positions("a") == [1]
    assert handler.classes == ["ArithmeticError"]
    wait_until(lambda: [each.position for each in bench.outbox.of(TaskPaused)] == [3])
