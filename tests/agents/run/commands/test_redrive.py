"""Dead letters that are processed once more: mended or not, in order, exactly once."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents import Agent
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.runtime.redrive_result import Redriven
from arrester.agents.runtime.thread_protocol import RedriveCommand, TaskCommand
from arrester.domain.commands.kinds import TaskAct
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    ChosenDeadLetters,
    CommandApplied,
    CommandRefused,
    RecordFailed,
    RecordsDeadLettered,
    RecordsHeld,
    RecordsRedriven,
    ResumeHow,
)
from arrester.domain.wire import dead_letter_columns
from tests.agents.pipeline_bench import (
    APPLICATION,
    Bench,
    read_sink,
    server_state,
    sink_to,
    write_batch,
)
from tests.agents.run.test_pause_and_resume import refusing_bad
from tests.patience import wait_until
from tests.services import REPOSITORY

pytestmark = pytest.mark.spark

ROWS = [("a", 0, "x"), ("a", 1, "bad"), ("b", 0, "bad"), ("a", 2, "bad"), ("a", 3, "x")]


@pytest.fixture
def repaired(bench: Bench) -> Path:
    return bench.folder / "repaired"


def dead_letters(bench: Bench) -> DataFrame:
    """Return all complete dead letters, as the docs read them."""
    folder = bench.folder / "dlq"
    complete = [str(mark.parent) for mark in folder.glob("day=*/*/_SUCCESS")]
    return bench.spark.read.option("basePath", str(folder)).parquet(*complete)


def skipped(bench: Bench, repaired: Path, *rows: tuple[str, int, str], **keys: Any) -> Any:
    """Return a running thread that has dead-lettered the bad ones of some rows."""
    thread = bench.start(bench.checking(refusing_bad(repaired), LogAndContinue()), **keys)
    bench.add(*(rows or ROWS))
    bench.wait_for_input()
    return thread


def redrive(thread: Any, frame: DataFrame) -> Redriven:
    result: Redriven = thread.redrive(frame, actor="ana", reason="mended")
    return result


def mended(frame: DataFrame, value: str = "good") -> DataFrame:
    return frame.withColumn("row", F.regexp_replace("row", '"bad"', f'"{value}"'))


REDRIVE = UUID(int=9)


def command(bench: Bench, ids: Sequence[str] | None = None, *, patch: Any = None) -> RedriveCommand:
    """Return a command of the server for some dead letters, or for all."""
    known = bench.dead_letters()
    times = [each["at"].astimezone() for each in known]
    chosen = sorted({each["id"] for each in known}) if ids is None else ids
    dead_letters = ChosenDeadLetters(
        ids=b"".join(map(bytes.fromhex, chosen)),
        since=min(times),
        until=max(times),
        patch=None if patch is None else json.dumps(patch),
    )
    return RedriveCommand(
        dead_letters=dead_letters,
        redrive=REDRIVE,
        command=uuid4(),
        actor="ana",
        reason="mended",
    )


def mend(*tests: Any) -> list[Any]:
    return [*tests, {"op": "replace", "path": "/value", "value": "good"}]


def test_a_command_redrives_dead_letters_from_their_destination(
    bench: Bench, repaired: Path
) -> None:
    thread = skipped(bench, repaired)
    unknown = "0" * 32
    ids = [*sorted({each["id"] for each in bench.dead_letters()}), unknown]
    wanted = command(bench, ids, patch=mend({"op": "test", "path": "/position", "value": 1}))

    answer: CommandAnswer = thread.apply(wanted)

    assert answer.applied
    assert answer.reason.startswith("1 of 4 redriven; 2 invalid, such as ")
    assert answer.reason.endswith("; 1 not found at the destination")
    wait_until(lambda: bench.positions("a") == [0, 3, 1], what="the redriven record")
    assert thread.apply(wanted) == answer

    answer = thread.apply(command(bench, patch=mend()))

    assert answer.reason == "2 of 3 redriven; 1 taken by an earlier redrive"
    wait_until(lambda: len(bench.written()) == 5, what="all records")
    assert bench.positions("a") == [0, 3, 1, 2]
    refused = thread.apply(command(bench))
    assert (refused.applied, refused.reason) == (
        False,
        "0 of 3 redriven; 3 taken by an earlier redrive",
    )
    bench.stop()
    assert [each.redrive for each in bench.outbox.of(RecordsRedriven)] == [REDRIVE] * 3
    assert len(bench.outbox.of(CommandApplied)) == 2
    assert len(bench.outbox.of(CommandRefused)) == 1


def test_a_command_that_cannot_be_carried_out_is_refused(bench: Bench, repaired: Path) -> None:
    thread = skipped(bench, repaired)
    folder = bench.folder / "dlq"
    wanted = command(bench)
    hidden = folder.rename(bench.folder / "moved")

    gone = thread.apply(wanted)
    none = thread.apply(replace(wanted, dead_letters=None, command=uuid4()))

    assert gone.reason == "0 of 3 redriven; 3 not found at the destination"
    assert "those of a redrive in progress" in none.reason
    hidden.rename(folder)
    for file in folder.glob("day=*/*/part-*"):
        file.write_bytes(b"damaged")
    damaged = thread.apply(replace(wanted, command=uuid4()))
    assert not damaged.applied
    assert "3 not found at the destination; " in damaged.reason
    assert "cannot be read: " in damaged.reason
    assert thread.is_running
    bench.stop()
    assert len(bench.outbox.of(CommandRefused)) == 3


def test_mended_dead_letters_are_processed_once_in_order(bench: Bench, repaired: Path) -> None:
    thread = skipped(bench, repaired)
    assert bench.positions("a") == [0, 3]

    found = redrive(thread, mended(dead_letters(bench)))

    assert (found.redriven, found.taken_before, found.invalid) == (3, 0, 0)
    wait_until(lambda: len(bench.written()) == 5, what="the redriven records")
    # The same dead letters again: nothing happens.
    again = redrive(thread, dead_letters(bench))
    assert (again.redriven, again.taken_before) == (0, 3)
    bench.add(("a", 4, "x"))
    bench.wait_for_input()
    assert bench.positions("a") == [0, 3, 1, 2, 4]
    assert bench.positions("b") == [0]
    bench.stop()
    reported = {each.task: each for each in bench.outbox.of(RecordsRedriven)}
    assert {key: each.count for key, each in reported.items()} == {"a": 2, "b": 1}
    assert (reported["a"].first_position, reported["a"].last_position) == (1, 2)
    assert (reported["a"].actor, reported["a"].reason) == ("ana", "mended")
    events = [each for each in bench.outbox.events if isinstance(each.data, RecordsRedriven)]
    ids = [
        id.hex()
        for each in events
        if isinstance(each.data, RecordsRedriven) and each.run is not None
        for id in dead_letter_columns.redriven_ids(APPLICATION, each.run, each.data)
    ]
    assert sorted(ids) == sorted(each["id"] for each in bench.dead_letters())
    tasks = server_state(bench.outbox.events).tasks.values()
    assert [task.held for task in tasks] == [0, 0]


def test_a_record_that_fails_again_is_a_newer_dead_letter(bench: Bench, repaired: Path) -> None:
    thread = skipped(bench, repaired)
    assert redrive(thread, dead_letters(bench)).redriven == 3
    wait_until(lambda: len(bench.dead_letters()) == 6, what="newer dead letters")
    by_id: dict[str, list[Any]] = {}
    for each in bench.dead_letters():
        by_id.setdefault(each["id"], []).append(each["at"])
    assert [len(set(times)) for times in by_id.values()] == [2, 2, 2]
    repaired.touch()

    # All of them: the newest of each record counts.
    found = redrive(thread, dead_letters(bench))

    assert (found.redriven, found.taken_before) == (3, 0)
    wait_until(lambda: len(bench.written()) == 5, what="the redriven records")
    bench.stop()
    assert sorted(bench.written()) == sorted((task, position) for task, position, _ in ROWS)
    assert len(bench.dead_letters()) == 6
    assert sum(each.count for each in bench.outbox.of(RecordsDeadLettered)) == 6


@pytest.mark.long
def test_a_redriven_record_may_stop_its_task(bench: Bench, repaired: Path) -> None:
    thread = skipped(bench, repaired)
    bench.stop()
    thread = bench.start(bench.checking(refusing_bad(repaired), LogAndPause()))

    assert redrive(thread, dead_letters(bench)).redriven == 3

    wait_until(lambda: len(thread.paused_tasks()) == 2, what="both tasks PAUSED")
    bench.add(("a", 4, "x"), ("c", 0, "x"))
    bench.wait_for_input()
    assert bench.positions("a") == [0, 3]
    assert {state.id.key: (state.position, state.held) for state in thread.paused_tasks()} == {
        "a": (1, 3),
        "b": (0, 1),
    }
    repaired.touch()
    for key in "ab":
        assert thread.apply(TaskCommand(key, how=ResumeHow.RETRY)).applied
    wait_until(lambda: bench.positions("a") == [0, 3, 1, 2, 4], what="held rows")
    wait_until(lambda: bench.positions("b") == [0])
    assert len(bench.outbox.of(RecordFailed)) == 5


@pytest.mark.parametrize(
    "moment", ["", *(pytest.param(each, marks=pytest.mark.long) for each in ("before", "after"))]
)
def test_a_redriven_record_is_reported_as_processed_while_its_task_holds_others(
    bench: Bench, repaired: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the run is killed before or after the entry that reports it."""
    thread = skipped(bench, repaired)
    bench.stop()
    thread = bench.start(bench.checking(refusing_bad(repaired), LogAndPause()))
    append, ended = Journal.append, list[bool]()

    def ends(self: Journal, entry: Any) -> Any:
        if entry.kind != "drained" or ended or not moment:
            return append(self, entry)
        ended.append(True)
        if moment == "after":
            append(self, entry)
        raise OSError("killed")

    # The first of two redriven records passes, and the task stops at the second one.
    good = F.when(F.col("position") == 1, F.regexp_replace("row", '"bad"', '"good"'))
    frame = dead_letters(bench).where("task = 'a'").withColumn("row", F.coalesce(good, "row"))
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", ends)
        assert redrive(thread, frame).redriven == 2
        if moment:
            wait_until(lambda: bool(bench.ends), what="the end of the run")
    if moment:
        thread = bench.start(bench.checking(refusing_bad(repaired), LogAndPause()))
    wait_until(lambda: [each.held for each in thread.paused_tasks()] == [1], what="the stop")
    wait_until(lambda: bool(processed(bench)), what="the report")

    # A retry that fails again reports the same once more.
    assert set(processed(bench)) == {("a", 1, 1)}
    assert bench.positions("a") == [0, 3, 1]
    repaired.touch()
    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    wait_until(lambda: bench.positions("a") == [0, 3, 1, 2], what="held rows")
    bench.stop()
    [*_, last] = bench.outbox.of(RecordsHeld)
    assert (last.task, last.held) == ("a", 0)


