"""Counts are exact: failed records, dead letters, held rows and rows in the sink add up."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.domain.events import FailuresCounted, RecordFailed, RecordsDeadLettered
from arrester.domain.state.states import Counters
from tests.agents.execution.test_retries import flaky
from tests.agents.pipeline_bench import Bench, server_state, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark


def failed_in_all(bench: Bench) -> int:
    described = sum(each.count for each in bench.outbox.of(RecordFailed))
    return described + sum(each.count for each in bench.outbox.of(FailuresCounted))


def test_more_failures_than_examples_are_counted_exactly(bench: Bench) -> None:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["position"] % 3 == 0:
            raise KeyError("every third")
        if row["position"] % 7 == 0:
            raise ValueError(f"every seventh: {row['position']}")
        return row

    count = 400
    bench.add(*[("ab"[n % 2], n, "x") for n in range(count)])
    bench.start(bench.checking(check, LogAndContinue()), errors_examples_limit=20)
    bench.wait_for_input()
    bench.stop()

    bad = [n for n in range(count) if n % 3 == 0 or n % 7 == 0]
    assert failed_in_all(bench) == len(bad)
    assert len(bench.outbox.of(RecordFailed)) == 40
    assert len(bench.written()) == count - len(bad)
    assert sorted(each["position"] for each in bench.dead_letters()) == bad
    assert sum(each.count for each in bench.outbox.of(RecordsDeadLettered)) == len(bad)
    causes = {each.failure.fingerprint for each in bench.outbox.of(FailuresCounted)}
    assert len(causes) == 2
    assert not any(each.estimated for each in bench.outbox.of(FailuresCounted))


def test_native_failures_are_counted_exactly_and_their_split_is_an_estimate(
    bench: Bench,
) -> None:
    count = 200
    # NA is no number, and one field is no pair.
    texts = ["1,2", "NA,3", "7", "4,5"]
    bench.add(*[("a", n, texts[n % 4]) for n in range(count)])
    pipeline = (
        bench.define()
        .deserialize("pair", F.from_csv("value", "x INT, y INT"), on_error=LogAndContinue())
        .write(sink_to(bench.folder / "out"))
    )
    bench.start(pipeline, errors_examples_limit=10)
    bench.wait_for_input()
    bench.stop()

    assert failed_in_all(bench) == count // 2
    assert len(bench.written()) == count // 2
    dead_letters = bench.dead_letters()
    assert len(dead_letters) == count // 2
    assert sum(each["exception_class"] is not None for each in dead_letters) == 10
    assert all(each.estimated for each in bench.outbox.of(FailuresCounted))
    [failed, *_] = bench.outbox.of(RecordFailed)
    assert failed.failure.stage == "deserialize"
    assert failed.failure.condition == "MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION"
    # The reason comes first, without Spark's advice to choose a mode that is refused.
    cause, *more = failed.failure.message.splitlines()
    assert cause == 'java.lang.NumberFormatException: For input string: "NA"'
    assert more and "PERMISSIVE" not in failed.failure.message


def test_rows_in_are_rows_written_dead_lettered_and_held(bench: Bench) -> None:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == "stop":
            raise ValueError("stop")
        return row

    bench.add(
        *[("a", n, "NA" if n % 5 == 0 else "stop" if n == 33 else str(n)) for n in range(60)],
        *[("b", n, "NA" if n % 2 == 0 else str(n)) for n in range(40)],
    )
    parse = F.when(F.col("value") != "stop", F.col("value").cast("int"))
    pipeline = (
        bench.define()
        .deserialize("number", parse, on_error=LogAndContinue())
        .process("check", check, on_error=LogAndPause())
        .write(sink_to(bench.folder / "out"))
    )
    thread = bench.start(pipeline)
    bench.wait_for_input()
    bench.add(*[("a", n, "1") for n in range(60, 70)])
    bench.wait_for_input()

    [paused] = thread.paused_tasks()
    assert (paused.position, paused.held) == (33, 37)
    bench.stop()
    assert len(bench.written()) + len(bench.dead_letters()) + paused.held == 110
    # Of `a` only records before the pause are decided.
    assert failed_in_all(bench) == 7 + 20 + 1


def test_the_seven_counters_of_one_task(bench: Bench) -> None:
    """KIP-298: a task that retries, skips, logs, and finally writes a dead letter."""
    bench.start(
        bench.checking(flaky(bench.folder / "tries"), LogAndContinue()),
        errors_retries_limit=2,
        errors_retries_delay_max_ms=1,
        errors_log_enable=True,
        default_production_exception_handler="arrester.agents.handlers.LogAndContinue",
    )
    bench.block_dead_letters()
    bench.add(("a", 0, "never"), ("a", 1, "1"), ("a", 2, "x"), ("b", 0, "x"))
    wait_until(lambda: sorted(bench.written()) == [("a", 1), ("a", 2), ("b", 0)])
    (bench.folder / "dlq").unlink()
    bench.add(("a", 3, "never"))
    wait_until(lambda: len(bench.dead_letters()) == 2)
    # Dead letters are visible before the micro-batch that reports them is committed.
    bench.wait_for_input()
    bench.stop()

    failures = [each for each in bench.outbox.events if isinstance(each.data, RecordFailed)]
    [task] = [each for each in server_state(bench.outbox.events).tasks.values() if each.failed]
    assert task.id.key == "a"
    assert task.counters == Counters(
        record_failures=3 + 1 + 3,
        records_skipped=2,
        total_retries=2 + 1 + 2,
        failures_logged=2,
        dlq_records_produced=2,
        dlq_produce_failures=1,
        last_failure_timestamp=max(each.occurred_at for each in failures),
    )


def test_a_batch_without_failures_writes_nothing(bench: Bench) -> None:
    bench.add(("a", 0, "x"))
    bench.start(bench.checking(lambda row: row))
    bench.wait_for_input()
    wait_until(lambda: bench.written() == [("a", 0)])
    entries = sorted((bench.folder / "checkpoint/arrester/journal").iterdir())
    assert [each.name for each in entries] == [f"{1:020d}.json"]
    assert not (bench.folder / "checkpoint/arrester/held").exists()


def test_a_step_may_return_none_or_several_rows(bench: Bench) -> None:
    def split(row: dict[str, Any]) -> Any:
        if row["value"] == "none":
            return None
        return ({**row, "value": each} for each in row["value"].split())

    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == "bad":
            raise ValueError("bad")
        return row

    bench.add(("a", 0, "p q"), ("a", 1, "none"), ("a", 2, "r bad s"), ("a", 3, "t"))
    pipeline = (
        bench.define()
        .process("split", split)
        .process("check", check, on_error=LogAndContinue())
        .write(sink_to(bench.folder / "out"))
    )
    bench.start(pipeline)
    bench.wait_for_input()

    bench.stop()
    # A record passes as a whole: no row of the third one is written.
    assert bench.positions("a") == [0, 0, 3]
    assert failed_in_all(bench) == 1
