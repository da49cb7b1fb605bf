"""The journal: fencing by atomic creates, snapshots that equal the fold, stable batch ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest

from arrester.agents.journal.entries import Chunk, Cursor, DeadLetters, Entry, EntryKind, HeldCount
from arrester.agents.journal.fencing import claim
from arrester.agents.journal.files import FOLDER, JournalDamaged
from arrester.agents.journal.journal import (
    SNAPSHOT_EVERY,
    EntryAlreadyMade,
    Journal,
    Superseded,
)
from arrester.agents.journal.ledger import Ledger
from arrester.agents.journal.storage import (
    CheckpointUnusable,
    FileExists,
    LocalStorage,
    Storage,
    checkpoint_id,
)
from arrester.agents.run.publisher import Publisher
from arrester.domain.events import (
    CommandApplied,
    DeadLetterIds,
    Event,
    EventData,
    Failure,
    FinalResponse,
    PipelinePaused,
    PipelineResumed,
    RecordFailed,
    RecordsHeld,
    RecordsRedriven,
    ResumeHow,
    Run,
    TaskPaused,
    TaskResumed,
)
from arrester.domain.state.states import TaskStatus
from arrester.domain.wire import limits
from arrester.domain.wire.codec import BATCH_MAX_EVENTS
from tests.agents.pipeline_bench import MemoryOutbox
from tests.histories import POLICY

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
CHECKPOINT = "0190-checkpoint"
FAILURE = Failure(
    stage="process:check", exception_class="ValueError", message="no", fingerprint="1"
)


def opened(files: Storage) -> Journal:
    journal = Journal(files, application="flights", pipeline="delays", checkpoint=CHECKPOINT)
    journal.load()
    return journal


def claimed(files: Storage, instance: UUID | None = None, now: datetime = NOW) -> Journal:
    journal, _ = claim(
        files,
        application="flights",
        pipeline="delays",
        checkpoint=CHECKPOINT,
        instance=instance or uuid4(),
        policy=POLICY,
        now=now,
    )
    return journal


def entry(
    kind: EntryKind, *data: EventData, seconds: int = 0, epoch: int = 1, **more: object
) -> Entry:
    at = NOW + timedelta(seconds=seconds)
    run = Run(pipeline="delays", checkpoint=CHECKPOINT, epoch=epoch)
    events = tuple(Event(occurred_at=at, data=each, run=run) for each in data)
    return msgspec.structs.replace(
        Entry(kind=kind, at=at, epoch=epoch, events=events), **dict(more)
    )


def paused(key: str, position: int) -> list[EventData]:
    return [
        RecordFailed(task=key, position=position, failure=FAILURE, response=FinalResponse.PAUSE),
        TaskPaused(task=key, position=position, failure=FAILURE),
    ]


@pytest.fixture
def files(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def test_the_second_run_with_an_entry_number_is_superseded(files: LocalStorage) -> None:
    older = claimed(files)
    older.append(entry(EntryKind.BATCH, *paused("JFK", 7), batch=0))
    newer = claimed(files)

    assert newer.ledger.epoch == 2
    with pytest.raises(Superseded):
        older.check_owned()
    with pytest.raises(Superseded):
        older.append(entry(EntryKind.STOPPED))
    newer.check_owned()


class Slow(LocalStorage):
    """Raises once after the file was created, like a name node that answers too late."""

    raises = False
    #: Whether the first reads fail too.
    blind = False

    def create(self, path: str, content: bytes) -> None:
        super().create(path, content)
        if self.raises:
            self.raises = False
            raise TimeoutError("no answer")

    def read(self, path: str) -> bytes | None:
        if self.blind:
            self.blind = False
            raise TimeoutError("no answer")
        return super().read(path)


def test_an_entry_created_by_a_call_that_raised_supersedes_no_run(tmp_path: Path) -> None:
    files = Slow(str(tmp_path))
    journal = claimed(files)
    files.raises = True
    assert journal.append(entry(EntryKind.BATCH, *paused("JFK", 7), batch=0)).number == 2
    assert journal.ledger.task("JFK").blocked

    # The same if this becomes known only later.
    files.raises = files.blind = True
    with pytest.raises(TimeoutError):
        journal.append(entry(EntryKind.BATCH, *paused("EWR", 7), batch=1))
    assert not journal.ledger.task("EWR").blocked
    journal.check_owned()
    assert journal.ledger.task("EWR").blocked
    assert [each.number for each in journal.unsettled] == [1, 2, 3]

    # A decision made without it is not appended after it.
    files.raises = files.blind = True
    with pytest.raises(TimeoutError):
        journal.append(entry(EntryKind.BATCH, *paused("LGA", 7), batch=2))
    with pytest.raises(EntryAlreadyMade):
        journal.append(entry(EntryKind.BATCH, *paused("LGA", 7), batch=2, seconds=1))
    journal.append(entry(EntryKind.STOPPED))

    files.raises = True
    with pytest.raises(TimeoutError):
        journal.compact(is_settled=lambda each: False, is_needed=lambda saved: True)
    journal.compact(is_settled=lambda each: True, is_needed=lambda saved: True)
    assert opened(files).ledger.tasks == journal.ledger.tasks
    claimed(files)
    with pytest.raises(Superseded):
        journal.check_owned()


def test_a_claim_that_loses_the_race_claims_the_next_epoch(files: LocalStorage) -> None:
    class Racing(LocalStorage):
        rivals = 1

        def create(self, path: str, content: bytes) -> None:
            if self.rivals:
                self.rivals -= 1
                claimed(files)
            super().create(path, content)

    journal = claimed(Racing(files.root))

    assert journal.ledger.epoch == 2
    assert [each.epoch for each in opened(files).unsettled] == [1, 2]


def test_a_new_instance_resumes_paused_tasks_and_the_same_instance_does_not(
    files: LocalStorage,
) -> None:
    first = uuid4()
    claimed(files, first).append(entry(EntryKind.BATCH, *paused("JFK", 7), batch=0))

    same = claimed(files, first).ledger.task("JFK").state
    other = claimed(files).ledger.task("JFK").state

    assert (same.status, same.position) == (TaskStatus.PAUSED, 7)
    assert other.status is TaskStatus.RUNNING


def test_a_task_paused_by_an_operator_stays_paused(files: LocalStorage) -> None:
    claimed(files).append(entry(EntryKind.RESUME, TaskPaused(task="JFK", position=None)))

    assert claimed(files).ledger.task("JFK").state.status is TaskStatus.PAUSED


def test_a_pause_by_an_operator_holds_later_records_only(files: LocalStorage) -> None:
    journal = claimed(files)
    journal.append(entry(EntryKind.PAUSE, TaskPaused(task="JFK", position=None), after=4))

    for ledger in (journal.ledger, claimed(files).ledger):
        assert [ledger.blocked(batch) for batch in (3, 4, 5)] == [[], [], ["JFK"]]


def history(journal: Journal) -> None:
    """Pause a task, hold rows of two micro-batches, resume it, run one chunk of two."""
    held = (HeldCount(task="JFK", count=3),)
    command = uuid4()
    journal.append(
        entry(EntryKind.BATCH, *paused("JFK", 7), batch=4, row_folder="one", held=held, seconds=1)
    )
    journal.append(entry(EntryKind.BATCH, batch=5, row_folder="two", held=held, seconds=2))
    resumed = TaskResumed(task="JFK", how=ResumeHow.RETRY)
    applied = CommandApplied(command=command, detail="resumed")
    journal.append(entry(EntryKind.RESUME, resumed, applied, seconds=3))
    chunk = Chunk(
        task="JFK",
        start=Cursor(entry=2),
        end=Cursor(entry=2, position=9),
        taken=2,
        after=5,
    )
    journal.append(entry(EntryKind.DRAIN, chunks=(chunk,), seconds=4))
    journal.append(entry(EntryKind.DRAINED, RecordsHeld(task="JFK", held=4), seconds=5))


def test_the_folded_entries_equal_the_state_of_the_writer(files: LocalStorage) -> None:
    journal = claimed(files)
    history(journal)

    assert opened(files).ledger == journal.ledger
    task = journal.ledger.task("JFK")
    assert (task.held, task.cursor) == (4, Cursor(entry=2, position=9))
    assert task.stopped_by is None
    assert [answer.applied for answer in journal.ledger.answers.values()] == [True]


def test_a_snapshot_equals_the_fold_and_run_entries_are_kept_as_a_fence(
    files: LocalStorage,
) -> None:
    older = claimed(files)
    journal = claimed(files)
    history(journal)
    before = journal.ledger
    journal.compact(is_settled=lambda entry: entry.number <= 5, is_needed=lambda saved: True)

    names = files.names(FOLDER)
    assert names == [
        *(f"{number:020d}.json" for number in (1, 2, 6, 7)),
        f"snapshot-{7:020d}.json",
    ]
    again = opened(files)
    assert again.ledger == before
    assert [each.number for each in again.unsettled] == [6, 7]
    with pytest.raises(Superseded):
        older.append(entry(EntryKind.STOPPED))


def test_confirmed_entries_are_compacted_within_days_without_new_ones(
    files: LocalStorage,
) -> None:
    journal = claimed(files)
    history(journal)
    outbox = Confirming()
    release = Publisher(journal, outbox, progress=files)
    for batch in (4, 5):
        files.create(f"commits/{batch}", b"")
    assert not release.put_ready()
    later = NOW + timedelta(days=1, seconds=10)
    # First nothing is confirmed; then everything is, but it is less than a day old.
    release.compact(now=later)
    outbox.confirmed |= set(outbox.batches)
    release.compact(now=NOW + timedelta(hours=23))
    assert len(opened(files).unsettled) == 6

    release.compact(now=later)

    assert opened(files).unsettled == []
    assert opened(files).ledger == journal.ledger
    # There is nothing new for a snapshot, and its number is used.
    release.compact(now=later + timedelta(days=40))
    # A run after weeks reports only itself.
    again = Confirming()
    assert not Publisher(claimed(files), again, progress=files).put_ready()
    assert len(again.batches) == 1


class Confirming:
    """An outbox of which some batches are confirmed."""

    def __init__(self) -> None:
        self.flow = None
        self.batches: list[UUID] = []
        self.confirmed: set[UUID] = set()

    def put(self, batch_id: UUID, events: Sequence[Event]) -> None:
        self.batches.append(batch_id)

    def is_confirmed(self, batch_id: UUID) -> bool:
        return batch_id in self.confirmed

    def is_stored(self, batch_id: UUID) -> bool:
        return False


class Frozen(LocalStorage):
    """Calls `meanwhile` once, just before a file with `at` in its name is created."""

    def __init__(self, root: str, at: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(root)
        self.at = at
        self.meanwhile: Callable[[], object] | None = meanwhile

    def create(self, path: str, content: bytes) -> None:
        if self.at in path and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        super().create(path, content)


def compact(journal: Journal, *, settled: int = 1_000) -> None:
    journal.compact(is_settled=lambda entry: entry.number <= settled, is_needed=lambda saved: True)


def test_a_run_that_is_not_the_newest_does_not_compact(files: LocalStorage) -> None:
    older = claimed(files)
    history(older)
    claimed(files)
    before = files.names(FOLDER)

    with pytest.raises(Superseded):
        compact(older)

    assert files.names(FOLDER) == before


def test_a_run_that_froze_while_compacting_deletes_no_newer_snapshot(tmp_path: Path) -> None:
    frozen = Frozen(str(tmp_path), "snapshot", lambda: None)
    older = claimed(frozen)
    history(older)
    newer: list[Journal] = []

    def goes_on() -> None:
        newer.append(claimed(LocalStorage(str(tmp_path))))
        history(newer[0])
        compact(newer[0])

    frozen.meanwhile = goes_on
    compact(older)

    assert opened(frozen).ledger == newer[0].ledger
    assert opened(frozen).ledger.task("JFK").held == 8
    with pytest.raises(Superseded):
        older.append(entry(EntryKind.STOPPED))


def test_an_entry_deleted_by_an_older_run_has_no_events(
    tmp_path: Path,
) -> None:
    frozen = Frozen(str(tmp_path), "snapshot", lambda: None)
    older = claimed(frozen)
    history(older)
    newer: list[Journal] = []
    frozen.meanwhile = lambda: newer.append(claimed(LocalStorage(str(tmp_path))))
    compact(older)

    assert [newer[0].event_batches(number) for number in (2, 3)] == [[], []]
    with pytest.raises(JournalDamaged):
        newer[0].event_batches(99)


def test_waiting_dead_letters_block_no_entry_and_are_remembered(
    files: LocalStorage,
) -> None:
    journal = claimed(files)
    dead_letters = DeadLetters(name="one", day="2026-11-20")
    journal.append(entry(EntryKind.BATCH, batch=0, dead_letters=dead_letters))
    journal.append(entry(EntryKind.BATCH, batch=1))
    refused = msgspec.structs.replace(dead_letters, refused=True)
    journal.append(entry(EntryKind.DEAD_LETTERS, dead_letters=refused))
    release = Publisher(journal, MemoryOutbox(confirming=True), progress=files)
    for name in ("offsets/1", "commits/1"):
        files.create(name, b"")
    assert not release.put_ready()
    for _ in range(SNAPSHOT_EVERY):
        journal.append(entry(EntryKind.STOPPED))
    assert not release.put_ready()
    release.compact(now=NOW)

    assert [each.number for each in journal.unsettled] == []
    assert opened(files).ledger.pending_dead_letters == {"one": refused}


@pytest.mark.parametrize(
    ("content", "written"), [(None, "a version before 0.2.0"), (b"2", "format b'2'")]
)
def test_a_journal_of_another_format_is_refused(
    files: LocalStorage, content: bytes | None, written: str
) -> None:
    claimed(files)
    files.delete("arrester/format")
    if content is not None:
        files.create("arrester/format", content)
    with pytest.raises(CheckpointUnusable, match=f"{written}; this version reads format 1"):
        claimed(files)


def test_a_new_checkpoint_is_opened_while_another_driver_makes_its_first_entries(
    files: LocalStorage,
) -> None:
    class Racing(LocalStorage):
        rivals = 1

        def read(self, path: str) -> bytes | None:
            found = super().read(path)
            if self.rivals:
                self.rivals -= 1
                claimed(files)
            return found

    assert claimed(Racing(files.root)).ledger.epoch == 2


def test_a_missing_entry_is_named(files: LocalStorage) -> None:
    journal = claimed(files)
    history(journal)
    compact(journal, settled=2)
    for _ in range(3):
        journal.append(entry(EntryKind.STOPPED))
    files.delete(f"{FOLDER}/{8:020d}.json")

    with pytest.raises(JournalDamaged, match=r"entry 8 is missing"):
        opened(files)


def test_a_load_restarts_after_a_concurrent_compaction(tmp_path: Path) -> None:
    class Compacting(LocalStorage):
        journals: list[Journal]

        def read(self, path: str) -> bytes | None:
            if self.journals:
                compact(self.journals.pop())
            return super().read(path)

    files = LocalStorage(str(tmp_path))
    journal = claimed(files)
    history(journal)
    compact(journal, settled=2)
    journal.append(entry(EntryKind.STOPPED))
    racing = Compacting(str(tmp_path))
    racing.journals = [journal]

    assert opened(racing).ledger == journal.ledger
    assert racing.journals == []


def test_row_folders_are_deleted_when_no_longer_needed(
    files: LocalStorage,
) -> None:
    journal = claimed(files)
    history(journal)
    for name in ("one", "two"):
        files.create(f"arrester/held/{name}/part", b"")

    journal.compact(is_settled=lambda entry: False, is_needed=lambda saved: saved.name == "two")

    assert files.names("arrester/held") == ["two"]
    assert [saved.name for saved in opened(files).ledger.saved_rows] == ["two"]


def test_the_next_run_deletes_only_folders_that_no_entry_names(files: LocalStorage) -> None:
    folder = Path(files.root) / "arrester" / "held"
    for name in ("named", "left behind"):
        (folder / name).mkdir(parents=True)
    first = claimed(files)
    held = (HeldCount(task="a", count=1),)
    first.append(entry(EntryKind.BATCH, *paused("a", 7), row_folder="named", held=held))
    second = claimed(files)
    # The older run continues: it must not delete folders of the newer one.
    with pytest.raises(Superseded):
        first.delete_orphans()
    assert second.delete_orphans() == ["left behind"]
    assert [each.name for each in folder.iterdir()] == ["named"]
    assert second.delete_orphans() == []


def test_batch_ids_are_the_same_from_every_host_and_never_shared(files: LocalStorage) -> None:
    journal = claimed(files)
    many = [RecordsHeld(task="JFK", held=n) for n in range(BATCH_MAX_EVENTS + 1)]
    journal.append(entry(EntryKind.BATCH, *many, batch=0))

    batches = [batch for each in journal.unsettled for batch in journal.event_batches(each.number)]
    other = opened(files)
    again = [batch for each in other.unsettled for batch in other.event_batches(each.number)]

    assert batches == again
    assert [len(events) for _, events in batches] == [2, BATCH_MAX_EVENTS, 1]
    assert len({batch_id for batch_id, _ in batches}) == 3


def test_large_columns_of_dead_letters_are_sent_in_several_batches(
    files: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = claimed(files)
    ids = DeadLetterIds(ids=bytes(160))
    redriven = [
        RecordsRedriven(task=name, count=10, first_position=None, last_position=None, records=ids)
        for name in ("ATL", "JFK", "ORD")
    ]
    journal.append(entry(EntryKind.BATCH, *redriven, batch=0))
    number = journal.unsettled[-1].number
    ((whole, events),) = journal.event_batches(number)

    monkeypatch.setattr(limits, "COLUMNS_BYTES", 320)
    batches = opened(files).event_batches(number)

    assert [len(events) for _, events in batches] == [2, 1]
    assert [each for _, events in batches for each in events] == events
    # A batch that is not divided has the id of versions that divide none.
    assert batches[0][0] == whole and len({id for id, _ in batches}) == 2


def test_a_stopping_record_that_is_skipped_later_no_longer_stops_its_task() -> None:
    ledger = Ledger(application="flights", pipeline="delays", checkpoint=CHECKPOINT)
    ledger.apply(entry(EntryKind.BATCH, *paused("JFK", 7), number=1))
    skipped = RecordFailed(task="JFK", position=6, failure=FAILURE, response=FinalResponse.CONTINUE)
    ledger.apply(entry(EntryKind.DRAIN, skipped, number=2))
    stopped_by = ledger.task("JFK").stopped_by
    assert stopped_by is not None
    assert stopped_by.position == 7

    again = msgspec.structs.replace(skipped, position=7, recurrence=True)
    ledger.apply(entry(EntryKind.DRAIN, again, number=3))

    assert ledger.task("JFK").stopped_by is None


def test_numbers_of_the_sink_increase_strictly_and_are_the_same_on_a_replay() -> None:
    ledger = Ledger(application="flights", pipeline="delays", checkpoint=CHECKPOINT)
    numbers, number = [], 0

    def drain(after: int) -> None:
        nonlocal number
        number += 1
        chunk = Chunk(task="a", start=Cursor(entry=0), end=Cursor(entry=0), taken=0, after=after)
        ledger.apply(entry(EntryKind.DRAIN, chunks=(chunk,), number=number))
        numbers.append(ledger.chunk_number(after))
        ledger.apply(entry(EntryKind.DRAINED, number=number))

    drain(-1)
    for batch in range(3):
        first = ledger.batch_number(batch)
        numbers.append(first)
        drain(batch)
        drain(batch)
        assert ledger.batch_number(batch) == first
    assert numbers == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_an_unreadable_entry_is_named(files: LocalStorage) -> None:
    claimed(files)
    files.create(f"{FOLDER}/{2:020d}.json", b"{half")

    with pytest.raises(JournalDamaged, match=r"00002\.json cannot be read"):
        opened(files)


def test_files_are_created_completely_or_not_at_all(files: LocalStorage) -> None:
    check_storage(files)


def check_storage(files: Storage) -> None:
    """Check the promises of the storage protocol."""
    first = bytes(range(256)) + b"\r\n\\n"
    files.create("a/b/one", first)
    with pytest.raises(FileExists):
        files.create("a/b/one", b"second")
    assert files.read("a/b/one") == first
    assert files.names("a/b") == ["one"]
    drafts = [files.draft("a/b/two", content) for content in (b"first", b"second")]
    assert (files.exists("a/b/two"), files.read("a/b/two")) == (False, None)
    drafts[1]()
    with pytest.raises(FileExists):
        drafts[0]()
    assert (files.names("a/b"), files.read("a/b/two")) == (["one", "two"], b"second")
    assert (files.exists("a/b"), files.exists("a/c")) == (True, False)
    assert (files.read("a/none"), files.names("none")) == (None, [])
    files.delete("a")
    files.delete("a")
    assert not files.exists("a/b/one")


def test_a_new_checkpoint_gets_an_id_that_stays(files: LocalStorage) -> None:
    assert checkpoint_id(files) == checkpoint_id(files)


def test_each_run_reports_the_pause_of_its_pipeline_until_its_time_is_over(
    files: LocalStorage,
) -> None:
    end = NOW + timedelta(hours=1)
    pause = PipelinePaused(since=NOW, until=end, actor="ana", reason="a migration")
    claimed(files).append(entry(EntryKind.PIPELINE, pause))

    def reported(now: datetime) -> list[EventData]:
        journal = claimed(files, now=now)
        (_, events) = next(iter(journal.event_batches(journal.ledger.number)))
        kinds = PipelinePaused | PipelineResumed
        return [each.data for each in events if isinstance(each.data, kinds)]

    assert reported(NOW + timedelta(minutes=59)) == [pause]
    compacted = claimed(files)
    compacted.compact(is_settled=lambda _: True, is_needed=lambda _: True)
    assert compacted.ledger.pause is not None
    assert opened(files).ledger.pause == compacted.ledger.pause
    # No run existed at the end of the pause.
    ended = PipelineResumed(
        actor="pause of ana", reason="the pause ended at 2026-11-20 13:00:00 UTC"
    )
    assert reported(end) == [ended]
    assert reported(end) == []
