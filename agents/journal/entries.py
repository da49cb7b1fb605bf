"""What stands in a journal: one entry per commit, its kinds and parts. Plain data."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from arrester.controlplane.domain.events import Event

#: Where there is no micro-batch yet; Spark's first has the number 0.
NO_BATCH = -1


class Kind(StrEnum):
    """Why an entry was made."""

    #: A run has claimed the checkpoint.
    RUN = "run"
    #: Decisions of a Spark micro-batch, made before its sink.
    BATCH = "batch"
    #: Decisions of one chunk of held records, made before its sink.
    DRAIN = "drain"
    #: That chunk's sink has returned.
    DRAINED = "drained"
    #: A resume was accepted.
    RESUME = "resume"
    #: A person paused a task by hand.
    PAUSE = "pause"
    #: A person set what failures of a stage are answered, or took it back.
    POLICY = "policy"
    #: A command was refused: a redelivery gets the same answer.
    REFUSED = "refused"
    #: Dead letters could not be written to their place, or not at once.
    LETTERS = "letters"
    #: The run ended by an error.
    DIED = "died"
    #: The run ended on purpose.
    STOPPED = "stopped"


class Cursor(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The first held row not yet taken, by (entry, position); position None: all of the entry."""

    entry: int
    position: int | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of a task an entry put aside."""

    task: str | None
    count: int


class Skipped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Failed records of a task that do not go to the sink: a replay skips just them."""

    task: str | None
    #: The entry that held them, 0 for new ones.
    entry: int = 0
    positions: tuple[int | None, ...]


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Held rows of one task from `start` up to, not including, `end`."""

    task: str | None
    start: Cursor
    end: Cursor
    #: How many rows leave the held ones by it.
    taken: int
    #: The last Spark micro-batch before it: with the count of chunks, the sink's number.
    after: int = NO_BATCH


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Under what name an entry's dead letters are kept, and the UTC day they belong to."""

    #: For ever.
    name: str
    day: str
    #: What is left of them was refused for good, and somebody was asked about it.
    refused: bool = False


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One commit of the journal: what was decided, and the events that tell of it."""

    kind: Kind
    at: datetime
    epoch: int
    #: Given by the journal.
    number: int = 0
    instance: UUID | None = None
    events: tuple[Event, ...] = ()
    #: The Spark micro-batch of a `batch` entry.
    batch: int | None = None
    #: Of a `pause` entry: the last micro-batch whose rows the sink may have had before it.
    after: int = NO_BATCH
    #: The folder with the rows that this entry put aside: held ones and skipped coordinates.
    aside: str | None = None
    #: The place of its held rows in the order; not its own when a batch is decided about again.
    order: int | None = None
    held: tuple[Held, ...] = ()
    #: Where they are few and nothing is held: the failed records, which then stand in no folder.
    skipped: tuple[Skipped, ...] = ()
    #: Of a `drain` entry; of a `resume` past a record, the rows that were skipped.
    chunk: Chunk | None = None
    dead_letters: DeadLetters | None = None
