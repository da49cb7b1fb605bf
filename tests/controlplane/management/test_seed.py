"""The history for measurements of pages is the same as one made by the product."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from arrester.controlplane import queries, store
from arrester.controlplane.history import rebuild
from arrester.domain.state.states import TaskStatus
from benchmarks import seed
from benchmarks.sample_history import DAYS, DEAD, PAUSED, PIPELINE, Week
from tests.controlplane import streams

pytestmark = pytest.mark.usefixtures("fresh_database")
EVENTS, TASKS = 4_200, 50


def test_the_views_of_a_seeded_week_match_its_log() -> None:
    until = datetime.now(UTC)
    week = Week(application="seeded", events=EVENTS, tasks=TASKS, until=until)

    store.ensure_partitions((until - timedelta(days=DAYS)).date(), days=DAYS + 1)
    seed.write(week)

    assert rebuild.differences("seeded") == []
    summary = queries.application("seeded")
    others = [
        each
        for each in queries.tasks(queries.TaskFilter(application="seeded"), limit=500).rows
        if each.id.pipeline != PIPELINE
    ]
    assert (summary.paused, summary.dead) == (PAUSED, DEAD)
    assert summary.running == TASKS - PAUSED - DEAD + len(others)
    assert EVENTS <= summary.state.sequence <= EVENTS * 1.05
    # Every day has its partition, and failures reported in full have their record and trace.
    days = {each.received_at.date() for each in streams.log("seeded")}
    assert len(days) == DAYS + 1
    (paused,) = queries.tasks(queries.TaskFilter(status=TaskStatus.PAUSED), limit=1).rows
    assert paused.held > 0
    failed = queries.failures(queries.FailureFilter(application="seeded"), limit=100).rows
    bodies = [store.read_one("seeded", each.sequence).event.body for each in failed]
    assert any(body is not None and body.record and body.stack for body in bodies)
