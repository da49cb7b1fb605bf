"""`.produce` after a worker has crashed: the round is done again in parts, each a job of its own.

A failed job has no results, and whatever its other tasks have sent they send again. So a part that
crashes leaves the others alone. The worker writes down which row is at work; that record is tried
alone before it is blamed. Where it goes well, a thread of the client may have crashed for another
one: the part is sent up to there once more, by a client for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NoReturn

from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from agents.batches import conf
from agents.blame import error_row
from agents.cuts import is_record
from agents.problem import (
    SAYS_CRASHES,
    WORKER_CRASHED,
    Problem,
    StepFailed,
    problem_of_job,
    rank_at_work,
)
from agents.room import checkpointed, given_back
from agents.worker.columns import ENTRY, ERROR, POSITION, PREFIX, RANK, STOPPED, TASK
from controlplane.domain.policy import Policy

_PART = f"{PREFIX}part"
#: More parts than this are not sent side by side.
_PARTS = 16

#: Sends rows on the executors; what it returns is in a local checkpoint.
Send = Callable[[DataFrame, Any], DataFrame]


def is_crash(spark: SparkSession, exc: BaseException) -> bool:
    """Whether a job ended because a Python worker did, without a word."""
    return problem_of_job(spark, exc).exception_class == WORKER_CRASHED


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashedSends:
    """Sends the rows of one round, some of which crash the worker."""

    policy: Policy
    #: What is told of a round.
    schema: str
    #: Brings rows into their order, all rows of a task in one of so many partitions.
    in_order: Callable[[DataFrame, int], DataFrame]
    send: Send

    def sent(self, rows: DataFrame, producing: Any) -> DataFrame:
        """Send the rows; return what a round is told, in a local checkpoint.

        Of records that crash the worker alone it says so, and their tasks have stopped there.
        Raises StepFailed where a crash is no record's doing, and what a job fails of otherwise.
        """
        spark = rows.sparkSession
        parts = min(_PARTS, spark.sparkContext.defaultParallelism)
        with given_back() as kept, conf(spark, SAYS_CRASHES):
            ordered = checkpointed(self.in_order(rows, parts))
            kept.append(ordered)
            rank, number = F.monotonically_increasing_id() + 1, F.spark_partition_id()
            ranked = ordered.withColumns({RANK: rank, _PART: number})
            numbers = [row[0] for row in ranked.select(_PART).distinct().collect()]
            each = [
                _Part(by=self, rows=ranked.where(F.col(_PART) == n).drop(_PART), kept=kept)
                for n in numbers
            ]
            # Each thread with properties of its own: what stops a run goes by them.
            runs = [inheritable_thread_target(spark)(part.run) for part in each]
            with ThreadPoolExecutor(max(1, len(runs))) as pool:
                told = [*pool.map(lambda run: run(producing), runs)]
            none = spark.createDataFrame([], self.schema)
            return checkpointed(reduce(DataFrame.union, told, none))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suspect:
    """The record that was at work when a worker crashed."""

    row: Row
    #: Of the row that was.
    rank: int
    #: Whether nothing before it needs to be sent again.
    settled: bool

    @property
    def is_at(self) -> Column:
        """Return whether a row is of this record."""
        return is_record(self.row[TASK], self.row[ENTRY], self.row[POSITION])


@dataclass(slots=True, kw_only=True)
class _Part:
    """The rows of one partition, in their order."""

    by: CrashedSends
    rows: DataFrame
    kept: list[DataFrame]
    told: list[DataFrame] = field(default_factory=list)
    #: Tasks of which nothing more is sent in this round.
    stopped: set[str | None] = field(default_factory=set)

    def run(self, producing: Any) -> DataFrame:
        """Send them; return what is told."""
        todo = self.rows
        while (crash := self._sent(todo, producing)) is not None:
            suspect, problem = self._found(todo, producing, crash)
            if not suspect.settled:
                before = todo.where((F.col(RANK) < suspect.rank) & ~suspect.is_at)
                again = self._sent(before, producing)
                if again is not None:
                    self._failed(again)
                producing = self._counted(producing)
            if suspect.row[TASK] not in self.stopped:
                self._blame(suspect, problem, producing)
            producing = self._begun(producing, suspect)
            todo = self.rows.where((F.col(RANK) > suspect.rank) & ~_is_of(self.stopped))
        return reduce(DataFrame.union, self.told)

    def _sent(self, rows: DataFrame, producing: Any, *, tell: bool = True) -> Exception | None:
        """Send some of them; return what a crash came to, None where there was none."""
        try:
            told = self.by.send(rows.coalesce(1), producing)
        except Exception as exc:
            if not is_crash(rows.sparkSession, exc):
                raise
            return exc
        self.kept.append(told)
        if tell:
            self.told.append(told)
        return None

    def _found(self, todo: DataFrame, producing: Any, crash: Exception) -> tuple[_Suspect, Problem]:
        suspect = self._suspect(todo, crash)
        problem = self._alone(todo, suspect, producing)
        if suspect is None or problem is None:
            upto = todo if suspect is None else todo.where(F.col(RANK) <= suspect.rank)
            again = self._sent(upto, replace(producing, singly=True), tell=False)
            suspect = None if again is None else self._suspect(todo, again)
            problem = self._alone(todo, suspect, producing)
            if suspect is None or problem is None:
                self._failed(crash)
            suspect = replace(suspect, settled=False)
        return suspect, problem

    def _suspect(self, todo: DataFrame, crash: Exception) -> _Suspect | None:
        rank, settled = rank_at_work(crash) or (0, False)
        found = todo.where(F.col(RANK) == rank).select(TASK, ENTRY, POSITION).collect()
        return _Suspect(row=found[0], rank=rank, settled=settled) if found else None

    def _alone(self, todo: DataFrame, suspect: _Suspect | None, producing: Any) -> Problem | None:
        """Return how a record crashes its worker alone, None where it does not."""
        if suspect is None:
            return None
        crash = self._sent(todo.where(suspect.is_at), producing, tell=False)
        return None if crash is None else problem_of_job(todo.sparkSession, crash)

    def _blame(self, suspect: _Suspect, problem: Problem, producing: Any) -> None:
        task, entry, position = suspect.row
        made = producing.made.get(task, 0)
        made = made if made and self._is_first(suspect) else 0
        error = error_row(replace(problem, attempts=made + 1), self.by.policy)
        spark = self.rows.sparkSession
        row = (task, entry, position, error, made, True)
        self.told.append(spark.createDataFrame([row], self.by.schema))
        self.stopped.add(task)

    def _is_first(self, suspect: _Suspect) -> bool:
        """Return whether a record is the first of its task, which may have failed before."""
        before = (F.col(RANK) < suspect.rank) & F.col(TASK).eqNullSafe(F.lit(suspect.row[TASK]))
        return self.rows.where(before & ~suspect.is_at).isEmpty()

    def _counted(self, producing: Any) -> Any:
        """Return what sends the rest, with the failures of what was sent last taken off."""
        failed = F.count_if(F.col(ERROR).isNotNull()).alias("failed")
        stopped = F.max(STOPPED).alias("stopped")
        left: dict[str | None, int] = dict(producing.left)
        fresh = 0
        for row in self.told[-1].groupBy(TASK).agg(failed, stopped).collect():
            task = row[TASK]
            left[task] = left.get(task, producing.allowed) - row["failed"]
            fresh += row["failed"]
            if row["stopped"]:
                self.stopped.add(task)
        outage_from = producing.outage_from
        if outage_from is not None:
            outage_from -= fresh
        return replace(producing, left=left, outage_from=outage_from)

    def _begun(self, producing: Any, suspect: _Suspect) -> Any:
        """Return what sends the rest: of tasks that have begun nothing waits for a retry."""
        if not producing.made:
            return producing
        begun = self.rows.where(F.col(RANK) <= suspect.rank).select(TASK).distinct().collect()
        tasks = {row[TASK] for row in begun}
        made = {task: n for task, n in producing.made.items() if task not in tasks}
        return replace(producing, made=made)

    def _failed(self, crash: Exception) -> NoReturn:
        problem = problem_of_job(self.rows.sparkSession, crash)
        why = "no single record makes it fail alone"
        raise StepFailed("produce", problem, crash, why=why)


def _is_of(tasks: Collection[str | None]) -> Column:
    """Return whether a row is of one of some tasks."""
    named = [task for task in tasks if task is not None]
    found = F.col(TASK).isin(named) if named else F.lit(False)
    return F.when(F.col(TASK).isNull(), F.lit(None in tasks)).otherwise(found)
