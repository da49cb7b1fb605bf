"""Publishing of entries: in slices, ahead of waiting ones, without a server, after refusals."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from arrester.agents.journal.entries import EntryKind
from arrester.agents.journal.files import FOLDER
from arrester.agents.journal.journal import SNAPSHOT_EVERY, Journal
from arrester.agents.journal.storage import LocalStorage
from arrester.agents.run.publisher import SLICE, Publisher
from arrester.agents.transport.spool import Spool
from arrester.domain.events import (
    Event,
    FinalResponse,
    RecordFailed,
    RecordsHeld,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.state.states import TaskStatus
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
        journal.append(entry(EntryKind.BATCH, RecordsHeld(task="JFK", held=1), batch=batch))
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

    # A run that ends puts all entries, and then its end.
    journal, outbox = claimed(files), MemoryOutbox()
    ended = journal.append(entry(EntryKind.STOPPED, ThreadDied(reason="stopped"), epoch=3))
    Publisher(journal, outbox, progress=files).put_ending(ended)
    assert len(outbox.batches) == 2 * SLICE + 4


def test_the_log_has_the_batches_of_the_events(
    files: LocalStorage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "arrester.release")
    journal, outbox = claimed(files), MemoryOutbox()
    decided(journal, files, 1)
    Publisher(journal, outbox, progress=files).put_ready()
    logged = [id for each in caplog.records for id in each.__dict__["event_batches"]]
    assert logged == [str(batch_id) for batch_id in outbox.batches]


def test_without_a_server_entries_in_the_spool_are_compacted(files: LocalStorage) -> None:
    """Entries that wait for a confirmation that never comes would fill the disk."""
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
    # Entries in memory do not count as stored; of those on disk, the entry of the run stays.
    assert left == [SNAPSHOT_EVERY + 1, 1]


def test_a_run_with_a_new_disk_puts_what_the_lost_spool_had_of_the_journal(
    files: LocalStorage,
) -> None:
    journal = claimed(files)
    decided(journal, files, 3)
    lost = MemoryOutbox()
    assert not Publisher(journal, lost, progress=files).put_ready()

    outbox = MemoryOutbox()
    assert not Publisher(claimed(files), outbox, progress=files).put_ready()

    assert len(lost.batches) == 4
    assert list(outbox.batches.items())[:4] == list(lost.batches.items())


def skipped(position: int) -> RecordFailed:
    return RecordFailed(
        task="JFK", position=position, failure=FAILURE, response=FinalResponse.CONTINUE
    )


def test_the_next_run_is_reported_while_the_batch_before_it_waits(files: LocalStorage) -> None:
    """Its sink may be retried for hours: the server would see a dead thread meanwhile."""
    dead = claimed(files)
    dead.append(entry(EntryKind.BATCH, skipped(7), batch=0))
    dead.append(entry(EntryKind.DIED, ThreadDied(reason="its sink")))
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


def test_waiting_entries_with_task_states_are_not_overtaken(files: LocalStorage) -> None:
    """The server would ignore them as those of an older run, and leave the task RUNNING."""
    instance = uuid4()
    dead = claimed(files, instance)
    dead.append(entry(EntryKind.BATCH, *paused("JFK", 7), batch=0))
    dead.append(entry(EntryKind.DIED, ThreadDied(reason="its sink")))
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


def test_a_refused_put_is_retried_with_growing_waits_and_logged_once_a_minute(
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
