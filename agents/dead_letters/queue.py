"""Skipped records with their errors: stored in the checkpoint, then written to the destination."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from arrester.agents.config import AgentConfig
from arrester.agents.dead_letters.destinations import (
    Destination,
    RejectedDeadLetters,
    all_rejected,
)
from arrester.agents.dead_letters.pending_files import PendingDeadLetters
from arrester.agents.dead_letters.rows import COLUMNS, DeadLetterContext, DeadLetterRows
from arrester.agents.decisions.event_factory import EventFactory
from arrester.agents.decisions.policies import StagePolicy, redaction_of
from arrester.agents.decisions.rules import FailureRules, SelfHealing, record_error
from arrester.agents.error_policy.respond import Decided
from arrester.agents.failure_log import log_failure
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.fingerprints import failure_at
from arrester.agents.journal.entries import DeadLetters, Entry, EntryKind
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.storage import Storage
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.jvm.problems import problem_of
from arrester.controlplane.domain.error_policy import classify
from arrester.controlplane.domain.error_policy.log_levels import LogMessage
from arrester.controlplane.domain.error_policy.policy import StageKind
from arrester.controlplane.domain.error_policy.retry import Attempts, RetryAfter, next_attempt
from arrester.controlplane.domain.errors import ArresterError
from arrester.controlplane.domain.events import DeadLettersFailed, RecordsDeadLettered, Response
from arrester.controlplane.domain.python_versions import UTC

#: At most this many dead letters are named per task, and per entry.
LISTED_PER_TASK: Final = 20
LISTED: Final = 100
_ORDER: Final = "order"
_RANK: Final = "rank"
#: Seconds between attempts after a permanent rejection: the first and the longest wait.
_RETRY_SECONDS, _RETRY_SECONDS_MAX = 60, 3_600


class DeadLettersNotWritten(ArresterError):
    """Dead letters could not be written and the handler did not answer CONTINUE: the run ends.

    They stay in the checkpoint. The next run writes them before anything else.
    """

    def __init__(self, location: str, problem: Problem) -> None:
        super().__init__(
            f"dead letters cannot be written to {location}: "
            f"{problem.exception_class}: {problem.message}"
        )
        self.problem = problem
        self.raised = record_error(problem)


@dataclass(slots=True)
class _Pending:
    """Pending dead letters of one entry."""

    dead_letters: DeadLetters
    #: Failed attempts of this run, and the earliest time of the next one.
    failures: int = 0
    not_before: datetime | None = None

    def postpone(self, now: datetime) -> None:
        """Wait longer after each failure; after the first one, until the next dead letters only."""
        self.failures += 1
        if self.failures > 1:
            seconds = min(_RETRY_SECONDS * 2 ** min(self.failures - 2, 10), _RETRY_SECONDS_MAX)
            self.not_before = now + timedelta(seconds=seconds)


class DeadLetterQueue:
    """The dead letters of one run: stored before the entry that names them, written after it.

    The caller holds the pipeline's lock. `check` raises if the run is to end, and so does `wait`,
    which waits for milliseconds. `cancelled_on_stop` wraps calls that a stop interrupts at once: a
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
        self._pending: list[_Pending] = []
        self._recover()

    def apply_policies(self, stages: Mapping[int, StagePolicy]) -> None:
        """Apply the policy of stage produce: first its retries, then its handler."""
        number = self._pipeline.produce_number
        self._policy = stages[number].policy
        self._rules.stages = {**stages, number: stages[number].without_retries()}

    def _recover(self) -> None:
        """Take over the dead letters that earlier runs stored and did not write."""
        names = self._files.names()
        # If no newer run exists at this point, none of its folders is in the list.
        self._journal.check_owned()
        pending = self._journal.ledger.pending_dead_letters
        for dead_letters in list(pending.values()):
            left = self._files.recovered(dead_letters)
            if left is None:
                del pending[dead_letters.name]
            else:
                self._pending.append(_Pending(left))
        self._files.delete_all_but([each.dead_letters for each in self._pending], names)

    def store(
        self,
        frame: DataFrame,
        known: Sequence[FailedRecord],
        context: DeadLetterContext,
        *,
        few: bool,
    ) -> tuple[DeadLetters, list[RecordsDeadLettered]]:
        """Store the dead letters of some records; return their name and events.

        `frame` has the columns ROW, TASK, POSITION, OUTCOME and ERROR; `few`: its rows may be
        processed in one partition. Nothing is visible at the destination before `deliver`.
        """
        day = context.at.astimezone(UTC).date().isoformat()
        dead_letters = DeadLetters(name=context.name, day=day)
        rows = self._rows.dead_letters(frame, known, context, raw=self._destination.raw)
        rows.write.mode("overwrite").parquet(self._files.path(dead_letters))
        return dead_letters, self._dead_letter_events(dead_letters, context, few=few)

    def _dead_letter_events(
        self, dead_letters: DeadLetters, context: DeadLetterContext, *, few: bool
    ) -> list[RecordsDeadLettered]:
        """Return an event for each task with dead letters. It names the first ones by their IDs."""
        stored = self._files.read(dead_letters)
        if few:
            # Within one partition, Spark ranks and groups without a shuffle.
            stored = stored.coalesce(1)
        # Records without a position follow the order of their file.
        order = f"coalesce(position, monotonically_increasing_id()) AS {_ORDER}"
        rank = f"row_number() OVER (PARTITION BY task ORDER BY {_ORDER}) AS {_RANK}"
        rows = (
            stored.selectExpr("task", "position", "id", order)
            .selectExpr("*", rank)
            .groupBy("task")
            .agg(
                F.expr("count(1) AS count"),
                F.expr("min(position) AS first"),
                F.expr("max(position) AS last"),
                F.expr(
                    f"sort_array(collect_list(struct({_RANK}, id)) FILTER "
                    f"(WHERE {_RANK} <= {LISTED_PER_TASK})).id AS ids"
                ),
            )
            .collect()
        )
        events, remaining = [], LISTED
        for row in rows:
            ids = tuple(row["ids"][:remaining])
            remaining -= len(ids)
            events.append(
                RecordsDeadLettered(
                    task=row["task"],
                    count=row["count"],
                    ids=ids,
                    place=self._destination.location(dead_letters),
                    format=self._destination.format,
                    first_position=row["first"],
                    last_position=row["last"],
                    actor=context.actor,
                    reason=context.reason,
                )
            )
        return events

    def deliver(self, dead_letters: DeadLetters | None = None) -> None:
        """Write `dead_letters`, after the pending ones.

        A failure is counted and reported, then the production handler is called. After CONTINUE the
        dead letters stay pending; any other response raises DeadLettersNotWritten. About a
        permanent rejection the handler is called once. Later attempts follow at intervals and at
        the next start.
        """
        if dead_letters is not None:
            self._pending.append(_Pending(dead_letters))
        for each in list(self._pending):
            if each.not_before is not None and self._rules.clock() < each.not_before:
                continue
            self._check()
            if not self._deliver(each):
                return

    def _deliver(self, pending: _Pending) -> bool:
        """Write the dead letters of one entry; return whether the next ones may be written."""
        dead_letters = pending.dead_letters
        rejected = self._write(dead_letters)
        left = [each for each in rejected if each.pending]
        # A failure that may be temporary is decided first.
        decisive = min(left, key=self._is_permanent, default=None)
        if decisive is None:
            if rejected:
                self._report(dead_letters, rejected)
            self._pending.remove(pending)
            self._delete(dead_letters)
            return True
        permanent, was_decided = self._is_permanent(decisive), dead_letters.refused
        pending.dead_letters = msgspec.structs.replace(
            dead_letters, refused=was_decided or permanent
        )
        pending.postpone(self._rules.clock())
        ids = [each.ids for each in left]
        if None not in ids:
            rest = [id for some in ids for id in some or ()]
            pending.dead_letters = self._files.keep_only(pending.dead_letters, rest)
        self._report(pending.dead_letters, rejected)
        if pending.dead_letters.folder != dead_letters.folder:
            self._files.delete(dead_letters)
        if not (permanent and was_decided):
            self._decide(pending.dead_letters, decisive)
        return permanent

    def _write(self, dead_letters: DeadLetters) -> list[RejectedDeadLetters]:
        """Return the rejected dead letters. Retries stay within the policy's limits.

        Attempts that executors repeated are returned too and raise nothing.
        """
        rows = self._files.read(dead_letters)
        rows = rows if self._destination.raw else rows.select(*COLUMNS)
        started_ms, made = self._rules.now_ms(), 0
        rejected: list[RejectedDeadLetters] = []
        while True:
            made += 1
            try:
                with self._cancelled_on_stop():
                    return [*rejected, *self._destination.write(rows, dead_letters)]
            except Exception as exc:  # any exception of the author's sink
                # If the run is stopping, the interrupted job is no failure: the next run writes
                # them.
                self._check()
                problem = problem_of(self._spark, exc, attempts=made)
            rejected = all_rejected(rows, problem)
            attempts = Attempts(made=made, started_ms=started_ms, now_ms=self._rules.now_ms())
            retry = next_attempt(self._policy.retry, attempts, chance=random.randrange)
            if self._kind(problem) is not classify.Kind.RETRIABLE or not isinstance(
                retry, RetryAfter
            ):
                return rejected
            what = f"dead letters for {self._destination.location(dead_letters)}, attempt {made}"
            log_failure(LogMessage.SINK_RETRYING, f"{what}: {problem.exception_class}")
            rejected = [replace(each, pending=0) for each in rejected]
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
        pending, problem = sum(each.pending for each in rejected), rejected[0].problem
        log_failure(
            LogMessage.DEAD_LETTER_FAILED,
            f"{failures} writes of dead letters to {location} failed, {pending} wait: "
            f"{problem.exception_class}: {problem.message}",
        )
        events = [
            DeadLettersFailed(
                task=each.task,
                failures=each.failures,
                waiting=each.pending,
                place=location,
                format=self._destination.format,
                failure=failure_at(StageKind.PRODUCE, each.problem),
            )
            for each in rejected
        ]
        self._journal.append(
            Entry(
                kind=EntryKind.DEAD_LETTERS,
                at=at,
                epoch=self._event_factory.run.epoch,
                events=tuple(self._event_factory.event(each, at) for each in events),
                dead_letters=dead_letters if pending else None,
            )
        )

    def _decide(self, dead_letters: DeadLetters, rejected: RejectedDeadLetters) -> None:
        """Call the production handler once, about the first dead letter."""
        first = self._first(dead_letters, rejected.problem)
        location = self._destination.location(dead_letters)
        # This is no further failed record of its task, so the tolerance does not count it.
        rules = replace(self._rules, runs={})
        try:
            outcome = rules.respond_to_record(first, now_ms=rules.now_ms())
        except SelfHealing as exc:
            raise DeadLettersNotWritten(location, rejected.problem) from exc
        response = outcome.response if isinstance(outcome, Decided) else Response.FAIL
        if response is Response.PAUSE:
            log_failure(LogMessage.PAUSE_REFUSED, f"dead letters for {location}")
        if response is not Response.CONTINUE:
            raise DeadLettersNotWritten(location, rejected.problem)

    def _first(self, dead_letters: DeadLetters, problem: Problem) -> FailedRecord:
        row = self._files.read(dead_letters).orderBy("task", "position").first()
        assert row is not None
        return FailedRecord(
            task=row["task"],
            position=row["position"],
            entry=0,
            number=self._pipeline.produce_number,
            stage=StageKind.PRODUCE,
            problem=problem,
            row=row_of(json.loads(row["row"])),
            key=None,
            value=None,
        )


def row_of(values: dict[str, Any]) -> Row:
    """Return the row. Its columns may have any names, also those of Python's arguments."""
    return Row(*values)(*values.values())
