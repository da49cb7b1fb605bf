"""Skipped records with their errors: stored in the checkpoint, then written to the destination."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Row

from arrester.agents.config import AgentConfig
from arrester.agents.dead_letters.destinations import Destination, RejectedLetters
from arrester.agents.dead_letters.pending_files import PendingDeadLetters
from arrester.agents.dead_letters.schema import DeadLetterContext, DeadLetterRows
from arrester.agents.dead_letters.summary import dead_letter_events
from arrester.agents.dead_letters.writer import DeadLetterWriter
from arrester.agents.decisions.events import EventFactory
from arrester.agents.decisions.policies import StagePolicy, redaction_of
from arrester.agents.decisions.rules import Responder, SelfHealing
from arrester.agents.failure_log import say
from arrester.agents.failures.causes import failure
from arrester.agents.failures.failed_record import FailedRecord, produce_number
from arrester.agents.handlers import RecordError
from arrester.agents.journal.entries import DeadLetters, Entry, Kind
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.storage import Storage
from arrester.agents.spark.errors import Problem
from arrester.controlplane.domain.error_policy.classify import Kind as Ruled
from arrester.controlplane.domain.error_policy.log_levels import Saying
from arrester.controlplane.domain.error_policy.policy import Policy, StageKind
from arrester.controlplane.domain.error_policy.respond import Decided
from arrester.controlplane.domain.error_policy.retry import RetryPolicy
from arrester.controlplane.domain.errors import ArresterError
from arrester.controlplane.domain.events import DeadLettersFailed, RecordsDeadLettered, Response

#: Seconds between attempts after a permanent rejection: the first and the longest wait.
_RETRY_SECONDS, _RETRY_SECONDS_MAX = 60, 3_600


class DeadLettersNotWritten(ArresterError):
    """Dead letters could not be written and the handler did not answer CONTINUE: the run ends.

    They stay in the checkpoint. The next run writes them before anything else.
    """

    def __init__(self, place: str, problem: Problem) -> None:
        super().__init__(
            f"dead letters cannot be written to {place}: "
            f"{problem.exception_class}: {problem.message}"
        )
        self.problem = problem
        self.raised = RecordError(
            problem.exception_class,
            problem.message,
            condition=problem.condition,
            stack=problem.stack,
        )


@dataclass(slots=True)
class _Waiting:
    """Pending dead letters of one entry."""

    letters: DeadLetters
    #: Failed attempts of this run, and the earliest time of the next one.
    failed: int = 0
    not_before: datetime | None = None

    def put_off(self, now: datetime) -> None:
        """Wait longer after each failure; after the first one, until the next dead letters only."""
        self.failed += 1
        if self.failed > 1:
            seconds = min(_RETRY_SECONDS * 2 ** min(self.failed - 2, 10), _RETRY_SECONDS_MAX)
            self.not_before = now + timedelta(seconds=seconds)


@dataclass(slots=True, kw_only=True)
class DeadLetterQueue:
    """The dead letters of one run: stored before the entry that names them, written after it.

    The caller holds the pipeline's lock.
    """

    kept: PendingDeadLetters
    place: Destination
    writing: DeadLetterRows
    journal: Journal
    event_factory: EventFactory
    responder: Responder
    clock: Callable[[], datetime]
    #: Raises if the run is to end.
    check: Callable[[], None]
    writer: DeadLetterWriter
    #: The policy of stage produce, with its retry limit.
    policy: Policy
    #: Written in order; permanently rejected ones do not block those after them.
    _waiting: list[_Waiting] = field(default_factory=list)

    def follow(self, stages: Mapping[int, StagePolicy]) -> None:
        """Apply a changed policy of stage produce to dead letters too."""
        number = produce_number(self.responder.pipeline)
        self.policy = stages[number].policy
        self.responder.stages = _spent(stages, number)

    def put(
        self, frame: DataFrame, known: Sequence[FailedRecord], said: DeadLetterContext
    ) -> tuple[DeadLetters, list[RecordsDeadLettered]]:
        """Store the dead letters of some records; return their name and the events that report
        them.

        `frame` has the columns ROW, TASK, POSITION, FATE and ERROR. Nothing is visible at the
        destination before `deliver`.
        """
        letters = DeadLetters(name=said.name, day=said.at.astimezone(UTC).date().isoformat())
        made = self.writing.letters(frame, known, said, raw=self.place.raw)
        made.write.mode("overwrite").parquet(self.kept.path(letters))
        place, format = self.place.name(letters), self.place.format
        return letters, dead_letter_events(
            self.kept.read(letters), said, place=place, format=format
        )

    def expect(self) -> None:
        """Take over the dead letters that earlier runs stored and did not write."""
        there = self.kept.names()
        for letters in list(self.journal.ledger.pending_dead_letters.values()):
            if letters.name not in there:
                del self.journal.ledger.pending_dead_letters[letters.name]
            elif self.kept.is_waiting(letters):
                self._waiting.append(_Waiting(letters))
            else:
                self._forget(letters)

    def deliver(self, letters: DeadLetters | None = None) -> None:
        """Write `letters`, after the pending ones.

        A failure is counted and reported, then the production handler is called. After CONTINUE the
        dead letters stay pending; any other response raises DeadLettersNotWritten. About a
        permanent rejection the handler is called once. Later attempts follow at intervals and at
        the next start.
        """
        if letters is not None:
            self._waiting.append(_Waiting(letters))
        for each in list(self._waiting):
            if each.not_before is not None and self.clock() < each.not_before:
                continue
            self.check()
            if not self._delivered(each):
                return

    def _delivered(self, waiting: _Waiting) -> bool:
        """Write the dead letters of one entry; return whether the next ones may be written."""
        letters = waiting.letters
        refused = self.writer.written(letters, self.policy)
        left = [each for each in refused if each.waiting]
        # A failure that may be temporary is decided first.
        blamed = min(left, key=self._is_for_good, default=None)
        if blamed is None:
            if refused:
                self._tell(letters, refused)
            self._waiting.remove(waiting)
            self._forget(letters)
            return True
        for_good, asked = self._is_for_good(blamed), letters.refused
        waiting.letters = msgspec.structs.replace(letters, refused=asked or for_good)
        waiting.put_off(self.clock())
        ids = [each.ids for each in left]
        if None not in ids:
            self.kept.keep_only(letters, [id for some in ids for id in some or ()])
        self._tell(waiting.letters, refused)
        if not (for_good and asked):
            self._decide(letters, blamed)
        return for_good

    def _is_for_good(self, refused: RejectedLetters) -> bool:
        """Whether the dead letters themselves are the cause, so that a retry cannot help."""
        stage = self.responder.stages[produce_number(self.responder.pipeline)]
        return stage.policy.table.classify(refused.problem.cause).kind is Ruled.OTHER

    def _forget(self, letters: DeadLetters) -> None:
        self.kept.forget(letters)
        self.journal.ledger.pending_dead_letters.pop(letters.name, None)

    def _tell(self, letters: DeadLetters, refused: Sequence[RejectedLetters]) -> None:
        at, place = self.clock(), self.place.name(letters)
        failures = sum(each.failures for each in refused)
        waiting, problem = sum(each.waiting for each in refused), refused[0].problem
        say(
            Saying.DEAD_LETTER_FAILED,
            f"{failures} writes of dead letters to {place} failed, {waiting} wait: "
            f"{problem.exception_class}: {problem.message}",
        )
        told = [
            DeadLettersFailed(
                task=each.task,
                failures=each.failures,
                waiting=each.waiting,
                place=place,
                format=self.place.format,
                failure=failure(StageKind.PRODUCE, each.problem),
            )
            for each in refused
        ]
        self.journal.append(
            Entry(
                kind=Kind.DEAD_LETTERS,
                at=at,
                epoch=self.event_factory.run.epoch,
                events=tuple(self.event_factory.event(each, at) for each in told),
                dead_letters=letters if waiting else None,
            )
        )

    def _decide(self, letters: DeadLetters, refused: RejectedLetters) -> None:
        """Call the production handler once, about the first dead letter."""
        first = self._first(letters, refused.problem)
        # This is no further failed record of its task, so the tolerance does not count it.
        responder = replace(self.responder, runs={})
        try:
            fate = responder.respond_to_one(first, now_ms=responder.now_ms())
        except SelfHealing as exc:
            raise DeadLettersNotWritten(self.place.name(letters), refused.problem) from exc
        response = fate.response if isinstance(fate, Decided) else Response.FAIL
        if response is Response.PAUSE:
            say(Saying.PAUSE_REFUSED, f"dead letters for {self.place.name(letters)}")
        if response is not Response.CONTINUE:
            raise DeadLettersNotWritten(self.place.name(letters), refused.problem)

    def _first(self, letters: DeadLetters, problem: Problem) -> FailedRecord:
        row = self.kept.read(letters).orderBy("task", "position").first()
        assert row is not None
        pipeline = self.writing.pipeline
        return FailedRecord(
            task=row["task"],
            position=row["position"],
            entry=0,
            number=produce_number(pipeline),
            stage=StageKind.PRODUCE,
            problem=problem,
            row=row_of(json.loads(row["row"])),
            key=None,
            value=None,
        )


def row_of(values: dict[str, Any]) -> Row:
    """Return the row. Its columns may have any names, also those of Python's arguments."""
    return Row(*values)(*values.values())


