"""A store fences if of two writers of one file one wins; else the checkpoint is refused."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from arrester.agents.journal.entries import EntryKind
from arrester.agents.journal.exclusive_create import check_exclusive_create
from arrester.agents.journal.files import FOLDER
from arrester.agents.journal.journal import Journal, Superseded
from arrester.agents.journal.storage import (
    CheckpointUnusable,
    FileExists,
    LocalStorage,
    Storage,
)
from tests.agents.journal.object_store import ObjectStore
from tests.agents.journal.test_journal import check_storage, claimed, entry, opened, paused
from tests.patience import PATIENCE_SECONDS

#: Checkpoints, and entries that each of two drivers appends to each: 1,000 entries and more.
CHECKPOINTS, EACH = 10, 50


def drive(open_checkpoint: Callable[[int], Storage], wait: Callable[[], Any]) -> list[set[int]]:
    """Append entries as one of two drivers; after each loss claim the checkpoint again.

    Returns the numbers taken in each checkpoint.
    """
    taken = []
    for checkpoint in range(CHECKPOINTS):
        files, instance = open_checkpoint(checkpoint), uuid4()
        numbers: set[int] = set()
        wait()
        journal: Journal | None = None
        while len(numbers) < EACH:
            if journal is None:
                journal = claimed(files, instance)
                numbers.add(journal.ledger.number)
                continue
            try:
                made = journal.append(entry(EntryKind.BATCH, epoch=journal.ledger.epoch))
                numbers.add(made.number)
            except Superseded:
                journal = None
        taken.append(numbers)
    return taken


def check_taken(first: list[set[int]] | str, second: list[set[int]] | str) -> None:
    assert isinstance(first, list) and isinstance(second, list), (first, second)
    assert len(first) == len(second) == CHECKPOINTS
    for one, other in zip(first, second, strict=True):
        assert one & other == set()
        assert one | other == set(range(1, len(one | other) + 1))


def _drive_locally(root: str, together: Barrier, results: Any) -> None:
    try:
        results.put(drive(lambda number: LocalStorage(f"{root}/{number}"), together.wait))
    except Exception as exc:
        together.abort()
        results.put(repr(exc))


def test_of_two_driver_processes_on_a_local_disk_one_takes_each_number(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    together, results = spawn.Barrier(2), spawn.Queue()
    arguments = (str(tmp_path), together, results)
    drivers = [spawn.Process(target=_drive_locally, args=arguments, daemon=True) for _ in range(2)]
    for driver in drivers:
        driver.start()
    first, second = (results.get(timeout=PATIENCE_SECONDS) for _ in drivers)
    for driver in drivers:
        driver.join()
    check_taken(first, second)


def test_of_two_drivers_on_an_object_store_one_takes_each_number() -> None:
    buckets: list[dict[str, bytes]] = [{} for _ in range(CHECKPOINTS)]
    together = threading.Barrier(2)

    def run(late: int) -> list[set[int]]:
        try:
            return drive(lambda number: ObjectStore(buckets[number], late=late), together.wait)
        except BaseException:
            together.abort()
            raise

    with ThreadPoolExecutor(2) as pool:
        # The second driver's listings omit the newest files.
        first, second = pool.map(run, (0, 2))
    check_taken(first, second)


def test_a_store_that_fences_is_accepted_by_few_operations_and_left_empty(
    tmp_path: Path,
) -> None:
    files = LocalStorage(str(tmp_path / "new"))
    check_exclusive_create(files)
    assert files.names("") == []
    check_storage(files)

    store = ObjectStore()
    check_exclusive_create(store)
    assert sorted(store.operations) == ["delete", "exists", "read", "upload", "upload"]
    assert store.files == {}
    check_storage(store)


def test_a_store_without_conditional_writes_is_refused() -> None:
    store = ObjectStore(conditional=False)
    with pytest.raises(CheckpointUnusable) as caught:
        check_exclusive_create(store)
    assert str(caught.value) == (
        "the store of checkpoint s3a://bucket/checkpoint cannot keep two drivers apart: two "
        "writers created the same file. Use another store."
    )
    assert store.files == {}


class Ignoring(ObjectStore):
    """It reports no conflict, but keeps the first file only."""

    def _upload(self, path: str, content: bytes) -> None:
        self.files.setdefault(path, content)


class Early(ObjectStore):
    """A file is there when its upload begins."""

    def draft(self, path: str, content: bytes) -> Callable[[], None]:
        if path in self.files:
            raise FileExists(path)
        self.files[path] = b""
        return super().draft(path, content)


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (Ignoring(), "two writers created the same file"),
        (Early(), "a file is visible before it is complete"),
    ],
)
def test_a_store_that_reports_no_conflict_or_shows_parts_is_refused(
    store: ObjectStore, reason: str
) -> None:
    with pytest.raises(CheckpointUnusable, match=reason):
        check_exclusive_create(store)
    assert store.files == {}


def test_a_mount_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: object, target: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(CheckpointUnusable, match=r"created no file \(Operation not permitted\)"):
        check_exclusive_create(LocalStorage(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_a_conflict_reported_as_another_failure_is_accepted() -> None:
    class Conflict(ObjectStore):
        """S3 answers 409 to one of two uploads at the same time."""

        def _upload(self, path: str, content: bytes) -> None:
            try:
                super()._upload(path, content)
            except FileExists as exc:
                raise OSError("409 ConditionalRequestConflict") from exc

    check_exclusive_create(Conflict())


def test_a_run_whose_entry_was_replaced_is_superseded(tmp_path: Path) -> None:
    class Replacing(LocalStorage):
        """Another driver's entry replaces ours as soon as it is there."""

        content: bytes | None = None

        def create(self, path: str, content: bytes) -> None:
            super().create(path, content)
            if self.content is not None:
                (Path(self.root) / path).write_bytes(self.content)

    files = Replacing(str(tmp_path))
    journal = claimed(files)
    files.content = b"{}"
    with pytest.raises(Superseded, match="a newer run than 1 owns"):
        journal.append(entry(EntryKind.BATCH, *paused("JFK", 7), batch=0))
    assert not journal.ledger.task("JFK").blocked


def test_entries_that_a_listing_omits_are_read_by_their_number() -> None:
    store = ObjectStore()
    journal = claimed(store)
    for _ in range(3):
        journal.append(entry(EntryKind.BATCH, *paused("JFK", 7)))
    store.late = 2
    assert store.names(FOLDER) == [f"{number:020d}.json" for number in (1, 2)]

    assert opened(store).ledger == journal.ledger
