"""The sink probe finds the records that a batch sink rejects."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.decisions.end_reasons import RecordFatal
from arrester.agents.definition.builder import PipelineBuilder
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import Handler, LogAndContinue, LogAndPause
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.error_policy.policy import Response
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    OutageFound,
    RecordFailed,
    ResumeHow,
    RetriesCounted,
    TaskDied,
    TaskPaused,
    ThreadDied,
)
from tests.agents.pipeline_bench import Bench, levels_of, server_state, sink_to
from tests.parameters import long_for
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.spark

#: XML has no such character.
NUL = "a\0b"


def files(bench: Bench, on_error: Handler) -> Pipeline:
    if bench.spark.version.startswith("3."):
        pytest.skip("Spark 3.5 has no XML, the format that rejects some values")
    return bench.define().write_files(
        str(bench.folder / "xml"),
        format="xml",
        options={"rowTag": "row"},
        number_column="batch",
        on_error=on_error,
    )


def in_files(bench: Bench) -> list[tuple[int, str, int]]:
    """Return number, task and position of the rows in the files."""
    written = []
    for part in (bench.folder / "xml").glob("batch=*/part-*"):
        number = int(part.parent.name.partition("=")[2])
        rows = re.findall(r"<task>(\w)</task>\s*<position>(\d+)</position>", part.read_text())
        written += [(number, task, int(position)) for task, position in rows]
    return sorted(written)


def scratch(bench: Bench) -> list[Path]:
    return list(Path(bench.checkpoint, "arrester", "scratch").rglob("*"))


class Strict:
    """A sink that rejects rows by their value, as a table does by its constraints."""

    def __init__(self, bench: Bench) -> None:
        self.sink = sink_to(bench.folder / "out")
        self.refuses = "value LIKE 'bad%'"
        #: What is raised on the driver; None: executors raise.
        self.raises: type[Exception] | None = None
        #: What further calls raise, with any rows.
        self.broken: list[BaseException] = []
        self.calls: list[int] = []
        self.probes = 0

    def __call__(self, df: DataFrame, number: int) -> None:
        self.calls.append(number)
        self.check(df)
        if self.broken:
            raise self.broken.pop(0)
        self.sink(df, number)

    def probe(self, df: DataFrame) -> None:
        self.probes += 1
        self.check(df)

    def check(self, df: DataFrame) -> None:
        if self.raises is None:
            refused = F.raise_error(F.concat(F.lit("not this: "), "value"))
            kept = df.where(F.when(F.expr(self.refuses), refused).otherwise(F.lit(True)))
            kept.write.format("noop").mode("append").save()
            return
        rejected = df.where(self.refuses).limit(1).collect()
        if rejected:
            raise self.raises(f"not this: {rejected[0]['value']}")


@pytest.fixture
def strict(bench: Bench) -> Strict:
    return Strict(bench)


class RecordingHandler:
    """Answers CONTINUE, and records its calls."""

    def __init__(self) -> None:
        self.handler_calls: list[tuple[str | None, int | None, str | None, int]] = []

    def handle(self, context: Any, record: Any, exception: Any) -> Response:
        value = record.row.get("value")
        self.handler_calls.append((context.task, context.position, value, context.attempt))
        return Response.CONTINUE


# ── files: the agent's own probe ─────────────────────────────────────────────────────────────


def test_records_that_a_format_rejects_are_skipped_and_the_others_written_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="arrester.failures")
    killed = Path(bench.checkpoint) / "arrester" / "scratch" / "0" / "left"
    killed.mkdir(parents=True)
    rows = [("ab"[n % 2], n, NUL if n in (7, 8) else "x") for n in range(40)]
    bench.add(*rows)
    bench.add(("a", 40, "x"))
    bench.start(files(bench, LogAndContinue()))
    bench.wait_for_input()
    bench.stop()

    assert in_files(bench) == sorted(
        [(0, task, n) for task, n, value in rows if value == "x"] + [(1, "a", 40)]
    )
    failed = bench.outbox.of(RecordFailed)
    assert {(each.task, each.position, each.failure.stage) for each in failed} == {
        ("a", 8, "produce"),
        ("b", 7, "produce"),
    }
    # The record's own error, without the probe's folder.
    assert {each.failure.exception_class.rpartition(".")[2] for each in failed} == {
        "WstxIOException"
    }
    assert not any("scratch" in each.failure.message for each in failed)
    dead_letters = {
        (each["position"], json.loads(each["row"])["value"]) for each in bench.dead_letters()
    }
    assert dead_letters == {(7, NUL), (8, NUL)}
    assert scratch(bench) == []
    assert levels_of("2 failed records of 2 tasks skipped", caplog) == ["DEBUG"]


def test_a_pause_holds_records_after_a_rejected_one_and_held_records_are_probed(
    bench: Bench,
) -> None:
    bad = {2, 4}
    bench.add(*[("a", n, NUL if n in bad else "x") for n in range(6)], ("b", 0, "x"))
    thread = bench.start(files(bench, LogAndPause()))
    bench.wait_for_input()
    [paused] = thread.paused_tasks()
    assert (paused.id.key, paused.position) == ("a", 2)
    assert in_files(bench) == [(0, "a", 0), (0, "a", 1), (0, "b", 0)]

    # After it: the chunk of held records ends at the next one.
    assert thread.apply(TaskCommand("a", how=ResumeHow.SKIP)).applied
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 2 and bool(thread.paused_tasks()))
    assert thread.paused_tasks()[0].position == 4
    assert thread.apply(TaskCommand("a", how=ResumeHow.SKIP)).applied
    wait_until(lambda: len(in_files(bench)) == 5)
    wait_until(
        lambda: not any(task.held for task in server_state(bench.outbox.events).tasks.values())
    )
    bench.stop()

    assert [n for _, task, n in in_files(bench) if task == "a"] == [0, 1, 3, 5]
    assert {each["position"] for each in bench.dead_letters()} == bad
    assert scratch(bench) == []


# ── other sinks: the author's probe ──────────────────────────────────────────────────────────


@pytest.mark.long
def test_the_handler_is_called_once_for_each_rejected_record(bench: Bench, strict: Strict) -> None:
    handler = RecordingHandler()
    strict.raises = ValueError
    bench.add(*[("ab"[n % 2], n, f"bad {n}" if n in (3, 11) else "x") for n in range(20)])
    pipeline = bench.define().write(strict, probe=strict.probe, on_error=handler)
    bench.start(pipeline)
    bench.wait_for_input()
    bench.stop()
    assert handler.handler_calls == [("b", 3, "bad 3", 1), ("b", 11, "bad 11", 1)]
    assert sorted(n for _, n in bench.written()) == [n for n in range(20) if n not in (3, 11)]
    assert strict.calls == [0, 0]
    messages = {each.failure.message for each in bench.outbox.of(RecordFailed)}
    assert messages == {"not this: bad 3", "not this: bad 11"}

    # The default is FAIL, which names the first of them; nothing is written.
    bench.add(("a", 20, "x"), ("a", 21, "bad 21"), ("b", 22, "x"))
    bench.start(bench.define().write(strict, probe=strict.probe))
    wait_until(lambda: bool(bench.ends))
    [died] = bench.outbox.of(TaskDied)
    assert (died.task, died.position, died.failure.stage) == ("a", 21, "produce")
    assert isinstance(bench.ends[0].exception, RecordFatal)
    assert len(bench.written()) == 18


def test_only_the_task_of_a_rejected_record_dies_if_configured(
    bench: Bench, strict: Strict
) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"), ("b", 0, "x"))
    pipeline = bench.define().write(strict, probe=strict.probe)
    thread = bench.start(pipeline, errors_failure_scope="task")
    bench.wait_for_input()
    assert sorted(bench.written()) == [("a", 0), ("b", 0)]
    strict.refuses = "false"
    assert thread.apply(TaskCommand("a", how=ResumeHow.RESTART)).applied
    wait_until(lambda: len(bench.written()) == 4)
    bench.stop()
    assert bench.positions("a") == [0, 1, 2]


def exploded(builder: PipelineBuilder) -> PipelineBuilder:
    return builder.process("twice", lambda row: [row, row | {"value": row["value"] + "2"}])


def carried(builder: PipelineBuilder) -> PipelineBuilder:
    return builder.transform("words", words).columns("upper", upper=F.upper("value"))


def words(df: DataFrame) -> DataFrame:
    both = F.explode(F.array(F.col("value"), F.concat("value", F.lit("2"))))
    return df.select("task", "position", both.alias("value"))


SHAPES: dict[str, Callable[[PipelineBuilder], PipelineBuilder]] = {
    "process": exploded,
    "transform": carried,
    "tail": lambda builder: builder.transform("words", words),
}


@pytest.mark.parametrize("shape", long_for(SHAPES, ["process"]))
def test_a_record_of_several_rows_is_rejected_as_a_whole(
    bench: Bench, strict: Strict, shape: str
) -> None:
    strict.refuses = "value = 'bad2'"
    bench.add(*[("a", n, "bad" if n == 4 else "x") for n in range(6)])
    builder = SHAPES[shape](bench.define())
    bench.start(builder.write(strict, probe=strict.probe, on_error=LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    assert sorted(n for _, n in bench.written()) == [0, 0, 1, 1, 2, 2, 3, 3, 5, 5]
    [failed] = bench.outbox.of(RecordFailed)
    assert (failed.position, "not this: bad2" in failed.failure.message) == (4, True)
    assert [json.loads(each["row"])["value"] for each in bench.dead_letters()] == ["bad"]


def exiting(df: DataFrame) -> None:
    raise SystemExit(1)


def test_the_handler_decides_about_the_batch_if_the_probe_isolates_no_record(
    bench: Bench, strict: Strict
) -> None:
    """Each micro-batch has a probe of its own."""

    def only_together(df: DataFrame) -> None:
        if df.count() > 2:
            raise ValueError("too many")

    def raising(kind: type[Exception]) -> Callable[[DataFrame], None]:
        def raises(df: DataFrame) -> None:
            if not df.where("value = 'bad'").isEmpty():
                raise kind("of another kind than what the sink failed of")

        return raises

    probes: dict[str, Callable[[DataFrame], object]] = {
        "passes": lambda df: None,
        "exits": exiting,
        "only together": only_together,
        "fatal": raising(PermissionError),
        "retriable": raising(ConnectionError),
    }
    probed: list[str] = []

    def probe(df: DataFrame) -> object:
        name = [*probes][strict.calls[-1]]
        probed.append(name)
        return probes[name](df)

    handler = RecordingHandler()
    for number in range(len(probes)):
        first = 10 * number
        bench.add(("a", first, "x"), ("a", first + 1, "bad"), ("b", first, "x"))
    bench.add(("a", 99, "x"))
    bench.start(bench.define().write(strict, probe=probe, on_error=handler))
    bench.wait_for_input()
    bench.stop()
    assert sorted(set(probed)) == sorted(probes)
    assert handler.handler_calls == [(None, None, None, 1)] * len(probes)
    assert strict.calls == [*range(len(probes) + 1)]
    assert bench.written() == [("a", 99)]
    assert len(bench.dead_letters()) == 3 * len(probes)


def test_retriable_failures_are_retried_before_the_probe(bench: Bench, strict: Strict) -> None:
    handler = RecordingHandler()
    strict.raises = TimeoutError
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"))
    pipeline = bench.define().write(strict, probe=strict.probe, on_error=handler)
    keys: dict[str, Any] = {"errors_retries_limit": 2, "errors_retries_delay_max_ms": 1}
    bench.start(pipeline, **keys)
    bench.wait_for_input()
    bench.stop()
    assert strict.calls == [0, 0, 0, 0]
    # It failed in each attempt of the sink.
    assert handler.handler_calls == [("a", 1, "bad", 3)]
    assert bench.positions("a") == [0, 2]
    [failed] = bench.outbox.of(RecordFailed)
    assert (failed.failure.attempts, bench.outbox.of(RetriesCounted)) == (3, [])


@pytest.mark.long
def test_a_replay_obeys_decisions_about_rejected_records(bench: Bench, strict: Strict) -> None:
    handler = RecordingHandler()
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("b", 0, "x"))
    # The second call, without the record, ends the run: the decision is durable, nothing written.
    strict.broken = [PermissionError("not any more")]
    pipeline = bench.define().write(strict, probe=strict.probe, on_error=handler)
    bench.start(pipeline)
    wait_until(lambda: bool(bench.ends))
    assert (strict.calls, bench.written()) == ([0, 0], [])
    assert bench.outbox.of(TaskDied) == []

    # The record would pass now.
    strict.refuses, probes = "false", strict.probes
    bench.start(pipeline)
    wait_until(lambda: bench.committed() == 0)
    bench.stop()
    assert [each.position for each in bench.outbox.of(RecordFailed)] == [1]
    assert strict.calls == [0, 0, 0]
    assert (strict.probes, len(handler.handler_calls)) == (probes, 1)
    assert sorted(bench.written()) == [("a", 0), ("b", 0)]
    assert [each["position"] for each in bench.dead_letters()] == [1]


@pytest.mark.long
def test_rejected_records_are_not_an_outage(bench: Bench, strict: Strict) -> None:
    keys: dict[str, Any] = {"errors_outage_share": 0.5, "errors_outage_minimum": 4}
    bench.add(*[("a", n, "bad" if n == 2 else "x") for n in range(6)])
    pipeline = bench.define().write(strict, probe=strict.probe, on_error=LogAndContinue())
    thread = bench.start(pipeline, **keys)
    bench.wait_for_input()
    assert bench.positions("a") == [0, 1, 3, 4, 5]

    # Most of them fail: this is an outage. Each task stops where nothing later was written.
    bench.add(*[("b", n, "x" if n in (1, 5) else "bad") for n in range(6)])
    bench.wait_for_input()
    assert {task.id.key: task.position for task in thread.paused_tasks()} == {"b": 0}
    wait_until(lambda: bool(bench.outbox.of(OutageFound)))
    [outage] = bench.outbox.of(OutageFound)
    assert (outage.failed, outage.records) == (4, 6)
    assert len(bench.dead_letters()) == 1

    # If the sink is unreachable, so is the probe.
    strict.refuses, strict.broken = "false", [ValueError("away")]
    bench.add(*[("c", n, "x") for n in range(6)])
    wait_until(lambda: bool(bench.ends))
    [died] = bench.outbox.of(ThreadDied)
    assert died.reason.startswith("outage: 6 of 6 records")


@pytest.mark.long
def test_an_outage_is_measured_by_the_records_after_a_transform(
    bench: Bench, strict: Strict
) -> None:
    """After a transform, none of a record's rows is the source row."""
    keys: dict[str, Any] = {"errors_outage_share": 0.5, "errors_outage_minimum": 2}
    bench.add(*[("a", n, "bad" if n < 2 else "x") for n in range(6)])
    builder = carried(bench.define())
    pipeline = builder.write(strict, probe=strict.probe, atomic=True, on_error=LogAndContinue())
    thread = bench.start(pipeline, **keys)
    bench.wait_for_input()
    assert set(bench.positions("a")) == set(range(2, 6))
    assert bench.outbox.of(OutageFound) == []

    strict.refuses, strict.broken = "false", [ValueError("away")]
    bench.add(*[("b", n, "x") for n in range(3)])
    bench.wait_for_input()
    assert {task.id.key: task.position for task in thread.paused_tasks()} == {"b": 0}
    wait_until(lambda: bool(bench.outbox.of(OutageFound)))
    [outage] = bench.outbox.of(OutageFound)
    assert (outage.failed, outage.records) == (3, 3)
    assert len(bench.dead_letters()) == 2