def _spent(stages: Mapping[int, StagePolicy], number: int) -> dict[int, StagePolicy]:
    """Return the policies without retries: they are used up before the handler is called."""
    said = stages[number]
    policy = msgspec.structs.replace(said.policy, retry=RetryPolicy())
    return {**stages, number: replace(said, policy=policy)}


def open_dead_letter_queue(
    place: Destination,
    *,
    responder: Responder,
    files: Storage,
    journal: Journal,
    event_factory: EventFactory,
    config: AgentConfig,
    check: Callable[[], None],
    wait: Callable[[int], None],
    given_up_on_stop: Callable[[], AbstractContextManager[None]],
) -> DeadLetterQueue:
    """Return the queue of one run, with the dead letters that earlier runs left."""
    number, spark = produce_number(responder.pipeline), responder.pipeline.source.sparkSession
    kept = PendingDeadLetters(spark=spark, files=files)
    box = DeadLetterQueue(
        kept=kept,
        place=place,
        writing=DeadLetterRows(
            pipeline=responder.pipeline,
            application=config.application,
            checkpoint=journal.ledger.checkpoint,
            configs=config.errors.dead_letters.include_configs,
            redaction=redaction_of(responder.pipeline, config)
            if config.errors.dead_letters.redact
            else None,
        ),
        journal=journal,
        event_factory=event_factory,
        responder=replace(responder, stages=_spent(responder.stages, number)),
        clock=responder.clock,
        check=check,
        writer=DeadLetterWriter(
            spark=spark,
            kept=kept,
            place=place,
            now_ms=responder.now_ms,
            check=check,
            wait=wait,
            given_up_on_stop=given_up_on_stop,
        ),
        policy=responder.stages[number].policy,
    )
    box.expect()
    return box
