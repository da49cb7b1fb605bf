"""One run owns a checkpoint: the older one notices, and ends superseded."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.checkpoint import LocalStorage
from agents.claim import claim
from controlplane.domain.events import ThreadDied
from controlplane.domain.ids import uuid7
from controlplane.domain.states import ThreadStatus
from tests.agents.engine.bench import APPLICATION, Bench, wait_until

pytestmark = pytest.mark.spark


def test_an_older_run_ends_superseded_before_it_writes(bench: Bench) -> None:
    from datetime import UTC, datetime

    bench.add(("a", 0, "x"))
    thread = bench.start(bench.checking(lambda row: row))
    bench.wait_for_input()
    now = datetime.now(UTC)
    _, run = claim(
        LocalStorage(bench.checkpoint),
        application=APPLICATION,
        pipeline="lines",
        checkpoint=thread.checkpoint_id,
        instance=uuid7(now),
        now=now,
    )
    bench.add(("a", 1, "x"))

    wait_until(lambda: bool(bench.deaths))

    assert run.epoch == thread.epoch + 1
    assert bench.deaths[0].superseded
    assert thread.state is ThreadStatus.DEAD
    assert bench.positions("a") == [0]
    [died] = bench.outbox.of(ThreadDied)
    assert died.superseded
    journal = sorted((Path(bench.checkpoint) / "arrester/journal").iterdir())
    assert len(journal) == 2


def test_the_checkpoint_id_is_the_one_that_spark_has(bench: Bench) -> None:
    thread = bench.start(bench.checking(lambda row: row))
    assert thread.checkpoint_id == str(thread._query.id)
