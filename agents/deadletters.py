"""Skipped records with their errors: kept beside the checkpoint, then written where they belong."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from agents.checkpoint import Storage
from agents.config import AgentConfig
from agents.diagnose import Problem
from agents.entries import DeadLetters, Entry, Kind
from agents.failed import FailedRecord, produce_number
from agents.fates import Fates, SelfHealing
from agents.handlers import RecordError
from agents.journal import Journal
from agents.letter_frames import KEPT, Said, Writing
from agents.letter_places import FolderPlace, Place, Refused, SparkPlace, all_waiting
from agents.letter_topic import topic_place
from agents.pipeline import Pipeline
from agents.raised import problem_of
from agents.saying import say
from agents.telling import Teller, failure
from controlplane.domain.error_keys import FILES
from controlplane.domain.errors import ArresterError
from controlplane.domain.events import DeadLettersFailed, RecordsDeadLettered, Response
from controlplane.domain.levels import Saying
from controlplane.domain.policy import StageKind
from controlplane.domain.respond import Decided
from controlplane.domain.retry import RetryPolicy

#: Letters that are not yet where they belong, a folder for each entry of the journal.
FOLDER = "arrester/letters"


class LettersFailed(ArresterError):
    """Dead letters could not be written and nobody said CONTINUE: the run ends, none is lost.

    They wait beside the checkpoint; the next run writes them before anything else.
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


@dataclass(slots=True, kw_only=True)
class LetterBox:
    """The dead letters of one run: put before the entry that names them, delivered after it.

    Its caller holds the pipeline's lock.
    """

    spark: SparkSession
    #: The checkpoint's folder.
    files: Storage
    place: Place
    writing: Writing
    journal: Journal
    teller: Teller
    fates: Fates
    clock: Callable[[], datetime]
    #: Raises when the run is to end.
    check: Callable[[], None]
    #: Goes round what a stop ends at once: a broker may be waited for for long.
    given_up_on_stop: Callable[[], AbstractContextManager[None]]
    #: Delivered in their order; what could not be is tried again with the next ones.
    _waiting: list[DeadLetters] = field(default_factory=list)

    def put(
        self, frame: DataFrame, known: Sequence[FailedRecord], said: Said
    ) -> tuple[DeadLetters, list[RecordsDeadLettered]]:
        """Keep the letters of some records; return where, and what to tell in their entry.

        `frame` has the columns ROW, TASK, POSITION, FATE and ERROR. Nothing is to be seen at the
        place before `deliver`.
        """
        letters = DeadLetters(name=said.name, day=said.at.astimezone(UTC).date().isoformat())
        made = self.writing.letters(frame, known, said, raw=self.place.raw)
        made.write.mode("overwrite").parquet(self._path(letters))
        counts = (
            self._kept(letters)
            .groupBy("task")
            .agg(
                F.count(F.lit(1)).alias("n"),
                F.min("position").alias("first"),
                F.max("position").alias("last"),
            )
        )
        told = [
            RecordsDeadLettered(
                task=row["task"],
                count=row["n"],
                place=self.place.name(letters),
                format=self.place.format,
                first_position=row["first"],
                last_position=row["last"],
                actor=said.actor,
                reason=said.reason,
            )
            for row in counts.collect()
        ]
        return letters, told

    def expect(self, entries: Sequence[Entry]) -> None:
        """Take over what earlier runs have put and not delivered."""
        self._waiting += [
            entry.dead_letters
            for entry in entries
            if entry.dead_letters is not None and is_waiting(self.files, entry.dead_letters)
        ]

    def deliver(self, letters: DeadLetters | None = None) -> None:
        """Write `letters`, after those that still wait.

        What fails is counted and told, and then the production handler is asked: after CONTINUE
        they wait for the next time, any other answer raises LettersFailed.
        """
        if letters is not None:
            self._waiting.append(letters)
        while self._waiting:
            refused = self._written(self._waiting[0])
            if refused:
                self._tell(self._waiting[0], refused)
            left = [each for each in refused if each.waiting]
            if left:
                self._decide(self._waiting[0], left[0])
                return
            self.files.delete(f"{FOLDER}/{self._waiting.pop(0).name}")

    def _written(self, letters: DeadLetters) -> list[Refused]:
        # The run before may have ended between the last write and the deletion of the folder.
        if not is_waiting(self.files, letters):
            return []
        kept = self._kept(letters)
        frame = kept if self.place.raw else kept.select(*KEPT)
        try:
            with self.given_up_on_stop():
                return self.place.write(frame, letters)
        except Exception as exc:  # whatever a sink may raise
            # A job that a stop has interrupted is the stop: the next run writes them.
            self.check()
            return all_waiting(frame, problem_of(self.spark, exc))

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
        row = self._kept(letters).orderBy("task", "position").first()
        assert row is not None
        pipeline = self.writing.pipeline
        return FailedRecord(
            task=row["task"],
            position=row["position"],
            entry=0,
            number=produce_number(pipeline),
            stage=StageKind.PRODUCE,
            problem=problem,
            row=Row(**json.loads(row["row"])),
            key=None,
            value=None,
        )

    def _kept(self, letters: DeadLetters) -> DataFrame:
        return self.spark.read.parquet(self._path(letters))

    def _path(self, letters: DeadLetters) -> str:
        return f"{self.files.root}/{FOLDER}/{letters.name}"


def letter_box(
    place: Place,
    *,
    fates: Fates,
    files: Storage,
    journal: Journal,
    teller: Teller,
    config: AgentConfig,
    check: Callable[[], None],
    given_up_on_stop: Callable[[], AbstractContextManager[None]],
) -> LetterBox:
    """Return the box of one run, and what earlier runs left to be delivered in it."""
    number = produce_number(fates.pipeline)
    # The executors have spent the budget before they tell of a failure.
    said = fates.stages[number]
    said = replace(said, policy=msgspec.structs.replace(said.policy, retry=RetryPolicy()))
    box = LetterBox(
        spark=fates.pipeline.source.sparkSession,
        files=files,
        place=place,
        writing=Writing(
            pipeline=fates.pipeline,
            application=config.application,
            checkpoint=journal.ledger.checkpoint,
            configs=config.errors.dead_letters.include_configs,
        ),
        journal=journal,
        teller=teller,
        fates=replace(fates, stages={**fates.stages, number: said}),
        clock=fates.clock,
        check=check,
        given_up_on_stop=given_up_on_stop,
    )
    box.expect(journal.kept)
    return box


def is_waiting(files: Storage, letters: DeadLetters) -> bool:
    """Whether letters that an entry names are not yet known to be where they belong."""
    return files.exists(f"{FOLDER}/{letters.name}")


def place_of(pipeline: Pipeline, config: AgentConfig) -> Place | None:
    """Return where dead letters go, None when they are not enabled; raises DeadLettersUnusable."""
    letters, spark = config.errors.dead_letters, pipeline.source.sparkSession
    if not letters.enable:
        return None
    if letters.topic is not None:
        return topic_place(pipeline.source, letters, config.errors.policy(StageKind.PRODUCE))
    options = {name: str(value) for name, value in letters.options.items()}
    if letters.format in FILES:
        # The configuration is refused where files have no path.
        return FolderPlace(
            spark=spark, path=letters.path or "", format=letters.format, options=options
        )
    return SparkPlace(spark=spark, path=letters.path, format=letters.format, options=options)
