"""The journal in the checkpoint folder: numbered entries, each made by an atomic create."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from msgspec.structs import replace

from arrester.agents.journal.entries import NO_BATCH, Entry, EntryKind
from arrester.agents.journal.files import (
    FOLDER,
    JournalDamaged,
    JournalFiles,
    entry_numbers,
    entry_path,
    snapshot_numbers,
)
from arrester.agents.journal.ledger import Ledger, SavedRows
from arrester.agents.journal.storage import FileExists, Storage
from arrester.agents.journal.task_ledger import TASK_EVENTS
from arrester.domain.errors import ArresterError
from arrester.domain.events import (
    FAILED,
    DeadLettersFailed,
    Event,
    RecordsDeadLettered,
    RecordsRedriven,
    RetriesCounted,
)
from arrester.domain.identity.uuids import commit_id
from arrester.domain.wire import dead_letter_columns, limits
from arrester.domain.wire.codec import BATCH_MAX_EVENTS

_log = logging.getLogger("arrester.journal")

#: Rows that entries saved, one folder per entry.
ROWS_FOLDER = "arrester/held"
#: A snapshot is made after this many entries. Reading starts at the newest snapshot.
SNAPSHOT_EVERY = 100
#: A snapshot is also made when the oldest settled entry has this age: the server remembers batch
#: IDs for some weeks only, and a later run sends again what is in the journal.
SNAPSHOT_AFTER = timedelta(days=1)
#: How often loading restarts because another run compacts the journal at the same time.
_LOADS = 20

#: Events that count for any run and change no task.
_COUNTED = (
    *(*FAILED, RecordsDeadLettered, DeadLettersFailed),
    *(RecordsRedriven, RetriesCounted),
)


class Superseded(ArresterError):
    """A newer run owns the checkpoint. This run ends and changes nothing more."""


class EntryAlreadyMade(ArresterError):
    """A create of ours raised, but its entry exists: the caller continues from that entry."""


class Journal:
    """One pipeline's decisions at one checkpoint: the only durable truth besides Spark's own files.

    Not safe for two threads: the owner holds the pipeline's lock. Between processes, the create
    that never overwrites is the fence: a run whose next number is taken is superseded.
    """

    def __init__(self, files: Storage, *, application: str, pipeline: str, checkpoint: str) -> None:
        self._storage = files
        self._files = JournalFiles(files)
        self._empty = partial(
            Ledger, application=application, pipeline=pipeline, checkpoint=checkpoint
        )
        self.ledger = self._empty()
        #: Entries that are not settled, in order, without their bulky parts.
        self.unsettled: list[Entry] = []
        #: Complete entries that are not yet published, by number.
        self._unpublished: dict[int, Entry] = {}
        self._snapshot = 0
        #: The entry whose create raised last. It may exist nevertheless.
        self._uncertain: Entry | None = None

    def load(self) -> None:
        """Read the newest snapshot and fold the entries after it.

        Raises JournalDamaged if one is unreadable or missing, and CheckpointUnusable if another
        version wrote them.
        """
        self._files.check_format()
        for attempts_left in reversed(range(_LOADS)):
            names = self._files.names()
            try:
                self._load(names)
            except JournalDamaged:
                # Another run may have compacted in the meantime. Then there is a newer snapshot.
                if not attempts_left or self._files.names() == names:
                    raise
            else:
                return

    def _load(self, names: list[str]) -> None:
        snapshots = snapshot_numbers(names)
        self.ledger = self._files.snapshot(max(snapshots)) if snapshots else self._empty()
        self.unsettled = []
        self._snapshot = self.ledger.number
        numbers = entry_numbers(names)
        for number in numbers:
            if self.ledger.settled < number <= self._snapshot:
                self._add_unsettled(self._files.entry(number))
        # Later entries are found by their numbers: a listing may not contain the newest ones yet.
        while (entry := self._files.find_entry(self.next_number)) is not None:
            self._add_unsettled(entry)
            self.ledger.apply(entry)
        if numbers and numbers[-1] >= self.next_number:
            folder = f"{self._storage.root}/{FOLDER}"
            raise JournalDamaged(f"entry {self.next_number} is missing in {folder}")

    def _add_unsettled(self, entry: Entry) -> None:
        self.unsettled.append(replace(entry, events=(), skipped=()))

    @property
    def next_number(self) -> int:
        """The number of the next entry, unless another run takes it."""
        return self.ledger.number + 1

    def check_owned(self) -> None:
        """Raise Superseded if another run has taken the next number."""
        while self._files.has_entry(self.next_number):
            if self._uncertain is None or not self._files.is_entry(self._uncertain):
                raise self._superseded()
            self._fold(self._uncertain)

    def _superseded(self) -> Superseded:
        epoch, root = self.ledger.epoch, self._storage.root
        return Superseded(f"a newer run than {epoch} owns {root}; this one ends")

    def append(self, entry: Entry) -> Entry:
        """Make `entry` durable under the next number and fold it.

        Raises Superseded if another run has the number, and EntryAlreadyMade if an abandoned entry
        of ours has it, whose create had raised. If a create raises although it made the file (a
        name node that did not answer in time), this is only logged. The entry is read back: a store
        that let another run replace it must not let both continue.
        """
        entry = replace(entry, number=self.next_number)
        try:
            self._files.create_entry(entry)
            if not self._files.is_entry(entry):
                raise self._superseded()
        except Superseded:
            raise
        except FileExists as exc:
            # A client repeats a call that was not answered.
            if not self._files.is_entry(entry):
                self.check_owned()
                raise EntryAlreadyMade(
                    f"entry {entry.number} of {self._storage.root} was made"
                ) from exc
        except BaseException as exc:
            self._uncertain = entry
            if not isinstance(exc, Exception) or not self._files.is_entry(entry):
                raise
            path = entry_path(entry.number)
            _log.warning("%s was created although the call raised: %s", path, exc)
        return self._fold(entry)

    def _fold(self, entry: Entry) -> Entry:
        self._uncertain = None
        self.ledger.apply(entry)
        self._unpublished[entry.number] = entry
        self._add_unsettled(entry)
        return entry

    def event_batches(self, number: int) -> list[tuple[UUID, list[Event]]]:
        """Return the events of an entry in the batches that they are sent in; always the same ones.

        The list is empty if an older run has just deleted the entry: it was confirmed.
        """
        entry = self.entry(number)
        if entry is None:
            return []
        self._unpublished.pop(number, None)
        # An entry of before a renaming keeps its ids: the server may have it already.
        run = next((event.run for event in entry.events if event.run is not None), None)
        commit = partial(
            commit_id,
            entry.at,
            application=self.ledger.application,
            pipeline=self.ledger.pipeline if run is None else run.pipeline,
            checkpoint=self.ledger.checkpoint,
            entry=number,
        )
        return [
            (commit(part=f"{part}.{piece}" if piece else part), events)
            for part, first in enumerate(range(0, len(entry.events), BATCH_MAX_EVENTS))
            for piece, events in enumerate(_pieces(entry.events[first : first + BATCH_MAX_EVENTS]))
        ]

    def changes_tasks(self, number: int) -> bool:
        """Whether an entry changes the state of tasks, and does not only count failures."""
        entry = self.entry(number)
        events = [] if entry is None else [event.data for event in entry.events]
        return any(
            isinstance(data, TASK_EVENTS) and not isinstance(data, _COUNTED) for data in events
        )

    def entry(self, number: int) -> Entry | None:
        """Return a complete entry; None if compaction has deleted it."""
        if number in self._unpublished:
            return self._unpublished[number]
        # Compaction makes a later snapshot before it deletes.
        if not self._files.has_entry(number) and self._files.has_snapshot_since(number):
            return None
        return self._files.entry(number)

    def is_of_run(self, number: int, epoch: int) -> bool:
        """Whether the run that planned an entry of this number has made it.

        If it has not, a later run took the number by its `run` entry, which is never deleted.
        """
        if number > self.ledger.number:
            return False
        entry = self._files.find_entry(number)
        return entry is None or entry.epoch == epoch

    def committed_before(self, epoch: int) -> int:
        """Return the last micro-batch that was committed when a run began; NO_BATCH: unknown."""
        for number in reversed(entry_numbers(self._files.names())):
            entry = self._files.find_entry(number)
            if entry is not None and entry.kind is EntryKind.RUN and entry.epoch == epoch:
                return entry.after
        return NO_BATCH

    def compaction_due(self, *, is_settled: Callable[[Entry], bool], now: datetime) -> bool:
        """Whether enough entries exist, or the oldest is old enough, for a new snapshot.

        `is_settled` as in `compact`.
        """
        new = self.ledger.number - self._snapshot
        if new >= SNAPSHOT_EVERY:
            return True
        oldest = self.unsettled[0] if new and self.unsettled else None
        return oldest is not None and now - oldest.at > SNAPSHOT_AFTER and is_settled(oldest)

    def compact(
        self, *, is_settled: Callable[[Entry], bool], is_needed: Callable[[SavedRows], bool]
    ) -> None:
        """Make a snapshot and delete the entries and row folders that it replaces.

        `is_settled` returns whether an entry's events are confirmed and its micro-batch is
        committed, `is_needed` whether saved rows are still needed. Raises Superseded. A run may
        freeze at any line while a newer one continues: then its snapshot is older, replaces none
        and is ignored.
        """
        self.check_owned()
        settled = self.ledger.settled
        for entry in self.unsettled:
            if not is_settled(entry):
                break
            settled = entry.number
        needed: list[SavedRows] = []
        obsolete: list[SavedRows] = []
        for saved in self.ledger.saved_rows:
            (needed if is_needed(saved) else obsolete).append(saved)
        self.ledger.saved_rows = needed
        self.ledger.settled = settled
        self._make_snapshot()
        for name in [saved.name for saved in obsolete if saved.name is not None]:
            self.delete_rows(name)
        self._delete_settled(settled)

    def delete_rows(self, name: str) -> None:
        """Delete a folder of rows that no entry names."""
        self._storage.delete(f"{ROWS_FOLDER}/{name}")

    def delete_orphans(self) -> list[str]:
        """Delete the row folders that no entry names, and return their names; raises Superseded.

        A run that was killed just before its entry left them. No older run can name them any more:
        its next entry would have the number that this run has taken.
        """
        folders = self._storage.names(ROWS_FOLDER)
        # If no newer run exists at this point, none of its folders is in the list.
        self.check_owned()
        named = {saved.name for saved in self.ledger.saved_rows}
        orphans = [name for name in folders if name not in named]
        for name in orphans:
            self.delete_rows(name)
        return orphans

    def _delete_settled(self, settled: int) -> None:
        """Delete settled entries except `run`: it occupies the number where an older run would
        write next."""
        for entry in self.unsettled:
            if entry.number <= settled and entry.kind is not EntryKind.RUN:
                self._files.delete_entry(entry.number)
        self.unsettled = [entry for entry in self.unsettled if entry.number > settled]

    def _make_snapshot(self) -> None:
        number = self.ledger.number
        try:
            self._files.create_snapshot(self.ledger)
        except FileExists as exc:
            # An earlier attempt of this run may have made it although it raised.
            if self._files.snapshot(number).epoch != self.ledger.epoch:
                raise Superseded(f"a newer run owns {self._storage.root}; this one ends") from exc
        self._snapshot = number
        self._files.delete_snapshots_before(number)


def _pieces(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Divide the events of a batch whose columns of dead letters are too large for one entry."""
    piece: list[Event] = []
    size = 0
    for event in events:
        data = event.data
        records = data.records if isinstance(data, RecordsDeadLettered | RecordsRedriven) else None
        more = 0 if records is None else dead_letter_columns.size(records)
        if piece and size + more > limits.COLUMNS_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(event)
        size += more
    yield piece
