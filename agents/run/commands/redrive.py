"""Process dead letters once more: they are held again, and run like other held records."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NoReturn
from uuid import UUID

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.dead_letters.events import redriven_events
from arrester.agents.dead_letters.read_back import TYPES
from arrester.agents.dead_letters.row_json import (
    PARSED_ROW,
    PROBLEM,
    unsupported_columns,
    with_parsed_rows,
)
from arrester.agents.decisions.event_factory import EventFactory
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.held.journal_counts import records_held
from arrester.agents.held.limits import HeldLimitExceeded, HeldLimits
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import Entry, EntryKind, HeldCount
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.storage import Storage
from arrester.agents.run.run_lock import HeldLock
from arrester.agents.runtime.redrive_result import InvalidDeadLetter, Redriven
from arrester.agents.spark.frames.local_checkpoint import (
    AS_BYTES,
    ID,
    lazy_checkpoint,
    numbered,
    releasing,
)
from arrester.agents.spark.job_description import JobDescription
from arrester.agents.spark.session_conf import exact_parquet
from arrester.agents.worker.columns import POSITION, ROW, TASK
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    CommandApplied,
    EventData,
    RecordsRedriven,
)
from arrester.domain.plural import plural
from arrester.domain.python_versions import UTC

_log = logging.getLogger("arrester.thread")

#: The ids of redriven dead letters, one folder for each redrive. They are kept.
_FOLDER: Final = "arrester/redriven"
_IDS: Final = "id string, at timestamp"
#: The invalid dead letters that are named.
_EXAMPLES: Final = 10
#: Of the newest dead letter of a record: whether it is of this checkpoint and fits the source, the
#: number of dead letters of the record, and until when an earlier redrive has taken them.
_NEWEST, _IS_OWN, _IS_VALID = "__arrester_newest", "__arrester_is_own", "__arrester_is_valid"
_ROWS, _SENT = "__arrester_rows", "__arrester_sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedDeadLetters:
    """The dead letters to take, evaluated once."""

    rows: DataFrame
    result: Redriven


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRedriver:
    """The redrives of one run.

    A dead letter is known by its id and the time of its decision: a later one of the same record,
    which failed again, is another one.
    """

    pipeline: Pipeline
    journal: Journal
    held_store: HeldStore
    limits: HeldLimits
    event_factory: EventFactory
    #: The checkpoint's folder.
    files: Storage
    jobs: JobDescription
    #: One redrive at a time: the next one must know what this one has taken.
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_selecting(self) -> bool:
        """Whether a redrive is being read, and may still be saved."""
        return self.lock.locked()

    @contextmanager
    def select(self, dead_letters: DataFrame) -> Iterator[SelectedDeadLetters]:
        """Yield what is taken, without the run lock: micro-batches continue.

        Raises InvalidValue for a frame without the columns of dead letters, or with dead letters of
        another checkpoint, and for a source whose rows cannot be read from JSON.
        """
        with self.lock, releasing() as checkpoints:
            self._check_columns(dead_letters)
            columns = [F.col(name).cast(kind).alias(name) for name, kind in TYPES.items()]
            parsed = self._with_problems(dead_letters.select(*columns))
            # The first job, which counts the newest, fills it.
            checkpoints.append(lazy_checkpoint(parsed, columnar=True))
            rows = numbered(checkpoints[0])
            newest = self._newest(rows)
            is_valid = F.col(_IS_VALID)
            is_foreign = ~F.coalesce(_IS_OWN, F.lit(False)) | F.col("id").isNull()
            is_new = ~F.coalesce(F.col("at") <= F.col(_SENT), F.lit(False))
            cases = (is_foreign, is_new & is_valid, ~is_new, is_new & ~is_valid)
            counted = newest.agg(F.sum(_ROWS), *map(F.count_if, cases))
            [[found, foreign, redriven, before, invalid]] = counted.collect()
            if foreign:
                self._refuse_foreign(_in(rows, newest.where(is_foreign)))
            result = Redriven(
                redriven=redriven,
                taken_before=before,
                invalid=invalid,
                examples=_examples(_in(rows, newest.where(is_new & ~is_valid))) if invalid else (),
            )
            if redriven not in (0, found):
                chosen = _in(rows, newest.where(is_new & is_valid))
                rows = checkpoints.add(chosen, level=AS_BYTES)
            rows = rows.select(
                *(F.col("task").alias(TASK), F.col("position").alias(POSITION)),
                *(F.col(PARSED_ROW).alias(ROW), "id", "stage", "at"),
            )
            yield SelectedDeadLetters(rows=rows, result=result)

    def save(
        self,
        _: HeldLock,
        selected: SelectedDeadLetters,
        *,
        after: int,
        actor: str | None,
        reason: str,
        redrive: UUID | None = None,
        answer: CommandApplied | None = None,
    ) -> Entry | None:
        """Save the rows, and return the entry that holds them again; None if there are none.

        Nothing has changed until the entry is in the journal.
        `after` is the last micro-batch that may have reached the sink: if it is repeated, it is
        written as before. `answer` is that to the command that requested it.
        Raises InvalidValue if a limit of held records would be exceeded.
        """
        if not selected.result.redriven:
            return None
        self.journal.check_owned()
        self._delete_unnamed()
        at, order = datetime.now(UTC), self.journal.next_number
        with self.jobs.of_held_records():
            name = self.held_store.save_again(
                selected.rows.select(TASK, POSITION, ROW), order=order
            )
            redriven = redriven_events(
                selected.rows.withColumnsRenamed({TASK: "task", POSITION: "position"}),
                actor=actor,
                reason=reason,
                redrive=redrive,
            )
            counts = _held_counts(redriven)
            self._check_limits(name, counts)
            folder = f"{order:020d}-{uuid.uuid4().hex[:8]}"
            ids = selected.rows.select("id", "at").coalesce(1)
            with exact_parquet(ids.sparkSession):
                ids.write.parquet(f"{self.files.root}/{_FOLDER}/{folder}")
        events: list[EventData] = [*redriven, *self._held(counts)]
        cause = None if answer is None else answer.command
        if answer is not None:
            events.append(answer)
        return Entry(
            kind=EntryKind.REDRIVE,
            at=at,
            epoch=self.event_factory.run.epoch,
            events=tuple(self.event_factory.event(each, at, caused_by=cause) for each in events),
            after=after,
            row_folder=name,
            held=tuple(counts),
            redriven=folder,
        )

    def _delete_unnamed(self) -> None:
        """Delete folders of ids that no entry names: a killed run left them."""
        for name in set(self.files.names(_FOLDER)) - set(self.journal.ledger.redriven):
            self.files.delete(f"{_FOLDER}/{name}")

    def _check_columns(self, dead_letters: DataFrame) -> None:
        if dead_letters.isStreaming:
            raise InvalidValue("dead_letters", "a stream", "a static DataFrame of dead letters")
        missing = [name for name in TYPES if name not in dead_letters.columns]
        if missing:
            allowed = f"a DataFrame with the columns {', '.join(TYPES)} of dead letters"
            raise InvalidValue("dead_letters", f"without {', '.join(missing)}", allowed)
        wrong = unsupported_columns(self.pipeline.source.schema)
        if wrong:
            allowed = "columns that are read from JSON as they were: no VARIANT, text keys in maps"
            raise InvalidValue("source", ", ".join(wrong), allowed)

    def _newest(self, rows: DataFrame) -> DataFrame:
        """Return the number of the newest dead letter of each record, and what is known of it."""
        is_own = F.col("checkpoint").eqNullSafe(self.journal.ledger.checkpoint)
        is_valid = F.col(PROBLEM).isNull()
        known = F.struct(ID, is_own.alias(_IS_OWN), is_valid.alias(_IS_VALID))
        newest = rows.groupBy("id").agg(
            F.count("*").alias(_ROWS),
            F.max("at").alias("at"),
            F.max_by(known, "at").alias(_NEWEST),
        )
        return self._with_time_taken(newest.select("id", "at", _ROWS, f"{_NEWEST}.*"))

    def _with_time_taken(self, dead_letters: DataFrame) -> DataFrame:
        paths = [f"{self.files.root}/{_FOLDER}/{name}" for name in self.journal.ledger.redriven]
        if not paths:
            return dead_letters.withColumn(_SENT, F.lit(None).cast("timestamp"))
        taken = self.held_store.spark.read.schema(_IDS).parquet(*paths)
        sent = taken.groupBy("id").agg(F.max("at").alias(_SENT))
        return dead_letters.join(sent, "id", "left")

    def _with_problems(self, dead_letters: DataFrame) -> DataFrame:
        return with_parsed_rows(dead_letters, "row", self.pipeline.source.schema).drop("row")

    def _refuse_foreign(self, dead_letters: DataFrame) -> NoReturn:
        """Raise InvalidValue: some are not of this checkpoint, or have no id or no time."""
        counted = dead_letters.groupBy("checkpoint").count().limit(3).collect()
        found = ", ".join(f"{row['count']} of {row['checkpoint']}" for row in counted)
        found = found or "some without a time"
        own = self.journal.ledger.checkpoint
        allowed = (
            f"dead letters with an id and a time, of the checkpoint {own} of {self.pipeline.name!r}"
        )
        raise InvalidValue("dead_letters", found, allowed)

    def _check_limits(self, name: str, counts: list[HeldCount]) -> None:
        try:
            self.limits.check(self.journal.ledger, name, counts)
        except HeldLimitExceeded as exc:
            self.journal.delete_rows(name)
            fewer = "fewer records at a time"
            reason = f"{exc}: redrive {fewer}"
            raise InvalidValue("dead_letters", len(counts), fewer, reason=reason) from exc

    def _held(self, counts: list[HeldCount]) -> Iterator[EventData]:
        for each in counts:
            yield records_held(self.journal.ledger.task(each.task), each)


def _in(rows: DataFrame, chosen: DataFrame) -> DataFrame:
    """Return those of some numbered rows whose numbers are in another frame."""
    return rows.join(chosen.select(ID), ID, "left_semi")


def _held_counts(redriven: Sequence[RecordsRedriven]) -> list[HeldCount]:
    """Return the held records by task."""
    of_task: defaultdict[str | None, list[RecordsRedriven]] = defaultdict(list)
    for each in redriven:
        of_task[each.task].append(each)
    return [_held_count(task, events) for task, events in of_task.items()]


def _held_count(task: str | None, events: Sequence[RecordsRedriven]) -> HeldCount:
    first = [each.first_position for each in events if each.first_position is not None]
    last = [each.last_position for each in events if each.last_position is not None]
    # Without positions, the order within the entry is unknown.
    has_positions = len(first) == len(events)
    return HeldCount(
        task=task,
        count=sum(each.count for each in events),
        first=min(first) if has_positions else None,
        last=max(last) if has_positions else None,
    )


def _examples(invalid: DataFrame) -> tuple[InvalidDeadLetter, ...]:
    rows = invalid.select("id", PROBLEM).limit(_EXAMPLES).collect()
    return tuple(InvalidDeadLetter(id=row["id"], problem=row[PROBLEM]) for row in rows)


def log_result(pipeline: str, result: Redriven, *, actor: str | None, reason: str) -> None:
    """Log who redrove what and why, and an example of what was not."""
    redriven = plural(result.redriven, "dead letter")
    _log.warning(
        "pipeline %r: redrive by %s (%s): %s redriven; an earlier redrive has taken %s",
        *(pipeline, actor or "the script", reason, redriven, result.taken_before),
    )
    if result.invalid:
        first = result.examples[0]
        _log.warning(
            "pipeline %r: %s not redriven because the row does not fit the source, such as %s: %s",
            *(pipeline, plural(result.invalid, "dead letter"), first.id, first.problem),
        )
