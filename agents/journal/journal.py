"""The journal beside a checkpoint: numbered entries, each made by an atomic create."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from arrester.agents.journal.entries import Entry, Kind
from arrester.agents.journal.state import TASK_EVENTS, Aside, Ledger
from arrester.agents.journal.storage import CheckpointUnusable, FileTaken, Storage
from arrester.controlplane.domain.errors import ArresterError
from arrester.controlplane.domain.events import (
    FAILED,
    DeadLettersFailed,
    Event,
    RecordsDeadLettered,
    RetriesCounted,
)
from arrester.controlplane.domain.identity.uuids import commit_id
from arrester.controlplane.domain.wire.codec import BATCH_MAX_EVENTS

_log = logging.getLogger("arrester.journal")

FOLDER = "arrester/journal"
_SNAPSHOT = "snapshot-"
#: The version of everything below `arrester/` in a checkpoint. What 0.2.0 and later wrote stays
#: readable; an earlier folder has no such file.
_FORMAT_FILE, _FORMAT = "arrester/format", b"1"
#: Rows that an entry put aside, a folder each.
ASIDE_FOLDER = "arrester/held"
#: A snapshot is made after so many entries, and spares the reading of what is before it.
SNAPSHOT_EVERY = 100
#: And when an entry that could be forgotten is so old: the server knows its batches for some weeks
#: only, and a later run tells again what is kept.
SNAPSHOT_AFTER = timedelta(days=1)
#: How often a load begins again because another run compacts under it.
_LOADS = 20

#: What is counted whichever run says it, and moves no task.
_COUNTED = (*FAILED, RecordsDeadLettered, DeadLettersFailed, RetriesCounted)

T = TypeVar("T")

_entry = msgspec.json.Decoder(Entry)
_ledger = msgspec.json.Decoder(Ledger)


class Superseded(ArresterError):
    """A newer run owns the checkpoint; end, and change nothing any more."""


class EntryFound(ArresterError):
    """An entry of ours, whose create had failed, is there after all; what is next goes by it."""


class JournalDamaged(ArresterError):
    """An entry cannot be read, or is missing; restore the named file, or start a new checkpoint."""


class Journal:
    """One pipeline's decisions at one checkpoint: the sole durable truth beside Spark's own files.

    Not safe for two threads: its owner holds the pipeline's lock. Two processes are told apart by
    the create that never overwrites: whoever finds its next number taken is Superseded.
    """

    def __init__(self, files: Storage, *, application: str, pipeline: str, checkpoint: str) -> None:
        self._files = files
        self.ledger = Ledger(application=application, pipeline=pipeline, checkpoint=checkpoint)
        #: Entries that are not settled, in order and without what is bulky of them.
        self.kept: list[Entry] = []
        #: Whole entries that were made and not told yet, by number.
        self._fresh: dict[int, Entry] = {}
        self._snapshot = 0
        #: The entry whose create raised last: it may be there all the same.
        self._unsure: Entry | None = None

    def load(self) -> None:
        """Read the newest snapshot and all entries; fold those that the snapshot does not have.

        Raises JournalDamaged when one cannot be read, or is missing; CheckpointUnusable when
        another version wrote them.
        """
        self._check_format()
        for left in reversed(range(_LOADS)):
            names = self._files.names(FOLDER)
            try:
                self._load(names)
            except JournalDamaged:
                # Another run may have compacted meanwhile: then there is a newer snapshot.
                if not left or self._files.names(FOLDER) == names:
                    raise
            else:
                return

    def _load(self, names: list[str]) -> None:
        empty = self.ledger
        self.ledger = Ledger(
            application=empty.application, pipeline=empty.pipeline, checkpoint=empty.checkpoint
        )
        self.kept = []
        snapshots = [name for name in names if name.startswith(_SNAPSHOT)]
        if snapshots:
            self.ledger = self._decoded(max(snapshots), _ledger)
        self._snapshot = self.ledger.number
        numbers = sorted(int(name.removesuffix(".json")) for name in names if name[0].isdigit())
        for number in numbers:
            if number <= self.ledger.settled:
                continue
            if number > self._snapshot and number != self.next_number:
                where = f"{self._files.root}/{FOLDER}"
                raise JournalDamaged(f"entry {self.next_number} is missing in {where}")
            entry = self._decoded(_file_name(number), _entry)
            self.kept.append(replace(entry, events=(), skipped=()))
            if number > self._snapshot:
                self.ledger.apply(entry)

    def _check_format(self) -> None:
        """Write the format's version into a new checkpoint; refuse another version."""
        found = self._files.read(_FORMAT_FILE)
        if found is None and not self._files.names(FOLDER):
            with suppress(FileTaken):
                self._files.create(_FORMAT_FILE, _FORMAT)
            found = self._files.read(_FORMAT_FILE)
        if found != _FORMAT:
            written = "a version before 0.2.0" if found is None else f"format {found!r:.20}"
            raise CheckpointUnusable(
                f"{self._files.root}/arrester was written by {written}; this version reads "
                f"format {_FORMAT.decode()}: start with a new checkpoint"
            )

    @property
    def next_number(self) -> int:
        """The number that the next entry will have, if nobody else takes it."""
        return self.ledger.number + 1

    def check_owned(self) -> None:
        """Raise Superseded when somebody has taken our next number."""
        while self._files.exists(f"{FOLDER}/{_file_name(self.next_number)}"):
            if self._unsure is None or not self._is_there(self._unsure):
                raise Superseded(
                    f"a newer run than {self.ledger.epoch} owns {self._files.root}; this one ends"
                )
            self._take(self._unsure)

    def append(self, entry: Entry) -> Entry:
        """Make `entry` durable under the next number and fold it.

        Raises Superseded when the number is somebody else's; EntryFound when it is that of an entry
        of ours that was given up, whose create had raised. What a create raises when it has made
        the file all the same (a name node that did not answer in time) is only logged.
        """
        entry = replace(entry, number=self.next_number)
        path = f"{FOLDER}/{_file_name(entry.number)}"
        try:
            self._files.create(path, msgspec.json.encode(entry))
        except FileTaken as exc:
            # Hadoop's client repeats a call that was not answered.
            if not self._is_there(entry):
                self.check_owned()
                raise EntryFound(f"entry {entry.number} of {self._files.root} was made") from exc
        except BaseException as exc:
            self._unsure = entry
            if not isinstance(exc, Exception) or not self._is_there(entry):
                raise
            _log.warning("%s was made, although it raised: %s", path, exc)
        return self._take(entry)

    def _is_there(self, entry: Entry) -> bool:
        """Whether an entry was made: nobody else's has its time, its epoch and its events."""
        content = self._files.read(f"{FOLDER}/{_file_name(entry.number)}")
        return content == msgspec.json.encode(entry)

    def _take(self, entry: Entry) -> Entry:
        self._unsure = None
        self.ledger.apply(entry)
        self._fresh[entry.number] = entry
        self.kept.append(replace(entry, events=(), skipped=()))
        return entry

    def told(self, number: int) -> list[tuple[UUID, list[Event]]]:
        """Return the events of an entry as the batches they travel in, the same for ever.

        None are left of an entry that an older run has just forgotten: it was confirmed.
        """
        ledger = self.ledger
        if number not in self._fresh and self._is_forgotten(number):
            return []
        entry = self._fresh.pop(number, None) or self._decoded(_file_name(number), _entry)
        return [
            (
                commit_id(
                    entry.at,
                    application=ledger.application,
                    pipeline=ledger.pipeline,
                    checkpoint=ledger.checkpoint,
                    entry=entry.number,
                    part=part,
                ),
                list(entry.events[first : first + BATCH_MAX_EVENTS]),
            )
            for part, first in enumerate(range(0, len(entry.events), BATCH_MAX_EVENTS))
        ]

    def moves_tasks(self, number: int) -> bool:
        """Whether the events of an entry say how tasks stand, and not only what has failed."""
        if number not in self._fresh and self._is_forgotten(number):
            return False
        entry = self._fresh.get(number) or self._decoded(_file_name(number), _entry)
        told = [event.data for event in entry.events if not isinstance(event.data, _COUNTED)]
        return any(isinstance(data, TASK_EVENTS) for data in told)

    def compaction_due(self, *, is_settled: Callable[[Entry], bool], now: datetime) -> bool:
        """Whether so many entries were made, or the oldest is so old, that a snapshot is worth it.

        `is_settled` as in `compact`.
        """
        made = self.ledger.number - self._snapshot
        if made >= SNAPSHOT_EVERY:
            return True
        oldest = self.kept[0] if made and self.kept else None
        return oldest is not None and now - oldest.at > SNAPSHOT_AFTER and is_settled(oldest)

    def compact(
        self, *, is_settled: Callable[[Entry], bool], is_needed: Callable[[Aside], bool]
    ) -> None:
        """Make a snapshot, and delete what it holds and nobody needs.

        `is_settled` says of an entry that its events are confirmed and its micro-batch is
        committed; `is_needed` of a folder of rows that some of them are still wanted. Raises
        Superseded. A run may freeze at any line of this while a newer one goes on: its snapshot
        is older then, replaces none, and is passed over.
        """
        self.check_owned()
        settled = self.ledger.settled
        for entry in self.kept:
            if not is_settled(entry):
                break
            settled = entry.number
        needed: list[Aside] = []
        gone: list[Aside] = []
        for aside in self.ledger.asides:
            (needed if is_needed(aside) else gone).append(aside)
        self.ledger.asides = needed
        self.ledger.settled = settled
        self._make_snapshot()
        for name in [aside.name for aside in gone if aside.name is not None]:
            self._files.delete(f"{ASIDE_FOLDER}/{name}")
        self._forget(settled)

    def drop(self, aside: str) -> None:
        """Delete a folder of rows that no entry names."""
        self._files.delete(f"{ASIDE_FOLDER}/{aside}")

    def drop_orphans(self) -> list[str]:
        """Delete folders of rows that no entry names, and return their names; raises Superseded.

        A run that was killed just before its entry has left them. No older run can name them any
        more: its next entry would have the number that ours has taken.
        """
        found = self._files.names(ASIDE_FOLDER)
        # What a newer run puts aside is not among them, if there is none yet.
        self.check_owned()
        named = {aside.name for aside in self.ledger.asides}
        orphans = [name for name in found if name not in named]
        for name in orphans:
            self.drop(name)
        return orphans

    def _forget(self, settled: int) -> None:
        """Delete settled entries, but no `run`: it stands where an older run would write next."""
        for entry in self.kept:
            if entry.number <= settled and entry.kind is not Kind.RUN:
                self._files.delete(f"{FOLDER}/{_file_name(entry.number)}")
        self.kept = [entry for entry in self.kept if entry.number > settled]

    def _make_snapshot(self) -> None:
        name = _snapshot_name(self.ledger.number)
        try:
            self._files.create(f"{FOLDER}/{name}", msgspec.json.encode(self.ledger))
        except FileTaken as exc:
            # An attempt of this run before may have made it, although it raised.
            if self._decoded(name, _ledger).epoch != self.ledger.epoch:
                raise Superseded(f"a newer run owns {self._files.root}; this one ends") from exc
        self._snapshot = self.ledger.number
        for each in self._snapshots():
            if each < name:
                self._files.delete(f"{FOLDER}/{each}")

    def _is_forgotten(self, number: int) -> bool:
        """Whether a compaction has deleted the entry: only then is there a snapshot above it."""
        if self._files.exists(f"{FOLDER}/{_file_name(number)}"):
            return False
        return any(name >= _snapshot_name(number) for name in self._snapshots())

    def _snapshots(self) -> list[str]:
        return [name for name in self._files.names(FOLDER) if name.startswith(_SNAPSHOT)]

    def _decoded(self, name: str, decoder: msgspec.json.Decoder[T]) -> T:
        content = self._files.read(f"{FOLDER}/{name}") or b""
        try:
            return decoder.decode(content)
        except msgspec.DecodeError as exc:
            where = f"{self._files.root}/{FOLDER}/{name}"
            raise JournalDamaged(f"{where} cannot be read: {exc}") from exc


def _file_name(number: int) -> str:
    return f"{number:020d}.json"


def _snapshot_name(number: int) -> str:
    return f"{_SNAPSHOT}{_file_name(number)}"
