"""What is told and when: in slices, ahead of what waits, settled without a server, put off."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from arrester.agents.journal.entries import Kind
from arrester.agents.journal.journal import FOLDER, SNAPSHOT_EVERY, Journal
from arrester.agents.journal.storage import LocalStorage
from arrester.agents.run.publisher import SLICE, Publisher
from arrester.agents.transport.spool import Spool
from arrester.controlplane.domain.events import (
    Event,
    RecordFailed,
    RecordsHeld,
    Response,
    ThreadDied,
    ThreadStarted,
)
from arrester.controlplane.domain.state.states import TaskStatus
from tests.agents.journal.test_journal import FAILURE, NOW, claimed, entry, paused
from tests.agents.pipeline_bench import MemoryOutbox, server_state

GIB = 2**30


@pytest.fixture
def files(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def commit(files: LocalStorage, batch: int) -> None:
    files.create(f"commits/{batch}", b"")


def decided(journal: Journal, files: LocalStorage, count: int, *, first: int = 0) -> None:
    for batch in range(first, first + count):
        journal.append(entry(Kind.BATCH, RecordsHeld(task="JFK", held=1), batch=batch))
        commit(files, batch)


def test_a_long_journal_is_put_in_slices(files: LocalStorage) -> None:
    decided(claimed(files), files, 2 * SLICE)
    journal, outbox = claimed(files), MemoryOutbox()
    release = Publisher(journal, outbox, progress=files)
    put = []
    while release.put_ready():
        put.append(len(outbox.batches))
    assert put == [SLICE, 2 * SLICE]
    assert len(outbox.batches) == 2 * SLICE + 2
    assert not release.put_ready()

    # A run that ends puts what there is, and its end behind it.
    journal, outbox = claimed(files), MemoryOutbox()
    ended = journal.append(entry(Kind.STOPPED, ThreadDied(reason="stopped"), epoch=3))
    Publisher(journal, outbox, progress=files).put_ending(ended)
    assert len(outbox.batches) == 2 * SLICE + 4


def test_without_a_server_what_the_spool_keeps_is_forgotten(files: LocalStorage) -> None:
    """What waits for a confirmation that never comes would fill the disk."""
    journal = claimed(files)
    left = []
    for first, place in enumerate((":memory:", f"{files.root}/spool.sqlite")):
        spool = Spool(Path(place), id=uuid4(), limit_bytes=GIB)
        release = Publisher(journal, spool, progress=files, alone=True)
        decided(journal, files, SNAPSHOT_EVERY, first=first * SNAPSHOT_EVERY)
        while release.put_ready():
            pass
        release.compact(now=NOW)
        left.append(len([name for name in files.names(FOLDER) if name[0].isdigit()]))
        spool.close()
    # Memory is no place to keep them; of what is on the disk, the entry of the run stays.
    assert left == [SNAPSHOT_EVERY + 1, 1]


def skipped(position: int) -> RecordFailed:
    return RecordFailed(task="JFK", position=position, failure=FAILURE, response=Response.CONTINUE)


def test_the_next_run_is_told_of_while_the_batch_before_it_waits(files: LocalStorage) -> None:
    """Its sink may be tried for hours: the server would see a dead thread all that time."""
    dead = claimed(files)
    dead.append(entry(Kind.BATCH, skipped(7), batch=0))
    dead.append(entry(Kind.DIED, ThreadDied(reason="its sink")))
    outbox = MemoryOutbox()
    release = Publisher(claimed(files), outbox, progress=files)
    for _ in range(2):
        assert release.put_ready()
    kinds = [type(event.data) for event in outbox.events]
    assert (kinds.count(ThreadStarted), kinds.count(ThreadDied)) == (2, 1)
    assert RecordFailed not in kinds
    before = len(outbox.batches)
    commit(files, 0)
    assert not release.put_ready()
    assert len(outbox.batches) == before + 1


def test_what_waits_and_says_how_tasks_stand_is_not_overtaken(files: LocalStorage) -> None:
    """The server would take it for the late word of an older run, and leave the task RUNNING."""
    instance = uuid4()
    dead = claimed(files, instance)
    dead.append(entry(Kind.BATCH, *paused("JFK", 7), batch=0))
    dead.append(entry(Kind.DIED, ThreadDied(reason="its sink")))
    outbox = MemoryOutbox()
    release = Publisher(claimed(files, instance), outbox, progress=files)
    assert release.put_ready()
    assert len(outbox.of(ThreadStarted)) == 1
    commit(files, 0)
    assert not release.put_ready()
    [state] = server_state(outbox.events).tasks.values()
    assert (state.status, state.position) == (TaskStatus.PAUSED, 7)


class Refusing(MemoryOutbox):
    refuses = True

    def put(self, batch_id: UUID, events: Sequence[Event]) -> None:
        if self.refuses:
            raise OSError("no room")
        super().put(batch_id, events)


def test_a_refused_put_is_tried_ever_less_often_and_said_now_and_then(
    files: LocalStorage, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [0.0]
    outbox = Refusing()
    release = Publisher(claimed(files), outbox, progress=files, clock=lambda: clock[0])
    with caplog.at_level(logging.ERROR, "arrester.release"):
        for _ in range(20 * 180):
            assert release.put_ready()
            clock[0] += 0.05
    assert 3 <= len(caplog.records) <= 4
    assert 36 <= release.failures <= 50
    outbox.refuses = False
    clock[0] += 5
    assert not release.put_ready()
