"""A checkpoint belongs to one pipeline of one application, unless another one adopts it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from arrester import Agent, Ending
from arrester.agents.definition.builder import define
from arrester.agents.handlers import LogAndPause
from arrester.agents.journal.entries import Entry, EntryKind, HeldCount
from arrester.agents.journal.fencing import claim
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.storage import CheckpointUnusable, LocalStorage
from arrester.domain.events import (
    Event,
    EventData,
    Failure,
    FinalResponse,
    PolicyChanged,
    RecordFailed,
    RecordsHeld,
    Run,
    TaskPaused,
    ThreadStarted,
)
from arrester.domain.state.states import TaskStatus
from tests.agents.pipeline_bench import SCHEMA, Bench, Row, sink_to
from tests.histories import POLICY
from tests.patience import PATIENCE_SECONDS, wait_until

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
CHECKPOINT = "0190-checkpoint"
STAGE = POLICY.stages[0].name
FAILURE = Failure(stage="process:check", exception_class="E", message="no", fingerprint="1")


@pytest.fixture
def files(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def claimed(files: LocalStorage, pipeline: str = "delays", **more: Any) -> Journal:
    given: dict[str, Any] = {"application": "flights", "instance": uuid4()} | more
    journal, _ = claim(
        files, pipeline=pipeline, checkpoint=CHECKPOINT, policy=POLICY, now=NOW, **given
    )
    return journal


def hold(journal: Journal, key: str) -> None:
    """Pause a task at its first record, and override the policy of a stage."""
    run = Run(pipeline=journal.ledger.pipeline, checkpoint=CHECKPOINT, epoch=journal.ledger.epoch)
    failed = RecordFailed(task=key, position=7, failure=FAILURE, response=FinalResponse.PAUSE)
    data: list[EventData] = [
        failed,
        TaskPaused(task=key, position=7, failure=FAILURE),
        RecordsHeld(task=key, held=2),
        PolicyChanged(stage=STAGE, answer="CONTINUE", reason="a test"),
    ]
    journal.append(
        Entry(
            kind=EntryKind.BATCH,
            at=NOW,
            epoch=run.epoch,
            events=tuple(Event(occurred_at=NOW, data=each, run=run) for each in data),
            batch=0,
            row_folder="rows",
            held=(HeldCount(task=key, count=2),),
        )
    )


@pytest.mark.parametrize("names", [("flights", "other"), ("other", "delays")])
def test_a_claim_under_another_name_is_refused_and_leaves_the_owner(
    files: LocalStorage, names: tuple[str, str]
) -> None:
    owner = claimed(files)
    application, pipeline = names
    with pytest.raises(CheckpointUnusable) as caught:
        claimed(files, pipeline, application=application)
    message = str(caught.value)
    assert "is the checkpoint of pipeline 'delays' of application 'flights', not of" in message
    assert f"pipeline '{pipeline}' of application '{application}'" in message
    assert "adopt=True" in message
    owner.check_owned()


@pytest.mark.parametrize("compacted", [False, True])
def test_adoption_renames_tasks_held_records_and_overrides(
    files: LocalStorage, compacted: bool
) -> None:
    first = claimed(files)
    hold(first, "JFK")
    if compacted:
        first.compact(is_settled=lambda entry: True, is_needed=lambda saved: True)
    adopted = claimed(files, "arrivals", application="airport", adopt=True)

    for journal in (adopted, claimed(files, "arrivals", application="airport")):
        [task] = journal.ledger.tasks.values()
        assert (task.state.id.application, task.state.id.printed) == ("airport", "arrivals_JFK")
        assert journal.ledger.task("JFK") is task
        assert task.held == 2
        assert [saved.name for saved, _ in journal.ledger.held_rows(["JFK"])["JFK"]] == ["rows"]
        assert journal.ledger.overrides[STAGE].answer == "CONTINUE"
    with pytest.raises(CheckpointUnusable, match="pipeline 'arrivals' of application 'airport'"):
        claimed(files)


def test_entries_of_before_a_renaming_keep_their_batch_ids(files: LocalStorage) -> None:
    first = claimed(files)
    hold(first, "JFK")
    ids = [id for number in (1, 2) for id, _ in first.event_batches(number)]
    renamed = claimed(files, "arrivals", adopt=True)
    assert [id for number in (1, 2) for id, _ in renamed.event_batches(number)] == ids


def pausing(bench: Bench, name: str = "lines", *, static: bool = False, runner: Any = None) -> Any:
    def check(row: Row) -> Row:
        if row["value"] == "bad":
            raise ValueError("bad")
        return row

    folder = str(bench.folder / "in")
    source = bench.spark.read.schema(SCHEMA).json(folder) if static else bench.source()
    return (
        define(name, source, task="task", position="position", runner=runner)
        .process("check", check, on_error=LogAndPause())
        .write(sink_to(bench.folder / "out"))
    )


@pytest.mark.spark
def test_a_second_pipeline_at_a_checkpoint_does_not_disturb_the_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    bench.add(("a", 0, "x"), ("a", 1, "bad"))
    with Agent(bench.spark, application="tests") as agent:
        pausing(bench, runner=agent).start(bench.checkpoint)
        bench.wait_for_input()
        with pytest.raises(CheckpointUnusable, match=r"of pipeline 'lines' .* not of pipeline 'o"):
            pausing(bench, "other", runner=agent).start(bench.checkpoint)
        bench.add(("b", 0, "x"))
        bench.wait_for_input()
        assert bench.written() == [("a", 0), ("b", 0)]
        assert [task.position for task in agent.paused_tasks()] == [1]


@pytest.mark.spark
def test_a_renamed_pipeline_continues_with_its_held_records(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"))
    for application, name in (("tests", "lines"), ("others", "arrivals")):
        with Agent(bench.spark, application=application) as agent:
            pausing(bench, name, static=True, runner=agent).run(
                bench.checkpoint, adopt=name == "arrivals"
            )
            assert agent.await_termination(PATIENCE_SECONDS) is not Ending.FAILED
            [task] = agent.paused_tasks()
            assert (task.id.application, task.id.pipeline) == (application, name)
            assert (task.position, task.held, task.status) == (1, 2, TaskStatus.PAUSED)
            if name == "arrivals":
                assert agent.skip(task, reason="a typing error")
                agent.await_termination(PATIENCE_SECONDS)
    assert bench.positions("a") == [0, 2]


def plain_query(bench: Bench) -> None:
    """Process the input by a Spark query without an agent."""
    query = (
        bench.source()
        .writeStream.option("checkpointLocation", bench.checkpoint)
        .foreachBatch(sink_to(bench.folder / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def lost_journal(bench: Bench) -> None:
    """Process the input by a pipeline, and delete its folder."""
    bench.start(pausing(bench))
    bench.wait_for_input()
    bench.stop()
    bench.threads.clear()
    shutil.rmtree(Path(bench.checkpoint) / "arrester")


@pytest.mark.spark
@pytest.mark.parametrize("earlier", [plain_query, lost_journal])
def test_micro_batches_of_spark_without_a_journal_are_refused_unless_adopted(
    bench: Bench, earlier: Callable[[Bench], None]
) -> None:
    bench.add(("a", 0, "x"))
    earlier(bench)
    started = len(bench.outbox.of(ThreadStarted))
    with pytest.raises(CheckpointUnusable) as caught:
        bench.start(pausing(bench))
    assert f"{bench.checkpoint} has micro-batches (the last is 0) but no " in str(caught.value)
    assert len(bench.outbox.of(ThreadStarted)) == started
    bench.threads.clear()

    bench.thread(pausing(bench)).start(bench.checkpoint, adopt=True)
    bench.add(("a", 1, "x"))
    bench.wait_for_input()
    assert bench.written() == [("a", 0), ("a", 1)]
    bench.stop()
    again = bench.start(pausing(bench))
    wait_until(lambda: again.is_running)


@pytest.mark.spark
def test_a_run_starts_where_a_driver_was_killed_while_spark_stored_its_first_offsets(
    bench: Bench,
) -> None:
    offsets = Path(bench.checkpoint) / "offsets"
    offsets.mkdir(parents=True)
    draft = f".0.{uuid4()}.tmp"
    for name in (draft, f".{draft}.crc"):
        (offsets / name).write_text("v1")
    bench.add(("a", 0, "x"))
    bench.start(pausing(bench))
    bench.wait_for_input()

    assert (bench.ends, bench.positions("a")) == ([], [0])
