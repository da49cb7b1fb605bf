"""Tolerance: with limit n the n+1st failed record of a task in a run kills, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from pyspark.sql import functions as F

from arrester import CONTINUE, Response
from arrester.agents.config import AgentConfig
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import (
    ErrorContext,
    Handler,
    LogAndContinue,
    LogAndPause,
    Record,
    RecordError,
)
from arrester.agents.journal.entries import Entry, EntryKind
from arrester.agents.journal.journal import Journal
from arrester.agents.run.policy_snapshot import describe_pipeline
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.events import (
    PipelineDescribed,
    RecordFailed,
    ResumeHow,
    TaskDied,
    ThreadStarted,
)
from tests.agents.pipeline_bench import Bench, server_state, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]
BAD = [("a", n, "bad") for n in range(6)]


def raising() -> Any:
    def check(row: Row) -> Row:
        if row["value"] == "bad":
            raise ValueError("bad")
        return row

    return check


class Skipping:
    """Answers CONTINUE, but is not constant."""

    def handle(self, context: ErrorContext, record: Record, error: RecordError) -> Response:
        return Response.CONTINUE


DECLARED, ASKED = LogAndContinue(), Skipping()
#: A constant answer is counted by Spark, that of another handler record by record. The suite has
#: one of the two: held records are counted by the calls of a handler.
declared = pytest.mark.parametrize(
    "handler", [DECLARED, pytest.param(ASKED, marks=pytest.mark.long)], ids=["declared", "asked"]
)
asked = pytest.mark.parametrize(
    "handler", [pytest.param(DECLARED, marks=pytest.mark.long), ASKED], ids=["declared", "asked"]
)


def died_at(bench: Bench) -> tuple[str | None, int | None]:
    wait_until(lambda: bool(bench.ends))
    [died] = bench.outbox.of(TaskDied)
    return died.task, died.position


@declared
def test_the_first_record_over_the_limit_kills_across_micro_batches(
    bench: Bench, handler: Handler
) -> None:
    bench.add(("b", 0, "bad"), *BAD[:2])
    bench.start(bench.checking(raising(), handler), errors_tolerance_limit=3)
    bench.wait_for_input()
    bench.add(*BAD[2:])
    assert died_at(bench) == ("a", 3)


@pytest.mark.long
def test_a_native_step_is_counted_and_kills_at_the_exact_record(bench: Bench) -> None:
    bench.add(*BAD, ("b", 0, "bad"))
    pipeline = (
        bench.define()
        .deserialize("number", F.col("value").cast("int"), on_error=LogAndContinue())
        .write(sink_to(bench.folder / "out"))
    )
    bench.start(pipeline, errors_tolerance_limit=4)
    assert died_at(bench) == ("a", 4)


def test_all_steps_of_a_pipeline_share_the_count_of_a_task(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"), ("a", 3, "bad"), ("a", 4, "x"))
    good = F.when(F.col("value") == "x", F.lit("x").cast("int")).otherwise(1)
    pipeline = (
        bench.define()
        .deserialize("number", good, on_error=LogAndContinue())
        .process("check", raising(), on_error=LogAndContinue())
        .write(sink_to(bench.folder / "out"))
    )
    bench.start(pipeline, errors_tolerance_limit=3)
    assert died_at(bench) == ("a", 3)


def test_a_limit_alone_skips_records_until_it_is_exceeded(bench: Bench) -> None:
    bench.add(*BAD[:2], ("a", 2, "x"))
    pipeline = bench.define().process("check", raising()).write(sink_to(bench.folder / "out"))
    bench.start(pipeline, errors_tolerance_limit=2)
    bench.wait_for_input()
    assert bench.positions("a") == [2]
    bench.add(*BAD[3:])
    assert died_at(bench) == ("a", 3)


def test_a_limit_per_day_kills_by_its_window(bench: Bench) -> None:
    bench.add(*BAD)
    bench.start(
        bench.checking(raising(), LogAndContinue()),
        errors_tolerance_rate_limit=1,
        errors_tolerance_rate_duration="day",
    )
    assert died_at(bench) == ("a", 1)


def test_the_next_run_starts_at_zero(bench: Bench) -> None:
    for rows in (BAD[:2], BAD[2:4]):
        bench.add(*rows)
        bench.start(bench.checking(raising(), LogAndContinue()), errors_tolerance_limit=2)
        bench.wait_for_input()
        bench.stop()
    assert bench.ends == []
    assert len(bench.outbox.of(RecordFailed)) == 4


def test_held_records_count_when_they_run(bench: Bench) -> None:
    """The first record pauses its task; the others are skipped when they run later."""

    class PauseOnce:
        def handle(self, context: ErrorContext, record: Record, error: RecordError) -> Response:
            return Response.PAUSE if context.position == 0 else Response.CONTINUE

    bench.add(*BAD)
    thread = bench.start(bench.checking(raising(), PauseOnce()), errors_tolerance_limit=2)
    wait_until(lambda: bool(thread.paused_tasks()))
    assert thread.apply(TaskCommand("a", how=ResumeHow.SKIP)).applied
    assert died_at(bench) == ("a", 3)


def test_records_after_a_pause_are_not_counted(bench: Bench) -> None:
    bench.add(("a", 0, "bad"), ("a", 1, "y"), *[("a", n, "bad") for n in range(2, 8)])
    refused = F.when(F.col("value") == "y", F.lit("y").cast("int")).otherwise(1)
    pipeline = (
        bench.define()
        .deserialize("number", refused, on_error=LogAndPause())
        .process("check", raising(), on_error=LogAndContinue())
        .write(sink_to(bench.folder / "out"))
    )
    thread = bench.start(pipeline, errors_tolerance_limit=1)
    wait_until(lambda: bool(thread.paused_tasks() or bench.ends))
    [paused] = thread.paused_tasks()
    assert paused.position == 1
    assert bench.ends == []


def test_a_run_reports_its_policies_and_its_tolerance_usage(
    bench: Bench,
) -> None:
    bench.add(*BAD[:3], ("b", 0, "bad"), ("b", 1, "x"))
    pipeline = (
        bench.define()
        .deserialize("text", F.upper("value"))
        .process("check", raising(), on_error=Skipping(), on={ValueError: CONTINUE})
        .columns("length", length=F.length("value"), on_error=LogAndPause())
        .write_files(str(bench.folder / "out"), format="json", number_column="batch")
    )
    bench.start(
        pipeline,
        errors_tolerance_rate_limit=100,
        errors_tolerance_rate_duration="day",
        errors_retries_limit=2,
        processing_exception_handler=LogAndContinue(),
        errors_dlq_path=f"file:{bench.folder}/dlq//ana:hush@host",
        errors_dlq_options_password="hush",
    )
    bench.wait_for_input()
    wait_until(lambda: len(bench.outbox.of(RecordFailed)) == 4)

    [policy] = bench.outbox.of(PipelineDescribed)
    reported = [each.data for each in bench.outbox.events]
    assert isinstance(reported[0], ThreadStarted) and reported[1] == policy
    assert [(each.name, each.answer, each.origin) for each in policy.stages] == [
        ("source", "CONTINUE", "limit"),
        ("deserialize", "CONTINUE", "limit"),
        ("process:check", None, "on_error"),
        ("process:length", "PAUSE", "on_error"),
        ("produce", "FAIL", "default"),
    ]
    assert policy.stages[-1].on == {"retriable failures": "CONTINUE"}
    assert policy.stages[2].handler == f"{__name__}.Skipping"
    assert policy.stages[2].on == {"builtins.ValueError": "CONTINUE"}
    assert (policy.sink, policy.atomic) == ("json files", True)
    assert (policy.rate_limit, policy.rate_duration, policy.tolerance_limit) == (100, "day", None)
    assert (policy.retries_limit, policy.scope) == (2, "thread")
    assert (policy.dead_letter_format, policy.uncaught) == ("parquet", "SHUTDOWN_CLIENT")
    assert policy.dead_letter_place == f"file:{bench.folder}/dlq//…@host"
    assert b"hush" not in msgspec.json.encode(policy)
    [thread] = server_state(bench.outbox.events).threads.values()
    assert thread.policy == policy
    assert (thread.spent.total, thread.spent.in_window, thread.spent.task) == (3, 3, "a")


def test_a_sink_is_described_with_its_handler(bench: Bench) -> None:
    def reported(end: Pipeline, **keys: object) -> tuple[str | None, str, Mapping[str, str]]:
        config = AgentConfig.read("flights", keys, environment={})
        stage = describe_pipeline(end, config, uncaught="SHUTDOWN_CLIENT").stages[-1]
        return stage.answer, stage.origin, stage.on

    handler = LogAndContinue()
    ends = [bench.define().write(print), bench.define().produce(print)]
    for end in ends:
        assert reported(end) == ("FAIL", "default", {})
        assert reported(end, **{"production.exception.handler": handler}) == (
            "CONTINUE",
            "configuration",
            {},
        )
    assert reported(bench.define().write(print, on_error=handler)) == ("CONTINUE", "on_error", {})
    assert reported(bench.define().produce(print, on_error=handler)) == ("CONTINUE", "on_error", {})


@asked
def test_a_decision_that_was_not_committed_is_not_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, handler: Handler
) -> None:
    """The source's budget lets the same run decide again."""
    append = Journal.append
    lost: list[Entry] = []

    def losing(self: Journal, entry: Entry) -> Entry:
        if entry.kind is EntryKind.BATCH and not lost:
            lost.append(entry)
            raise ConnectionResetError("the store is away")
        return append(self, entry)

    monkeypatch.setattr(Journal, "append", losing)
    bench.add(("a", 0, "bad"), ("a", 1, "x"))
    bench.start(
        bench.checking(raising(), handler),
        errors_tolerance_limit=1,
        errors_retries_limit=3,
        errors_retries_delay_max_ms=1,
    )
    bench.wait_for_input()
    assert (len(lost), bench.ends, bench.positions("a")) == (1, [], [1])
