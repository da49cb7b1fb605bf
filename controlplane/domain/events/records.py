"""What happens to records that failed."""

from __future__ import annotations

from arrester.controlplane.domain.events.base import Count, Data, Failure, Position, Response


class RecordFailed(Data, frozen=True, kw_only=True, tag=True):
    """A record's fate was decided by a failure; told in full, with a body."""

    task: str | None
    position: Position | None
    failure: Failure
    response: Response
    #: The record's key, where the pipeline names one.
    key: str | None = None
    #: The same record failed again after a resume or restart: an attempt, not another record.
    recurrence: bool = False
    #: Whether it stands in the agent's log (errors.log.enable).
    logged: bool = False

    @property
    def count(self) -> int:
        """How many failed records this event adds."""
        return 0 if self.recurrence else 1


class FailuresCounted(Data, frozen=True, kw_only=True, tag=True):
    """More records of a task failed the same way; counted, not described."""

    task: str | None
    failure: Failure
    response: Response
    count: Count
    first_position: Position | None
    last_position: Position | None
    #: The split among the groups of one task and stage is an estimate; its sum is exact.
    estimated: bool = False
    #: Whether the agent's log has a line about them (errors.log.enable).
    logged: bool = False


class RetriesCounted(Data, frozen=True, kw_only=True, tag=True):
    """Attempts at records of a task failed and were repeated, and it helped: no record failed."""

    task: str | None
    #: Failed attempts, each followed by another one.
    retries: Count


class RecordsDeadLettered(Data, frozen=True, kw_only=True, tag=True):
    """Skipped records of a task were kept with their errors, at a place."""

    task: str | None
    count: Count
    place: str
    format: str
    first_position: Position | None
    last_position: Position | None
    #: Of the person who skipped the record; None when a handler did.
    actor: str | None = None
    reason: str | None = None
    #: What the first of them are known by at the place, in the order of their positions.
    ids: tuple[str, ...] = ()


class DeadLettersFailed(Data, frozen=True, kw_only=True, tag=True):
    """Attempts to write dead letters of a task to their place failed; none of them is lost."""

    task: str | None
    #: Failed attempts, of each dead letter.
    failures: Count
    #: How many still wait beside the checkpoint, to be written later; 0: a further attempt helped.
    waiting: int
    place: str
    format: str
    failure: Failure


RecordEvent = (
    RecordFailed | FailuresCounted | RetriesCounted | RecordsDeadLettered | DeadLettersFailed
)
#: What counts failed records.
FAILED = (RecordFailed, FailuresCounted)
