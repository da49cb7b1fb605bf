"""A pipeline over a static DataFrame: the same decisions, one pass, then idle."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import structs

from arrester import Agent, Ending
from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline, PipelineInvalid
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.agents.journal.entries import EntryKind
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.storage import CheckpointUnusable
from arrester.agents.run.thread import PipelineThread
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.events import RecordFailed, ResumeHow, ThreadStarted
from arrester.domain.state.states import TaskStatus
from arrester.domain.wire.sealed_fields import unseal
from tests.agents.pipeline_bench import SCHEMA, Bench, sink_to
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.services import REPOSITORY

pytestmark = pytest.mark.spark

Row = dict[str, Any]
ROWS = [("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"), ("b", 0, "skip"), ("b", 1, "x")]


def checking(bench: Bench, *, runner: Agent | None = None, repaired: str = "") -> Pipeline:
    """Return a pipeline over all added records that pauses at `bad` and skips `skip`."""

    def skip(row: Row) -> Row:
        if row["value"] == "skip":
            raise ValueError("skip")
        return row

    def check(row: Row) -> Row:
        import os

        if row["value"] == "bad" and not os.path.exists(repaired):
            raise ValueError("bad")
        return row

    source = bench.spark.read.schema(SCHEMA).json(str(bench.folder / "in"))
    return (
        define("lines", source, task="task", position="position", value="value", runner=runner)
        .process("skip", skip, on_error=LogAndContinue())
        .process("check", check, on_error=LogAndPause())
        .write(sink_to(bench.folder / "out"))
    )


def started(bench: Bench, pipeline: Pipeline, **more: Any) -> PipelineThread:
    thread = bench.start(pipeline, **more)
    wait_until(lambda: thread.is_idle or not thread.is_running, what="rest")
    return thread


def test_the_server_can_reveal_the_masked_fields_of_a_failed_record(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add(("a", 0, "bad"))
    seed = bytes(range(32))
    key = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    config = bench.config(errors_redact="value")
    errors = structs.replace(config.errors, reveal=True)
    config = replace(config, server_keys=(key,), errors=errors)
    monkeypatch.setattr(bench, "config", lambda: config)
    started(bench, checking(bench))
    [event] = [each for each in bench.outbox.events if isinstance(each.data, RecordFailed)]
    assert event.body is not None and event.body.sealed is not None
    assert "value" not in (event.body.record or {})
    found = unseal(event.body.sealed, application=config.application, seed=seed)
    assert [(each.path, each.value) for each in found.fields] == [("value", "bad")]


def test_a_static_source_is_read_once_and_held_records_wait_for_commands(bench: Bench) -> None:
    bench.add(*ROWS)
    thread = started(bench, checking(bench, repaired=str(bench.folder / "repaired")))

    assert sorted(bench.written()) == [("a", 0), ("b", 1)]
    assert [task.position for task in thread.paused_tasks()] == [1]
    assert {dead_letter["task"] for dead_letter in bench.dead_letters()} == {"b"}
    assert len(bench.outbox.of(RecordFailed)) == 2
    assert thread.is_running

    (bench.folder / "repaired").touch()
    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    wait_until(lambda: bool(bench.ends))
    assert bench.ends[0].finished
    assert bench.positions("a") == [0, 1, 2]


def test_a_rerun_does_not_read_the_source_again_and_continues_with_held_records(
    bench: Bench,
) -> None:
    bench.add(*ROWS)
    started(bench, checking(bench))
    bench.stop()
    before = bench.written()

    again = started(bench, checking(bench))
    assert (bench.written(), [task.position for task in again.paused_tasks()]) == (before, [1])
    bench.stop()

    (bench.folder / "repaired").touch()
    repaired = checking(bench, repaired=str(bench.folder / "repaired"))
    thread = started(bench, repaired, instance=uuid4())
    wait_until(lambda: not thread.is_running)
    assert bench.ends[-1].finished
    assert bench.positions("a") == [0, 1, 2]
    assert len(bench.written()) == len(before) + 2

    last = started(bench, repaired)
    wait_until(lambda: not last.is_running)
    assert len(bench.written()) == len(before) + 2


def test_a_rerun_after_a_crash_obeys_earlier_decisions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add(*ROWS)
    append = Journal.append

    class Killed(BaseException):
        pass

    def dying(self: Journal, entry: Any) -> Any:
        made = append(self, entry)
        if entry.kind is EntryKind.BATCH:
            raise Killed
        return made

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", dying)
        thread = bench.start(checking(bench))
        wait_until(lambda: not thread.is_running)
    assert bench.written() == []

    (bench.folder / "repaired").touch()
    same = checking(bench, repaired=str(bench.folder / "repaired"))
    again = started(bench, same, instance=thread._claimed.event_factory.instance)
    assert sorted(bench.written()) == [("a", 0), ("b", 1)]
    assert [task.status for task in again.paused_tasks()] == [TaskStatus.PAUSED]
    assert len(bench.outbox.of(RecordFailed)) == 2


def test_an_agent_waits_for_the_pass_and_not_for_commands(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    bench.add(*ROWS)
    with Agent(bench.spark, application="tests") as agent:
        checking(bench, runner=agent).run(bench.checkpoint)
        assert agent.await_termination(PATIENCE_SECONDS) is Ending.FINISHED
        [task] = agent.paused_tasks()
        assert agent.is_running
        assert not agent.resume_at(task, 0, reason="before it")
        assert not agent.resume_at(task, 9, reason="beyond")
        assert agent.resume_at(task, 2, reason="a bad row", actor="ana")
        assert agent.await_termination(PATIENCE_SECONDS) is Ending.FINISHED
        wait_until(lambda: not agent._runtime.registry.running())
    assert bench.positions("a") == [0, 2]


def lose_held_records(bench: Bench) -> None:
    folder = Path(bench.checkpoint) / "arrester" / "held"
    shutil.rmtree(folder)
    folder.touch()


def test_a_failed_command_ends_an_idle_run(bench: Bench) -> None:
    bench.add(*ROWS)
    thread = started(bench, checking(bench))
    lose_held_records(bench)

    answer = thread.apply(TaskCommand("a", how=ResumeHow.AT, target=2, reason="a bad row"))
    assert not answer.applied
    assert answer.reason.startswith("lines ends: ")
    wait_until(lambda: bool(bench.ends))
    assert not bench.ends[0].finished
    assert not thread.is_running


def test_a_skipped_record_that_is_lost_ends_the_run(bench: Bench) -> None:
    bench.add(*ROWS)
    thread = started(bench, checking(bench))
    lose_held_records(bench)

    assert thread.apply(TaskCommand("a", how=ResumeHow.SKIP, reason="a bad row")).applied
    wait_until(lambda: bool(bench.ends))
    assert not bench.ends[0].finished
    assert bench.ends[0].failure is not None


def test_streams_and_static_sources_have_separate_starts_and_checkpoints(bench: Bench) -> None:
    bench.add(("b", 1, "x"))
    static, stream = checking(bench), bench.checking(lambda row: row)
    with pytest.raises(PipelineInvalid, match="a static source: run"):
        static.start(bench.checkpoint)
    with pytest.raises(PipelineInvalid, match="a stream as its source: start"):
        stream.run(bench.checkpoint)
    done = started(bench, static)
    wait_until(lambda: not done.is_running)
    with pytest.raises(CheckpointUnusable, match="checkpoint of a static source"):
        bench.start(stream)
    bench.threads.pop()
    other = str(bench.folder / "other")
    (Path(other) / "offsets").mkdir(parents=True)
    bench.checkpoint = other
    with pytest.raises(CheckpointUnusable, match="checkpoint of a stream"):
        bench.start(static)
    bench.threads.pop()
    assert len(bench.outbox.of(ThreadStarted)) == 1


def test_the_how_to_for_static_data_works_as_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    delays = {"JFK": ["3", "1301", "4", "5"], "EWR": ["7", "NA", "8"]}
    (bench.folder / "flights").mkdir()
    rows = [
        {"origin": origin, "position": position, "delay": delay}
        for origin, some in delays.items()
        for position, delay in enumerate(some)
    ]
    (bench.folder / "flights" / "all.json").write_text("\n".join(map(json.dumps, rows)))
    page = REPOSITORY / "docs" / "how-to" / "run-over-static-data.md"
    [example] = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    # As in a script: its functions travel to executors by value.
    given = {"__name__": "__main__", "spark": bench.spark, "data": str(bench.folder)}

    exec(compile(example, str(page), "exec"), given)

    assert given["ending"] is Ending.FINISHED
    assert given["waiting"] == [("JFK", 1, 3)]
    written = bench.spark.read.parquet(str(bench.folder / "delays")).collect()
    assert sorted((row["origin"], row["position"]) for row in written) == [
        ("EWR", 0),
        ("EWR", 2),
        ("JFK", 0),
        ("JFK", 2),
        ("JFK", 3),
    ]
    dead_letters = {(row["task"], row["position"], row["reason"]) for row in bench.dead_letters()}
    assert dead_letters == {("EWR", 1, None), ("JFK", 1, "a typing error")}