@pytest.mark.long
def test_the_handler_decides_about_the_batch_if_the_probe_uses_all_jobs(
    bench: Bench, strict: Strict, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Records that were isolated before are decided like the others."""
    caplog.set_level(logging.INFO, logger="arrester.thread")
    monkeypatch.setattr("arrester.agents.execution.bisection.JOBS", 4)
    handler = RecordingHandler()
    bench.add(*[("a", n, "bad" if n % 2 else "x") for n in range(12)])
    bench.add(("a", 12, "x"), ("a", 13, "bad"))
    pipeline = bench.define().write(strict, probe=strict.probe, on_error=handler)
    bench.start(pipeline)
    bench.wait_for_input()
    bench.stop()
    # The next micro-batch has as many probes again.
    assert handler.handler_calls == [(None, None, None, 1), ("a", 13, "bad", 1)]
    assert (strict.calls, bench.written()) == ([0, 1, 1], [("a", 12)])
    dead_letters = sorted(each["position"] for each in bench.dead_letters())
    assert dead_letters == [*range(12), 13]
    assert "more of its records fail than 4 jobs could find" in caplog.text


def test_a_stop_cancels_the_probe_and_leaves_the_records_undecided(
    bench: Bench, strict: Strict
) -> None:
    begun = bench.folder / "begun"
    name = str(begun)

    def slow(df: DataFrame) -> None:
        def wait(frames: Iterator[Any]) -> Iterator[Any]:
            import time

            for frame in frames:
                open(name, "w").close()
                time.sleep(3600)
                yield frame

        try:
            df.mapInPandas(wait, df.schema).write.format("noop").mode("append").save()
        except Exception:
            raise ValueError("whatever it was") from None

    handler = RecordingHandler()
    bench.add(("a", 0, "bad"))
    thread = bench.start(bench.define().write(strict, probe=slow, on_error=handler))
    wait_until(begun.exists)
    assert thread.stop("stopped", timeout_seconds=PATIENCE_SECONDS)
    assert (handler.handler_calls, bench.outbox.of(RecordFailed), bench.ends) == ([], [], [])
    assert bench.committed() == -1


def test_an_invalid_probe_is_refused(bench: Bench, strict: Strict) -> None:
    wrong: Any = "staging"
    with pytest.raises(InvalidValue, match="write: probe: 'staging' is not allowed"):
        bench.define().write(strict, probe=wrong)