def processed(bench: Bench) -> list[tuple[str | None, int, int]]:
    """Return the reports of processed records, each with the number that is still held."""
    held = bench.outbox.of(RecordsHeld)
    return [
        (each.task, each.held, each.processed_until)
        for each in held
        if each.held and each.processed_until is not None
    ]


def test_redriven_records_of_a_paused_task_wait(bench: Bench, repaired: Path) -> None:
    thread = skipped(bench, repaired)
    assert thread.apply(TaskCommand("a", how=TaskAct.PAUSE, actor="ana")).applied
    bench.add(("a", 4, "x"))
    bench.wait_for_input()

    assert redrive(thread, mended(dead_letters(bench))).redriven == 3

    wait_until(lambda: bench.positions("b") == [0], what="the running task")
    assert bench.positions("a") == [0, 3]
    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    # Behind the records that it held before.
    wait_until(lambda: bench.positions("a") == [0, 3, 4, 1, 2], what="held rows")


def test_what_does_not_fit_is_named_and_the_rest_goes_on(bench: Bench, repaired: Path) -> None:
    thread = skipped(bench, repaired)
    wrong = F.when(F.col("task") == "b", F.regexp_replace("row", '"value"', '"val"'))

    found = redrive(thread, dead_letters(bench).withColumn("row", F.coalesce(wrong, "row")))

    assert (found.redriven, found.invalid) == (2, 1)
    [example] = found.examples
    assert example.problem == "value is missing, val is not a field of the source"
    assert example.id in {each["id"] for each in bench.dead_letters() if each["task"] == "b"}
    # It is not taken: a correct one is, later.
    assert redrive(thread, dead_letters(bench)).redriven >= 1


