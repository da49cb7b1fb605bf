"""The files of a journal: entries, snapshots and the version of their format."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

import msgspec

from arrester.agents.journal.entries import Entry
from arrester.agents.journal.ledger import Ledger
from arrester.agents.journal.storage import CheckpointUnusable, FileExists, Storage
from arrester.domain.errors import ArresterError

FOLDER = "arrester/journal"
_SNAPSHOT = "snapshot-"
#: The version of everything below `arrester/` in a checkpoint. What 0.2.0 and later versions write
#: stays readable. Earlier folders have no such file.
_FORMAT_FILE, _FORMAT = "arrester/format", b"1"

T = TypeVar("T")

_entry = msgspec.json.Decoder(Entry)
_ledger = msgspec.json.Decoder(Ledger)


class JournalDamaged(ArresterError):
    """An entry is unreadable or missing. Restore the named file, or start a new checkpoint."""


class JournalFiles:
    """Read and create the files of one journal, by the numbers of its entries."""

    def __init__(self, files: Storage) -> None:
        self._files = files

    def check_format(self) -> None:
        """Write the format version into a new checkpoint; raises CheckpointUnusable for any other
        version."""
        content = self._files.read(_FORMAT_FILE)
        if content is None:
            if not self.names():
                with suppress(FileExists):
                    self._files.create(_FORMAT_FILE, _FORMAT)
            # Another driver may have made the file, and entries, since the first read.
            content = self._files.read(_FORMAT_FILE)
        if content != _FORMAT:
            written = "a version before 0.2.0" if content is None else f"format {content!r:.20}"
            raise CheckpointUnusable(
                f"{self._files.root}/arrester was written by {written}; this version reads "
                f"format {_FORMAT.decode()}: start with a new checkpoint"
            )

    def names(self) -> list[str]:
        """Return the names of all entries and snapshots."""
        return self._files.names(FOLDER)

    # ── entries ──────────────────────────────────────────────────────────────────────────────

    def create_entry(self, entry: Entry) -> None:
        """Create the file of an entry; raises FileExists if its number is taken."""
        self._files.create(entry_path(entry.number), msgspec.json.encode(entry))

    def has_entry(self, number: int) -> bool:
        """Whether an entry with this number exists."""
        return self._files.exists(entry_path(number))

    def is_entry(self, entry: Entry) -> bool:
        """Whether the file with the number of `entry` has exactly this entry."""
        return self._files.read(entry_path(entry.number)) == msgspec.json.encode(entry)

    def find_entry(self, number: int) -> Entry | None:
        """Return an entry; None if it does not exist. Raises JournalDamaged."""
        return self._find(_entry_name(number), _entry)

    def entry(self, number: int) -> Entry:
        """Return an entry; raises JournalDamaged if it is missing or unreadable."""
        return self._read(_entry_name(number), _entry)

    def delete_entry(self, number: int) -> None:
        """Delete an entry."""
        self._files.delete(entry_path(number))

    # ── snapshots, by the number of the last entry that they contain ─────────────────────────

    def create_snapshot(self, ledger: Ledger) -> None:
        """Create the snapshot of a ledger; raises FileExists if its number has one."""
        path = f"{FOLDER}/{_snapshot_name(ledger.number)}"
        self._files.create(path, msgspec.json.encode(ledger))

    def snapshot(self, number: int) -> Ledger:
        """Return a snapshot; raises JournalDamaged if it is missing or unreadable."""
        return self._read(_snapshot_name(number), _ledger)

    def has_snapshot_since(self, number: int) -> bool:
        """Whether a snapshot contains the entry with this number."""
        return any(snapshot >= number for snapshot in snapshot_numbers(self.names()))

    def delete_snapshots_before(self, number: int) -> None:
        """Delete the snapshots that a later one replaces."""
        for snapshot in snapshot_numbers(self.names()):
            if snapshot < number:
                self._files.delete(f"{FOLDER}/{_snapshot_name(snapshot)}")

    def _read(self, name: str, decoder: msgspec.json.Decoder[T]) -> T:
        content = self._find(name, decoder)
        if content is None:
            raise JournalDamaged(f"{self._files.root}/{FOLDER}/{name} is missing")
        return content

    def _find(self, name: str, decoder: msgspec.json.Decoder[T]) -> T | None:
        content = self._files.read(f"{FOLDER}/{name}")
        try:
            return None if content is None else decoder.decode(content)
        except ValueError as exc:
            path = f"{self._files.root}/{FOLDER}/{name}"
            raise JournalDamaged(f"{path} cannot be read: {exc}") from exc


def entry_numbers(names: list[str]) -> list[int]:
    """Return the numbers of the entries among the names of files, in order."""
    return sorted(int(name.removesuffix(".json")) for name in names if name[0].isdigit())


def snapshot_numbers(names: list[str]) -> list[int]:
    """Return the numbers of the snapshots among the names of files."""
    return [
        int(name.removeprefix(_SNAPSHOT).removesuffix(".json"))
        for name in names
        if name.startswith(_SNAPSHOT)
    ]


def entry_path(number: int) -> str:
    """Return the path of an entry in the checkpoint."""
    return f"{FOLDER}/{_entry_name(number)}"


def _entry_name(number: int) -> str:
    return f"{number:020d}.json"


def _snapshot_name(number: int) -> str:
    return f"{_SNAPSHOT}{_entry_name(number)}"
