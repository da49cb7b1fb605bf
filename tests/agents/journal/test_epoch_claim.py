"""One run owns a checkpoint: the older one notices, and ends superseded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from arrester.agents.journal.epoch_claim import claim
from arrester.agents.journal.journal import Superseded
from arrester.agents.journal.storage import LocalStorage
from arrester.agents.run.thread import PipelineThread
from arrester.controlplane.domain.events import ResumeHow, Run, ThreadDied
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.controlplane.domain.state.states import ThreadStatus
from tests.agents.pipeline_bench import APPLICATION, Bench, wait_until
from tests.histories import POLICY

pytestmark = pytest.mark.spark


def claimed_by_another(bench: Bench, thread: PipelineThread) -> Run:
    now = datetime.now(UTC)
    _, run = claim(
        LocalStorage(bench.checkpoint),
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
    run = claimed_by_another(bench, thread)
    bench.add(("a", 1, "x"))

    wait_until(lambda: bool(bench.deaths))

    assert run.epoch == thread.epoch + 1
    assert bench.deaths[0].superseded
    assert thread.state is ThreadStatus.DEAD
    assert bench.positions("a") == [0]
    [died] = bench.outbox.of(ThreadDied)
    assert died.superseded
    assert f"lines: a newer run than 1 owns {bench.checkpoint}" in caplog.text
    journal = sorted((Path(bench.checkpoint) / "arrester/journal").iterdir())
    assert len(journal) == 2


def test_an_older_run_that_has_nothing_to_do_ends_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrester.agents.run.thread._OWNED_SECONDS", 0.1)
    thread = bench.start(bench.checking(lambda row: row))
    claimed_by_another(bench, thread)

    wait_until(lambda: bool(bench.deaths))

    assert bench.deaths[0].superseded
    assert thread.state is ThreadStatus.DEAD


def test_an_older_run_answers_no_command(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrester.agents.run.thread._OWNED_SECONDS", 1_000.0)
    thread = bench.start(bench.checking(lambda row: row))
    claimed_by_another(bench, thread)
    command = uuid7(datetime.now(UTC))

    with pytest.raises(Superseded):
        thread.resume("a", how=ResumeHow.RETRY, command=command)

    wait_until(lambda: bool(bench.deaths))
    assert bench.deaths[0].superseded
    assert thread.is_applied(command) is None


def test_what_was_answered_is_known_while_a_micro_batch_is_at_work(bench: Bench) -> None:
    thread = bench.start(bench.checking(lambda row: row))
    command = uuid7(datetime.now(UTC))
    refused = thread.resume("a", how=ResumeHow.RETRY, command=command)

    with thread._lock:
        known = thread.is_applied(command)

    assert known == refused


def test_the_checkpoint_id_is_the_one_that_spark_has(bench: Bench) -> None:
    thread = bench.start(bench.checking(lambda row: row))
    assert thread.checkpoint_id == str(thread._query.id)  # type: ignore[attr-defined]  # Spark's query has one
