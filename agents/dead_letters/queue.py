"""Skipped records with their errors: stored in the checkpoint, then written to the destination."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec
from pyspark.sql import DataFrame

from arrester.agents.config import AgentConfig
from arrester.agents.dead_letters.destinations import (
    Destination,
    RejectedDeadLetters,
    all_rejected,
)
from arrester.agents.dead_letters.events import rejected_events, stored_events
from arrester.agents.dead_letters.pending_files import PendingDeadLetters
from arrester.agents.dead_letters.rejection import decide_rejection
from arrester.agents.dead_letters.rows import COLUMNS, INDEX, DeadLetterContext, DeadLetterRows
from arrester.agents.decisions.event_factory import EventFactory
from arrester.agents.decisions.policies import StagePolicy, redaction_of
from arrester.agents.decisions.rules import FailureRules
from arrester.agents.failure_log import log_failure
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.journal.entries import DeadLetters, Entry, EntryKind
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.storage import Storage
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.jvm.exceptions.problems import problem_of
from arrester.agents.spark.jvm.stored_rows import to_driver
from arrester.domain.error_policy import classify
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.error_policy.retry import Attempts, next_attempt
from arrester.domain.events import RecordsDeadLettered
from arrester.domain.plural import plural
from arrester.domain.python_versions import UTC

#: Seconds between attempts after a permanent rejection: the first and the longest wait.
_RETRY_SECONDS, _RETRY_SECONDS_MAX = 60, 3_600


@dataclass(slots=True)
class _Undelivered:
    """Dead letters of one entry that wait for their destination."""

    dead_letters: DeadLetters
    #: Failed attempts of this run, and the earliest time of the next attempt.
    failures: int = 0
    not_before: datetime | None = None

    def postpone(self, now: datetime) -> None:
        """Postpone the next attempt, by more after each failure.

        After the first failure the next call of `deliver` is the next attempt.
        """
        self.failures += 1
        if self.failures > 1:
            seconds = min(_RETRY_SECONDS * 2 ** min(self.failures - 2, 10), _RETRY_SECONDS_MAX)
            self.not_before = now + timedelta(seconds=seconds)


class DeadLetterQueue:
    """The dead letters of one run.

    They are stored before the journal entry that names them, and written to the destination after
    it. `wait` waits for milliseconds. It raises if the run is to
    end, and so does `check`. `cancelled_on_stop` wraps calls that a stop interrupts at once: a
    broker may take long to answer.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        rules: FailureRules,
        files: Storage,
        journal: Journal,
        event_factory: EventFactory,
        config: AgentConfig,
        check: Callable[[], None],
        wait: Callable[[int], None],
        cancelled_on_stop: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._destination = destination
        self._journal = journal
        self._event_factory = event_factory
        self._check, self._wait = check, wait
        self._cancelled_on_stop = cancelled_on_stop
        self._pipeline = rules.pipeline
        self._spark = self._pipeline.source.sparkSession
        self._files = PendingDeadLetters(spark=self._spark, files=files)
        settings = config.errors.dead_letters
        self._rows = DeadLetterRows(
            pipeline=self._pipeline,
            application=config.application,
            checkpoint=journal.ledger.checkpoint,
            configs=settings.include_configs,
            redaction=redaction_of(self._pipeline, config) if settings.redact else None,
        )
        self._rules = replace(rules)
        self.apply_policies(rules.stages)
        #: Written in order; permanently rejected ones do not block those after them.
        self._undelivered: list[_Undelivered] = []
        #: The dead letters of the last call of `store` as stored, by name.
        self._stored: dict[str, DataFrame] = {}
        self._recover()

    def apply_policies(self, stages: Mapping[int, StagePolicy]) -> None:
        """Apply the policy of stage produce: its retries here, its handler in the rules."""
        number = self._pipeline.produce_number
        self._policy = stages[number].policy
        self._rules.stages = {**stages, number: stages[number].without_retries()}

    def _recover(self) -> None:
        """Take over the dead letters that earlier runs stored and did not write to the destination.

        Folders of earlier runs that no entry names are deleted.
        """
        names = self._files.names()
        # If no newer run exists at this point, none of its folders is in the list.
        self._journal.check_owned()
        named = self._journal.ledger.pending_dead_letters
        for dead_letters in list(named.values()):
            recovered = self._files.recovered(dead_letters)
            if recovered is None:
                del named[dead_letters.name]
            else:
                self._undelivered.append(_Undelivered(recovered))
        self._files.delete_all_but([each.dead_letters for each in self._undelivered], names)

    def store(
        self,
        frame: DataFrame,
        diagnosed: Sequence[FailedRecord],
        context: DeadLetterContext,
        *,
        few: bool,
        on_driver: bool = False,
        folder: str | None = None,
    ) -> tuple[DeadLetters, list[RecordsDeadLettered]]:
        """Store the dead letters of some records in a folder; return their name and events.

        `frame` has the columns ROW, TASK, POSITION, OUTCOME and ERROR; records that an operator
        skipped also have SKIP. `diagnosed` are those that the driver has diagnosed. `few`: the
        driver may process them; `on_driver`: it has their rows. Nothing is visible at the
        destination before `deliver`.
        """
        day = context.at.astimezone(UTC).date().isoformat()
        dead_letters = DeadLetters(name=context.name, day=day, folder=folder)
        rows = self._rows.dead_letters(frame, diagnosed, context, raw=self._destination.raw)
        if on_driver:
            stored = to_driver(rows)
            in_one_task = stored.coalesce(1)
            self._files.write(dead_letters, in_one_task)
            self._stored = {dead_letters.name: in_one_task}
        else:
            self._files.write(dead_letters, rows)
            stored = self._files.read(dead_letters, rows.schema)
            self._stored = {dead_letters.name: stored}
        place, format = self._destination.location(dead_letters), self._destination.format
        events = stored_events(stored, place=place, format=format, few=few, on_driver=on_driver)
        return dead_letters, events

    def deliver(self, dead_letters: DeadLetters | None = None) -> None:
        """Write `dead_letters` to the destination, after those that wait.

        A failure is counted and reported, then the production handler is called. After CONTINUE the
        dead letters wait; any other response raises DeadLettersNotWritten. About a
        permanent rejection the handler is called once. Later attempts follow at intervals and at
        the next start.
        """
        if dead_letters is not None:
            self._undelivered.append(_Undelivered(dead_letters))
        for each in list(self._undelivered):
            if each.not_before is not None and self._rules.clock() < each.not_before:
                continue
            self._check()
            if not self._deliver(each):
                return

    def _deliver(self, undelivered: _Undelivered) -> bool:
        """Write the dead letters of one entry; return whether the next ones may be written."""
        dead_letters = undelivered.dead_letters
        rejected = self._write(dead_letters)
        waiting = [each for each in rejected if each.waiting]
        # A failure that may be temporary is decided first.
        decisive = min(waiting, key=self._is_permanent, default=None)
        if decisive is None:
            if rejected:
                self._report(dead_letters, rejected)
            self._undelivered.remove(undelivered)
            self._delete(dead_letters)
            return True
        permanent, was_decided = self._is_permanent(decisive), dead_letters.refused
        undelivered.dead_letters = msgspec.structs.replace(
            dead_letters, refused=was_decided or permanent
        )
        undelivered.postpone(self._rules.clock())
        ids_by_task = [each.ids for each in waiting]
        if None not in ids_by_task:
            ids = [id for of_task in ids_by_task for id in of_task or ()]
            undelivered.dead_letters = self._files.keep_only(undelivered.dead_letters, ids)
        self._report(undelivered.dead_letters, rejected)
        if undelivered.dead_letters.folder != dead_letters.folder:
            self._files.delete(dead_letters)
        if not (permanent and was_decided):
            self._decide(undelivered.dead_letters, decisive)
        return permanent

    def _write(self, dead_letters: DeadLetters) -> list[RejectedDeadLetters]:
        """Write dead letters, with the policy's retries; return the rejected ones.

        Failed attempts before a successful one are returned too, of which no dead letters wait.
        """
        rows = self._stored.pop(dead_letters.name, None) or self._files.read(dead_letters)
        rows = rows.drop(*INDEX) if self._destination.raw else rows.select(*COLUMNS)
        started_ms, attempt = self._rules.now_ms(), 0
        rejected: list[RejectedDeadLetters] = []
        while True:
            attempt += 1
            try:
                with self._cancelled_on_stop():
                    return [*rejected, *self._destination.write(rows, dead_letters)]
            except Exception as exc:  # any exception of the author's sink
                # A job that a stop request interrupted is no failure: the next run repeats it.
                self._check()
                problem = problem_of(self._spark, exc, attempts=attempt)
            rejected = all_rejected(rows, problem)
            attempts = Attempts(made=attempt, started_ms=started_ms, now_ms=self._rules.now_ms())
            retry = next_attempt(self._policy.retry, attempts, chance=random.randrange)
            if self._kind(problem) is not classify.Kind.RETRIABLE or retry is None:
                return rejected
            location = self._destination.location(dead_letters)
            write = f"dead letters for {location}, attempt {attempt}"
            log_failure(LogMessage.SINK_RETRYING, f"{write} failed: {problem.line}")
            rejected = [replace(each, waiting=0) for each in rejected]
            self._wait(retry.wait_ms)

    def _kind(self, problem: Problem) -> classify.Kind:
        return self._policy.table.classify(problem.cause).kind

    def _is_permanent(self, rejected: RejectedDeadLetters) -> bool:
        """Whether the dead letters themselves are the cause, so that a retry cannot help."""
        return self._kind(rejected.problem) is classify.Kind.OTHER

    def _delete(self, dead_letters: DeadLetters) -> None:
        self._files.delete(dead_letters)
        self._journal.ledger.pending_dead_letters.pop(dead_letters.name, None)

    def _report(self, dead_letters: DeadLetters, rejected: Sequence[RejectedDeadLetters]) -> None:
        """Log the failed writes, and append an entry with their events."""
        at, location = self._rules.clock(), self._destination.location(dead_letters)
        failures = sum(each.failures for each in rejected)
        waiting, problem = sum(each.waiting for each in rejected), rejected[0].problem
        log_failure(
            LogMessage.DEAD_LETTER_FAILED,
            f"{plural(failures, 'write')} of dead letters to {location} failed, {waiting:,} wait: "
            f"{problem.line}",
        )
        events = rejected_events(rejected, place=location, format=self._destination.format)
        self._journal.append(
            Entry(
                kind=EntryKind.DEAD_LETTERS,
                at=at,
                epoch=self._event_factory.run.epoch,
                events=tuple(self._event_factory.event(each, at) for each in events),
                dead_letters=dead_letters if waiting else None,
            )
        )

    def _decide(self, dead_letters: DeadLetters, rejected: RejectedDeadLetters) -> None:
        """Call the production handler about the first dead letter; raises DeadLettersNotWritten."""
        first = self._files.read(dead_letters).orderBy("task", "position").first()
        assert first is not None
        location = self._destination.location(dead_letters)
        decide_rejection(first, rejected.problem, location, self._rules)