def test_other_frames_are_refused(bench: Bench, repaired: Path) -> None:
    thread = skipped(bench, repaired)
    frame = dead_letters(bench)
    for other, message in (
        (frame.drop("row"), "without row"),
        (frame.withColumn("checkpoint", F.lit("another")), "3 of another"),
        (frame.withColumn("id", F.lit(None)), "with an id"),
        (frame.withColumn("at", F.lit(None)), "some without a time"),
    ):
        with pytest.raises(InvalidValue, match=message):
            redrive(thread, other)
    assert thread.is_running
    assert bench.outbox.of(RecordsRedriven) == []


def test_a_limit_of_held_records_refuses_a_redrive(bench: Bench, repaired: Path) -> None:
    thread = skipped(bench, repaired, held_records_limit=2)
    with pytest.raises(InvalidValue, match=r"held\.records\.limit"):
        redrive(thread, dead_letters(bench))
    assert thread.is_running
    assert list((Path(bench.checkpoint) / "arrester" / "held").glob("*")) == []
    assert redrive(thread, dead_letters(bench).where("task = 'b'")).redriven == 1


@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=pytest.mark.long)])
def test_a_run_that_ends_around_its_entry_redrives_once(
    bench: Bench, repaired: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = skipped(bench, repaired)
    append = Journal.append

    def ends(self: Journal, entry: Any) -> Any:
        if entry.kind == "redrive":
            if moment == "after":
                append(self, entry)
            raise OSError("the disk is gone")
        return append(self, entry)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", ends)
        with pytest.raises(OSError, match="gone"):
            redrive(thread, mended(dead_letters(bench)))
        wait_until(lambda: bool(bench.ends), what="the end of the run")
    thread = bench.start(bench.checking(refusing_bad(repaired), LogAndContinue()))

    found = redrive(thread, mended(dead_letters(bench)))

    assert (found.redriven, found.taken_before) == ((3, 0) if moment == "before" else (0, 3))
    wait_until(lambda: len(bench.written()) >= 5, what="the redriven records")
    bench.stop()
    assert sorted(bench.written()) == sorted((task, position) for task, position, _ in ROWS)
    assert len({json.dumps(row) for row in map(list, bench.written())}) == 5


def test_a_redrive_that_cannot_be_saved_does_not_end_the_run(
    bench: Bench, repaired: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = skipped(bench, repaired)

    def full(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(HeldStore, "save_again", full)
        with pytest.raises(OSError, match="full"):
            redrive(thread, mended(dead_letters(bench)))
    bench.add(("a", 4, "x"))
    bench.wait_for_input()
    assert bench.positions("a") == [0, 3, 4]
    assert redrive(thread, mended(dead_letters(bench))).redriven == 3
    assert bench.ends == []


@pytest.mark.long
def test_a_repeated_micro_batch_is_not_held_by_a_later_redrive(
    bench: Bench, repaired: Path
) -> None:
    thread = skipped(bench, repaired)
    bench.add(("a", 4, "x"), ("b", 1, "x"))
    bench.wait_for_input()
    assert thread.apply(TaskCommand("b", how=TaskAct.PAUSE, actor="ana")).applied
    assert redrive(thread, mended(dead_letters(bench))).redriven == 3
    bench.stop()
    # As after a kill between the sink and Spark's commit: the redrive came in between.
    bench.uncommit(1)
    thread = bench.start(bench.checking(refusing_bad(repaired), LogAndContinue()))
    wait_until(lambda: bench.committed() == 1, what="the repeated micro-batch")
    assert thread.apply(TaskCommand("b", how=ResumeHow.RETRY)).applied
    wait_until(lambda: not any(state.held for state in thread.tasks()), what="nothing is held")
    bench.add(("a", 5, "x"))
    bench.wait_for_input()
    bench.stop()
    assert bench.positions("a") == [0, 3, 4, 1, 2, 5]
    assert bench.positions("b") == [1, 0]


def test_the_code_of_the_how_to(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "redrive-dead-letters.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    schema = "origin STRING, number LONG, dep_delay STRING"
    rows = [
        {"origin": "JFK", "number": 1, "dep_delay": "2"},
        {"origin": "JFK", "number": 2, "dep_delay": "NA"},
    ]
    write_batch(bench.folder / "in", 1, rows)
    source = bench.spark.readStream.schema(schema).json(str(bench.folder / "in"))
    folder = str(bench.folder / "dlq")
    errors = {"errors.dlq.enable": True, "errors.dlq.path": folder}
    with Agent(bench.spark, application="flights", errors=errors) as agent:
        pipeline = agent.pipeline("delays", source, task="origin", position="number")
        delay = F.col("dep_delay").cast("int")
        parsed = pipeline.deserialize("delay", delay, on_error=LogAndContinue())
        parsed.write(sink_to(bench.folder / "out")).start(bench.checkpoint)
        wait_until(lambda: len(bench.dead_letters()) == 1, what="the dead letter")
        code = code.replace('"/data/dlq"', repr(folder))
        exec(code, {"spark": bench.spark, "agent": agent})
        assert "1 redriven, 0 before, 0 invalid" in capsys.readouterr().out
        wait_until(lambda: len(read_sink(bench.folder / "out")) == 2, what="the mended record")
    assert [(row["number"], row.get("delay")) for _, row in read_sink(bench.folder / "out")] == [
        (1, 2),
        (2, None),
    ]


def test_a_run_without_other_work_waits_for_a_beginning_redrive(
    bench: Bench, repaired: Path
) -> None:
    skipped(bench, repaired)
    bench.stop()
    go_on = bench.folder / "go on"

    def wait(row: str) -> str:
        while not go_on.exists():
            time.sleep(0.05)
        return row

    frame = mended(dead_letters(bench)).withColumn("row", F.udf(lambda row: wait(row))("row"))
    thread = bench.thread(bench.checking(refusing_bad(repaired), LogAndContinue()))
    thread.start(bench.checkpoint, trigger={"availableNow": True})
    with ThreadPoolExecutor() as pool:
        redriven = pool.submit(redrive, thread, frame)
        wait_until(lambda: not bench.spark.streams.active, what="the end of the query")
        # Several looks of a run that has nothing else to do.
        time.sleep(0.5)
        assert thread.is_running
        go_on.touch()
        assert redriven.result().redriven == 3
    wait_until(lambda: not thread.is_running, what="the end of the run")
    assert bench.positions("a") == [0, 3, 1, 2]
    assert bench.positions("b") == [0]
    assert [end.finished for end in bench.ends] == [True]
