"""Isolate records that crash a Python worker in `.produce`: repeat the round in parts.

Each part is a job of its own. A failed job has no results, and its other tasks send their rows
again; with parts, a crash leaves the others alone. The worker records which row it is sending. That
record is tried alone before it is isolated. If it passes alone, a thread of the client may have
crashed for another record: the part is sent up to there once more, with one client per row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from threading import Lock
from typing import Any, Final, NoReturn

from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from arrester.agents.execution import bisection
from arrester.agents.executor.columns import ENTRY, ERROR, POSITION, PREFIX, RANK, STOPPED, TASK
from arrester.agents.failures.pause_offsets import is_one_of, is_record
from arrester.agents.spark.error_columns import error_row
from arrester.agents.spark.errors import Problem, StepFailed, problem_of_job, rank_at_work
from arrester.agents.spark.local_checkpoint import checkpointed, releasing
from arrester.agents.spark.session_conf import FAULT_HANDLER, conf
from arrester.controlplane.domain.error_policy.policy import Policy

_PART = f"{PREFIX}part"
_IN_COMPANY: Final = "no single record makes it fail alone"
#: At most this many parts are sent in parallel.
_PARTS = 16

#: Send rows on the executors; the result is in a local checkpoint.
Send = Callable[[DataFrame, Any], DataFrame]


def is_crash(spark: SparkSession, exc: BaseException) -> bool:
    """Whether a job ended because a Python worker died without an exception."""
    return problem_of_job(spark, exc).is_crash


@dataclass(slots=True, kw_only=True)
class CrashIsolation:
    """Send the rounds of one micro-batch of which some rows crash the worker."""

    policy: Policy
    #: The schema of a round's result.
    schema: str
    #: Sort the rows, with all rows of a task in one of this many partitions.
    in_order: Callable[[DataFrame, int], DataFrame]
    send: Send
    #: Raises if the run is to end.
    check: Callable[[], None]
    #: Jobs used by the bisection, in all parts and rounds.
    _jobs: int = 0
    #: Whether a part has raised: the results of the others are discarded.
    _over: bool = False
    _counting: Lock = field(default_factory=Lock)

    def sent(self, rows: DataFrame, producing: Any) -> DataFrame:
        """Send the rows; return the result of the round in a local checkpoint.

        The result includes the records that crash the worker alone; their tasks stop there. Raises
        StepFailed if no record causes the crash, and the job's exception otherwise.
        """
        spark = rows.sparkSession
        parts = min(_PARTS, spark.sparkContext.defaultParallelism)
        with releasing() as kept, conf(spark, FAULT_HANDLER):
            ordered = checkpointed(self.in_order(rows, parts))
            kept.append(ordered)
            rank, number = F.monotonically_increasing_id() + 1, F.spark_partition_id()
            ranked = ordered.withColumns({RANK: rank, _PART: number})
            numbers = [row[0] for row in ranked.select(_PART).distinct().collect()]
            each = [
                _Part(by=self, rows=ranked.where(F.col(_PART) == n).drop(_PART), kept=kept)
                for n in numbers
            ]
            # Each thread has local properties of its own, which a stop request uses.
            runs = [inheritable_thread_target(spark)(part.run) for part in each]
            with ThreadPoolExecutor(max(1, len(runs))) as pool:
                told = [*chain.from_iterable(pool.map(lambda run: run(producing), runs))]
            none = spark.createDataFrame([], self.schema)
            return checkpointed(reduce(DataFrame.union, told, none))

    def goes_on(self) -> bool:
        """Whether a part still looks for its crashing record; raises if the run is to end."""
        self.check()
        return not self._over

    def ends(self) -> None:
        """End all parts: one of them has raised."""
        self._over = True

    def takes_a_job(self) -> None:
        """Count one job of the bisection."""
        with self._counting:
            self._jobs += 1

    @property
    def is_spent(self) -> bool:
        """Whether the bisection has used all its jobs."""
        return self._jobs >= bisection.JOBS


@dataclass(frozen=True, slots=True, kw_only=True)
class _AtWork:
    """The record that was being sent when a worker crashed."""

    row: Row
    #: Of the row that was being sent.
    rank: int
    #: Whether nothing before it needs to be sent again.
    settled: bool

    @property
    def is_at(self) -> Column:
        """Return whether a row belongs to this record."""
        return is_record(self.row[TASK], self.row[ENTRY], self.row[POSITION])


@dataclass(slots=True, kw_only=True)
class _Part:
    """The rows of one partition, in order."""

    by: CrashIsolation
    rows: DataFrame
    kept: list[DataFrame]
    told: list[DataFrame] = field(default_factory=list)
    #: Tasks of which nothing more is sent in this round.
    stopped: set[str | None] = field(default_factory=set)

    def run(self, producing: Any) -> Sequence[DataFrame]:
        """Send the rows; return the results."""
        try:
            self._run(producing)
        except BaseException:
            self.by.ends()
            raise
        return self.told

    def _run(self, producing: Any) -> None:
        todo = self.rows
        crash = self._sent(todo, producing)
        while crash is not None and self.by.goes_on():
            if self.by.is_spent:
                why = f"more of its records crash the worker than {bisection.JOBS} jobs could find"
                self._failed(crash, why)
            at_work, problem = self._found(todo, producing, crash)
            if not at_work.settled:
                before = todo.where((F.col(RANK) < at_work.rank) & ~at_work.is_at)
                again = self._searched(before, producing)
                if again is not None:
                    self._failed(again)
                producing = self._counted(producing)
            if at_work.row[TASK] not in self.stopped:
                self._blame(at_work, problem, producing)
            producing = self._begun(producing, at_work)
            behind = F.col(RANK) > at_work.rank
            todo = self.rows.where(behind & ~is_one_of(F.col(TASK), self.stopped))
            crash = self._searched(todo, producing)

    def _searched(self, rows: DataFrame, producing: Any, *, tell: bool = True) -> Exception | None:
        """Send some of the rows as a job of the bisection."""
        self.by.takes_a_job()
        return self._sent(rows, producing, tell=tell)

    def _sent(self, rows: DataFrame, producing: Any, *, tell: bool = True) -> Exception | None:
        """Send some of the rows; return the result of a crash, None without one."""
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

    def _found(self, todo: DataFrame, producing: Any, crash: Exception) -> tuple[_AtWork, Problem]:
        at_work = self._worked_at(todo, crash)
        problem = self._alone(todo, at_work, producing)
        if at_work is None or problem is None:
            upto = todo if at_work is None else todo.where(F.col(RANK) <= at_work.rank)
            again = self._searched(upto, replace(producing, singly=True), tell=False)
            at_work = None if again is None else self._worked_at(todo, again)
            problem = self._alone(todo, at_work, producing)
            if at_work is None or problem is None:
                self._failed(crash)
            at_work = replace(at_work, settled=False)
        return at_work, problem

    def _worked_at(self, todo: DataFrame, crash: Exception) -> _AtWork | None:
        rank, settled = rank_at_work(crash) or (0, False)
        found = todo.where(F.col(RANK) == rank).select(TASK, ENTRY, POSITION).collect()
        return _AtWork(row=found[0], rank=rank, settled=settled) if found else None

    def _alone(self, todo: DataFrame, at_work: _AtWork | None, producing: Any) -> Problem | None:
        """Return how a record crashes its worker when sent alone; None if it does not."""
        if at_work is None:
            return None
        crash = self._searched(todo.where(at_work.is_at), producing, tell=False)
        return None if crash is None else problem_of_job(todo.sparkSession, crash)

    def _blame(self, at_work: _AtWork, problem: Problem, producing: Any) -> None:
        task, entry, position = at_work.row
        made = producing.made.get(task, 0)
        made = made if made and self._is_first(at_work) else 0
        error = error_row(replace(problem, attempts=made + 1), self.by.policy)
        spark = self.rows.sparkSession
        row = (task, entry, position, error, made, True)
        self.told.append(spark.createDataFrame([row], self.by.schema))
        self.stopped.add(task)

    def _is_first(self, at_work: _AtWork) -> bool:
        """Return whether a record is the first of its task, which may have failed before."""
        before = (F.col(RANK) < at_work.rank) & F.col(TASK).eqNullSafe(F.lit(at_work.row[TASK]))
        return self.rows.where(before & ~at_work.is_at).isEmpty()

    def _counted(self, producing: Any) -> Any:
        """Return the sender of the remaining rows, with the failures already counted."""
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

    def _begun(self, producing: Any, at_work: _AtWork) -> Any:
        """Return the sender of the remaining rows; tasks that have begun do not wait for a
        retry."""
        if not producing.made:
            return producing
        begun = self.rows.where(F.col(RANK) <= at_work.rank).select(TASK).distinct().collect()
        tasks = {row[TASK] for row in begun}
        made = {task: n for task, n in producing.made.items() if task not in tasks}
        return replace(producing, made=made)

    def _failed(self, crash: Exception, why: str = _IN_COMPANY) -> NoReturn:
        problem = problem_of_job(self.rows.sparkSession, crash)
        raise StepFailed("produce", problem, crash, why=why)
