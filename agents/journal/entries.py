"""Entries of the journal: one per commit. Plain data."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from arrester.domain.events import Body, Event, Failure
from arrester.domain.python_versions import StrEnum

#: Where there is no micro-batch yet; Spark's first has the number 0.
NO_BATCH = -1


class EntryKind(StrEnum):
    """Why an entry was made."""

    #: A run has claimed the checkpoint.
    RUN = "run"
    #: Decisions of a Spark micro-batch, made before its sink.
    BATCH = "batch"
    #: Decisions of chunks of held records, made before their sink.
    DRAIN = "drain"
    #: The sink of the last chunks of held records has returned.
    DRAINED = "drained"
    #: A resume was accepted.
    RESUME = "resume"
    #: An operator paused a task.
    PAUSE = "pause"
    #: Dead letters are held again, so that they are processed once more.
    REDRIVE = "redrive"
    #: An operator paused or resumed the pipeline, or the time of its pause was over.
    PIPELINE = "pipeline"
    #: An operator set or removed a policy override of a stage.
    POLICY = "policy"
    #: A command was refused. A redelivery gets the same answer.
    REFUSED = "refused"
    #: Dead letters of a `resume` were stored; or some were not written to their destination, or not
    #: at the first attempt.
    DEAD_LETTERS = "dead_letters"
    #: The run ended with an error.
    DIED = "died"
    #: The run ended on purpose.
    STOPPED = "stopped"


class Cursor(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A place in a task, by entry, then by position; position None: the beginning of the entry."""

    entry: int
    position: int | None = None


class HeldCount(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The number of rows of a task that an entry holds."""

    task: str | None
    count: int
    #: Those of the record that stops the task; None: it does not stop here, or 0.2.0 wrote none.
    stopping: int | None = None
    #: The lowest and the highest position; None: a row has no position, or 0.2.0 wrote none.
    first: int | None = None
    last: int | None = None


class MendedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The held record that a command has changed: its rows are those of one journal entry."""

    #: The entry that held it, and its position there.
    entry: int
    position: int
    #: The number of the entry that changed it.
    by: int


class SkippedRecords(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Failed records of a task that do not go to the sink: a replay skips exactly these."""

    task: str | None
    #: The entry that held them; 0 for records of the source.
    entry: int = 0
    positions: tuple[int | None, ...]


class Chunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Held rows of one task from `start` up to, not including, `end`."""

    task: str | None
    start: Cursor
    end: Cursor
    #: The number of held rows that it processes.
    taken: int
    #: The last Spark micro-batch before it. Together with the count of drains it gives the sink's
    #: number.
    after: int = NO_BATCH
    #: The number of rows of the record at `end`, if its task stops there.
    stopping: int | None = None
    #: The record of the task that a command has changed.
    mended: MendedRecord | None = None


class StoppingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record at which a task is PAUSED or DEAD. If it fails again, that is no new failed
    record."""

    position: int | None
    failure: Failure
    body: Body | None = None
    key: str | None = None


class UnstoredDeadLetters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Held records that a command skipped: their dead letters are not stored yet."""

    #: The name of the dead letters; it never changes.
    name: str
    chunk: Chunk
    at: datetime
    command: UUID | None = None
    reason: str | None = None
    actor: str | None = None
    #: The failed record, which is one of them.
    stopped_by: StoppingRecord | None = None


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The name of an entry's dead letters, and the UTC day that they belong to."""

    #: It never changes.
    name: str
    day: str
    #: The folder of those that are still pending; None: it has the name of all of them.
    folder: str | None = None
    #: The destination rejected them permanently, and the handler was called about it.
    refused: bool = False


class RecordsChecksum(msgspec.Struct, frozen=True, kw_only=True):
    """Count and checksum of the records that an entry holds or skips, to check a replay."""

    count: int
    #: XOR of one hash per record.
    combined_hash: int = msgspec.field(name="checksum")
    #: Digest of the source columns in the hashes.
    columns: str


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One commit of the journal: the decisions, and the events that report them."""

    kind: EntryKind
    at: datetime
    epoch: int
    #: Assigned by the journal.
    number: int = 0
    instance: UUID | None = None
    #: Of a `run` entry: the owner of the checkpoint from here on. 0.2.0 wrote none.
    application: str | None = None
    pipeline: str | None = None
    events: tuple[Event, ...] = ()
    #: The Spark micro-batch of a `batch` entry.
    batch: int | None = None
    #: Of a `pause` or `redrive` entry: the last micro-batch that may have reached the sink before.
    #: Of a `run` entry: the last one that was committed. 0.2.0 wrote none.
    after: int = NO_BATCH
    #: The folder of rows that this entry saved: held rows, and coordinates of skipped ones.
    row_folder: str | None = None
    #: The order of its held rows. Differs from `number` when a micro-batch is decided again.
    order: int | None = None
    held: tuple[HeldCount, ...] = ()
    #: The skipped records, if they are few and no row is held. They need no folder.
    skipped: tuple[SkippedRecords, ...] = ()
    #: Of a `batch` entry that holds or skips records. 0.2.0 wrote none.
    checksum: RecordsChecksum | None = msgspec.field(default=None, name="decided")
    #: Of a `drain` entry: held rows of one or more tasks, at most one chunk of each.
    chunks: tuple[Chunk, ...] = ()
    #: Of a `resume` past a record, the rows that were skipped. 0.2.0 also had the rows of a `drain`
    #: entry here.
    chunk: Chunk | None = None
    dead_letters: DeadLetters | None = None
    #: Of a `resume` past held records, if dead letters are enabled.
    unstored: UnstoredDeadLetters | None = None
    #: Of a `resume` that changes the failed record, whose new rows are in `row_folder`.
    mended: MendedRecord | None = None
    #: Of a `redrive` entry: the folder with the ids of its dead letters.
    redriven: str | None = None
