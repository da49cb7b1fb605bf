"""Events about failed records: failures, retries and dead letters."""

from __future__ import annotations

from uuid import UUID

from arrester.domain.events.parts import Count, Data, Failure, FinalResponse, Position


class RecordFailed(Data, frozen=True, kw_only=True, tag=True):
    """The response to a failed record was decided; reported in full, with a body."""

    task: str | None
    position: Position | None
    failure: Failure
    response: FinalResponse
    #: The record's key, if the pipeline names one.
    key: str | None = None
    #: The same record failed again after a resume or restart: an attempt, not another record.
    recurrence: bool = False
    #: Whether the agent has logged it (errors.log.enable).
    logged: bool = False
    #: Whether the body has lines of source.
    with_source: bool = False

    @property
    def count(self) -> int:
        """The number of failed records that this event adds."""
        return 0 if self.recurrence else 1


class FailuresCounted(Data, frozen=True, kw_only=True, tag=True):
    """More records of a task failed the same way; counted only."""

    task: str | None
    failure: Failure
    response: FinalResponse
    count: Count
    first_position: Position | None
    last_position: Position | None
    #: The split among the groups of one task and stage is an estimate; its sum is exact.
    estimated: bool = False
    #: Whether the agent has logged a line about them (errors.log.enable).
    logged: bool = False


class RetriesCounted(Data, frozen=True, kw_only=True, tag=True):
    """Attempts at records of a task failed and a repetition succeeded: no record failed."""

    task: str | None
    #: Failed attempts, each followed by another one.
    retries: Count


class DeadLetterIds(Data, frozen=True, kw_only=True):
    """Dead letters in order of position. `wire.dead_letter_columns` packs and reads them."""

    #: Either the positions, of which the ids are computed, or the ids of 16 bytes each.
    positions: bytes | None = None
    ids: bytes | None = None


class DeadLetterColumns(DeadLetterIds, frozen=True, kw_only=True):
    """All dead letters of an event, also as packed columns of numbers."""

    #: The error groups that `causes` refers to.
    fingerprints: tuple[str, ...] = ()
    #: The error group of each, from 1; 0: it did not fail, or the cause is not known.
    causes: bytes
    #: The size of each record as JSON, in bytes.
    sizes: bytes


class RecordsDeadLettered(Data, frozen=True, kw_only=True, tag=True):
    """Skipped records of a task were written as dead letters to a destination.

    Many of one task are several events.
    """

    task: str | None
    count: Count
    place: str
    format: str
    first_position: Position | None
    last_position: Position | None
    #: The person who skipped the record; None if a handler did.
    actor: str | None = None
    reason: str | None = None
    #: The ids of the first of them at the destination, ordered by position.
    ids: tuple[str, ...] = ()
    #: Each of them; None: reported by an older agent, and only the first ids are known.
    records: DeadLetterColumns | None = None


class DeadLettersFailed(Data, frozen=True, kw_only=True, tag=True):
    """Attempts to write dead letters of a task failed; none of them is lost."""

    task: str | None
    #: Failed attempts, summed over the dead letters.
    failures: Count
    #: Dead letters that wait in the checkpoint to be written later; 0: a further attempt succeeded.
    waiting: int
    place: str
    format: str
    failure: Failure


class RecordsRedriven(Data, frozen=True, kw_only=True, tag=True):
    """Dead letters of a task are held, to be processed again.

    RecordsHeld reports when they are processed, unless a later event reports one of them as a dead
    letter again. Many of one task are several events.
    """

    task: str | None
    count: Count
    first_position: Position | None
    last_position: Position | None
    actor: str | None = None
    reason: str | None = None
    #: The command of the redrive; None: the driver called `agent.redrive`.
    redrive: UUID | None = None
    records: DeadLetterIds


class DeadLettersDiscarded(Data, frozen=True, kw_only=True, tag=True):
    """A person discarded dead letters of a task: the server does not redrive them.

    Many of one task are several events.
    """

    pipeline: str
    checkpoint: str
    task: str | None
    count: Count
    first_position: Position | None
    last_position: Position | None
    actor: str
    reason: str
    records: DeadLetterIds


RecordEvent = (
    RecordFailed
    | FailuresCounted
    | RetriesCounted
    | RecordsDeadLettered
    | DeadLettersFailed
    | RecordsRedriven
)
#: The events that count failed records.
FAILED = (RecordFailed, FailuresCounted)
