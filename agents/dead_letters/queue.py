"""Skipped records with their errors: kept beside the checkpoint, then written where they belong."""

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
from arrester.agents.dead_letters.destinations import Place, Refused
from arrester.agents.dead_letters.pending_files import LetterFiles
from arrester.agents.dead_letters.schema import Said, Writing
from arrester.agents.dead_letters.summary import letters_told
from arrester.agents.dead_letters.writer import LetterWriting
from arrester.agents.decisions.events import Teller
from arrester.agents.decisions.policies import StagePolicy, redaction_of
from arrester.agents.decisions.rules import Fates, SelfHealing
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

#: Between two attempts at what was refused for good: from the first bound up to the second.
_RETRY_SECONDS, _RETRY_SECONDS_MAX = 60, 3_600


class LettersFailed(ArresterError):
    """Dead letters could not be written and nobody said CONTINUE: the run ends, none is lost.

    They wait beside the checkpoint; the next run tries to write them before anything else.
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
    """Letters of one entry that are still to be written."""

    letters: DeadLetters
    #: Failed attempts of this run, and the time before which there is no further one.
    failed: int = 0
    not_before: datetime | None = None

    def put_off(self, now: datetime) -> None:
        """Wait longer after each failure; after the first one, until the next letters only."""
        self.failed += 1
        if self.failed > 1:
            seconds = min(_RETRY_SECONDS * 2 ** min(self.failed - 2, 10), _RETRY_SECONDS_MAX)
            self.not_before = now + timedelta(seconds=seconds)


@dataclass(slots=True, kw_only=True)
class LetterBox:
    """The dead letters of one run: put before the entry that names them, delivered after it.

    Its caller holds the pipeline's lock.
    """

    kept: LetterFiles
    place: Place
    writing: Writing
    journal: Journal
    teller: Teller
    fates: Fates
    clock: Callable[[], datetime]
    #: Raises when the run is to end.
    check: Callable[[], None]
    writer: LetterWriting
    #: What holds for stage produce: the budget of retries, too.
    policy: Policy
    #: Delivered in their order, but that what is refused for good holds up none behind it.
    _waiting: list[_Waiting] = field(default_factory=list)

    def follow(self, stages: Mapping[int, StagePolicy]) -> None:
        """Let what holds for stage produce from now on hold for letters too."""
        number = produce_number(self.fates.pipeline)
        self.policy = stages[number].policy
        self.fates.stages = _spent(stages, number)

    def put(
        self, frame: DataFrame, known: Sequence[FailedRecord], said: Said
    ) -> tuple[DeadLetters, list[RecordsDeadLettered]]:
        """Keep the letters of some records; return where, and what to tell in their entry.

        `frame` has the columns ROW, TASK, POSITION, FATE and ERROR. Nothing is to be seen at the
        place before `deliver`.
        """
        letters = DeadLetters(name=said.name, day=said.at.astimezone(UTC).date().isoformat())
        made = self.writing.letters(frame, known, said, raw=self.place.raw)
        made.write.mode("overwrite").parquet(self.kept.path(letters))
        place, format = self.place.name(letters), self.place.format
        return letters, letters_told(self.kept.read(letters), said, place=place, format=format)

    def expect(self) -> None:
        """Take over what earlier runs have put and not delivered."""
        there = self.kept.names()
        for letters in list(self.journal.ledger.letters.values()):
            if letters.name not in there:
                del self.journal.ledger.letters[letters.name]
            elif self.kept.is_waiting(letters):
                self._waiting.append(_Waiting(letters))
            else:
                self._forget(letters)

    def deliver(self, letters: DeadLetters | None = None) -> None:
        """Write `letters`, after those that still wait.

        What fails is counted and told, and then the production handler is asked: after CONTINUE
        they wait for the next time, any other answer raises LettersFailed. About what is refused
        for good it is asked once; it is tried again at the next start and now and then.
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
        """Write what waits of one entry; return whether those behind it may be tried."""
        letters = waiting.letters
        refused = self.writer.written(letters, self.policy)
        left = [each for each in refused if each.waiting]
        # What may pass by itself is asked about first.
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

    def _is_for_good(self, refused: Refused) -> bool:
        """Whether it is some letters' own failure: it will be the same next time."""
        stage = self.fates.stages[produce_number(self.fates.pipeline)]
        return stage.policy.table.classify(refused.problem.cause).kind is Ruled.OTHER

    def _forget(self, letters: DeadLetters) -> None:
        self.kept.forget(letters)
        self.journal.ledger.letters.pop(letters.name, None)

    def _tell(self, letters: DeadLetters, refused: Sequence[Refused]) -> None:
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
                kind=Kind.LETTERS,
                at=at,
                epoch=self.teller.run.epoch,
                events=tuple(self.teller.event(each, at) for each in told),
                dead_letters=letters if waiting else None,
            )
        )

    def _decide(self, letters: DeadLetters, refused: Refused) -> None:
        """Ask what production failures are answered by, once, about the first letter."""
        first = self._first(letters, refused.problem)
        # Not one more failed record of its task: the tally is left alone.
        fates = replace(self.fates, runs={})
        try:
            fate = fates.of_one(first, now_ms=fates.now_ms())
        except SelfHealing as exc:
            raise LettersFailed(self.place.name(letters), refused.problem) from exc
        response = fate.response if isinstance(fate, Decided) else Response.FAIL
        if response is Response.PAUSE:
            say(Saying.PAUSE_REFUSED, f"dead letters for {self.place.name(letters)}")
        if response is not Response.CONTINUE:
            raise LettersFailed(self.place.name(letters), refused.problem)

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
    """Return the row; its columns may have any names, those of Python's arguments too."""
    return Row(*values)(*values.values())


def _spent(stages: Mapping[int, StagePolicy], number: int) -> dict[int, StagePolicy]:
    """Return what holds where the budget is spent before anybody is asked."""
    said = stages[number]
    policy = msgspec.structs.replace(said.policy, retry=RetryPolicy())
    return {**stages, number: replace(said, policy=policy)}


def letter_box(
    place: Place,
    *,
    fates: Fates,
    files: Storage,
    journal: Journal,
    teller: Teller,
    config: AgentConfig,
    check: Callable[[], None],
    wait: Callable[[int], None],
    given_up_on_stop: Callable[[], AbstractContextManager[None]],
) -> LetterBox:
    """Return the box of one run, and what earlier runs left to be delivered in it."""
    number, spark = produce_number(fates.pipeline), fates.pipeline.source.sparkSession
    kept = LetterFiles(spark=spark, files=files)
    box = LetterBox(
        kept=kept,
        place=place,
        writing=Writing(
            pipeline=fates.pipeline,
            application=config.application,
            checkpoint=journal.ledger.checkpoint,
            configs=config.errors.dead_letters.include_configs,
            redaction=redaction_of(fates.pipeline, config)
            if config.errors.dead_letters.redact
            else None,
        ),
        journal=journal,
        teller=teller,
        fates=replace(fates, stages=_spent(fates.stages, number)),
        clock=fates.clock,
        check=check,
        writer=LetterWriting(
            spark=spark,
            kept=kept,
            place=place,
            now_ms=fates.now_ms,
            check=check,
            wait=wait,
            given_up_on_stop=given_up_on_stop,
        ),
        policy=fates.stages[number].policy,
    )
    box.expect()
    return box
