"""One run owns a checkpoint; the older one ends superseded."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from arrester.agents.journal.fencing import claim
from arrester.agents.journal.journal import Superseded
from arrester.agents.journal.storage import CheckpointUnusable, LocalStorage, Storage
from arrester.agents.run.thread import PipelineThread
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.events import ResumeHow, Run, ThreadDied
from arrester.domain.identity.uuids import uuid7
from arrester.domain.state.states import ThreadStatus
from tests.agents.pipeline_bench import APPLICATION, Bench
from tests.histories import POLICY
from tests.patience import wait_until

pytestmark = pytest.mark.spark


def claimed_by_another(files: Storage, thread: PipelineThread) -> Run:
    now = datetime.now(UTC)
    _, run = claim(
        files,
        application=APPLICATION,
        pipeline="lines",
        checkpoint=thread.checkpoint_id,
        instance=uuid7(now),
        policy=POLICY,
        now=now,
    )
    return run


def test_an_older_run_ends_superseded_before_it_writes(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add(("a", 0, "x"))
    thread = bench.start(bench.checking(lambda row: row))
    bench.wait_for_input()
    run = claimed_by_another(LocalStorage(bench.checkpoint), thread)
    bench.add(("a", 1, "x"))

    wait_until(lambda: bool(bench.ends))

    assert run.epoch == thread.epoch + 1
    assert bench.ends[0].superseded
    assert thread.state is ThreadStatus.DEAD
    assert bench.positions("a") == [0]
    [died] = bench.outbox.of(ThreadDied)
    assert died.superseded
    assert f"lines: a newer run than 1 owns {bench.checkpoint}" in caplog.text
    journal = sorted((Path(bench.checkpoint) / "arrester/journal").iterdir())
    assert len(journal) == 2


def test_a_run_on_a_store_that_does_not_fence_does_not_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: object, target: object) -> None:
        raise PermissionError("no hard links")

    monkeypatch.setattr(os, "link", link)
    bench.add(("a", 0, "x"))
    with pytest.raises(CheckpointUnusable) as caught:
        bench.start(bench.checking(lambda row: row))

    assert str(caught.value) == (
        f"the store of checkpoint {bench.checkpoint} cannot keep two drivers apart: it created no "
        "file (no hard links). Mounts of object stores have no hard links; give the checkpoint by "
        "the URL of its store, such as s3a://, abfss:// or gs://."
    )
    assert list(Path(bench.checkpoint).iterdir()) == []


def test_an_idle_older_run_ends_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrester.agents.run.query_loop._OWNED_SECONDS", 0.1)
    thread = bench.start(bench.checking(lambda row: row))
    claimed_by_another(LocalStorage(bench.checkpoint), thread)

    wait_until(lambda: bool(bench.ends))

    assert bench.ends[0].superseded
    assert thread.state is ThreadStatus.DEAD


def test_an_older_run_answers_no_command(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrester.agents.run.query_loop._OWNED_SECONDS", 1_000.0)
    thread = bench.start(bench.checking(lambda row: row))
    claimed_by_another(LocalStorage(bench.checkpoint), thread)
    command = uuid7(datetime.now(UTC))

    with pytest.raises(Superseded):
        thread.apply(TaskCommand("a", how=ResumeHow.RETRY, command=command))

    wait_until(lambda: bool(bench.ends))
    assert bench.ends[0].superseded
    assert thread.answer_to(command) is None


def test_an_earlier_answer_is_readable_during_a_micro_batch(bench: Bench) -> None:
    thread = bench.start(bench.checking(lambda row: row))
    command = uuid7(datetime.now(UTC))
    refused = thread.apply(TaskCommand("a", how=ResumeHow.RETRY, command=command))

    with thread._lock.held():
        known = thread.answer_to(command)

    assert known == refused


def test_the_checkpoint_id_is_that_of_spark(bench: Bench) -> None:
    thread = bench.start(bench.checking(lambda row: row))
    assert thread.checkpoint_id == str(thread._query_loop.query.id)  # type: ignore[attr-defined]  # Spark's query has one
