"""Isolate records that crash a Python worker in `.produce`: repeat the round in parts.

Each part is a job of its own. A failed job has no results, and its other tasks send their rows
again; with parts, a crash leaves the others alone. The worker records which row it is sending. That
record is sent alone before it is isolated. If it passes alone, a thread of the client may have
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

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from arrester.agents.execution import bisection
from arrester.agents.failures.pause_offsets import is_record, is_task_in
from arrester.agents.spark.column_names import map_in_arrow
from arrester.agents.spark.errors import (
    Problem,
    StepFailed,
    error_row,
)
from arrester.agents.spark.job_attempts import for_thread
from arrester.agents.spark.jvm.problems import problem_of_job
from arrester.agents.spark.local_checkpoint import checkpointed, releasing
from arrester.agents.spark.session_conf import FAULT_HANDLER, conf
from arrester.agents.spark.worker_tracebacks import rank_at_crash
from arrester.agents.worker.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    ORDINAL,
    POSITION,
    PREFIX,
    RANK,
    RETRIES,
    STOPPED,
    TASK,
)
from arrester.controlplane.domain.error_policy.policy import Policy

RESULT_SCHEMA: Final = (
    f"{TASK} string, {ENTRY} int, {POSITION} bigint, {ERROR} {ERROR_TYPE.simpleString()}, "
    f"{RETRIES} bigint, {STOPPED} boolean"
)
_PART = f"{PREFIX}part"
#: At most this many parts are sent in parallel.
_PARTS = 16


def is_crash(spark: SparkSession, exc: BaseException) -> bool:
    """Whether a job ended because a Python worker died without an exception."""
    return problem_of_job(spark, exc).is_crash


def in_task_order(rows: DataFrame, partitions: int | None = None) -> DataFrame:
    """Return the rows sorted, with all rows of a task in one partition."""
    task = F.col(TASK)
    by_task = rows.repartition(task) if partitions is None else rows.repartition(partitions, task)
    return by_task.sortWithinPartitions(ENTRY, POSITION, TASK, ORDINAL)


def send(rows: DataFrame, sender: Any) -> DataFrame:
    """Send rows on the executors; return the results, in a local checkpoint."""
    return checkpointed(map_in_arrow(rows, sender, RESULT_SCHEMA))


@dataclass(slots=True, kw_only=True)
class CrashIsolation:
    """Send the rounds of one micro-batch of which some rows crash the worker."""

    policy: Policy
    #: Raises if the run is to end.
    check: Callable[[], None]
    #: Whether a worker has crashed: later rounds are sent in parts too.
    needed: bool = False
    #: Jobs used by the isolation, in all parts and rounds.
    jobs: int = 0
    #: Whether a part has raised: the results of the others are discarded.
    failed: bool = False
    lock: Lock = field(default_factory=Lock)

    def send(self, rows: DataFrame, sender: Any) -> DataFrame:
        """Send the rows; return the result of the round in a local checkpoint.

        The result includes the records that crash the worker alone; their tasks stop there. Raises
        StepFailed if no record causes the crash, and the job's exception otherwise.
        """
        spark = rows.sparkSession
        partitions = min(_PARTS, spark.sparkContext.defaultParallelism)
        with releasing() as blocks, conf(spark, FAULT_HANDLER):
            blocks.append(checkpointed(in_task_order(rows, partitions)))
            rank, part = F.monotonically_increasing_id() + 1, F.spark_partition_id()
            ranked = blocks[0].withColumns({RANK: rank, _PART: part})
            parts = [
                _Part(
                    isolation=self,
                    rows=ranked.where(F.col(_PART) == row[0]).drop(_PART),
                    blocks=blocks,
                )
                for row in ranked.select(_PART).distinct().collect()
            ]
            # Each thread has local properties of its own, which a stop request uses.
            runs = [for_thread(spark, part.run) for part in parts]
            with ThreadPoolExecutor(max(1, len(runs))) as pool:
                results = [*chain.from_iterable(pool.map(lambda run: run(sender), runs))]
            empty = spark.createDataFrame([], RESULT_SCHEMA)
            return checkpointed(reduce(DataFrame.union, results, empty))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SentRecord:
    """The record that was being sent when a worker crashed."""

    row: Row
    #: Of the row that was being sent.
    rank: int
    #: Whether nothing before it needs to be sent again.
    settled: bool

    @property
    def is_at(self) -> Column:
        """Whether a row belongs to this record."""
        return is_record(self.row[TASK], self.row[ENTRY], self.row[POSITION])


@dataclass(slots=True, kw_only=True)
class _Part:
    """The rows of one partition, in order."""

    isolation: CrashIsolation
    rows: DataFrame
    blocks: list[DataFrame]
    results: list[DataFrame] = field(default_factory=list)
    #: Tasks of which nothing more is sent in this round.
    stopped: set[str | None] = field(default_factory=set)

    def run(self, sender: Any) -> Sequence[DataFrame]:
        """Send the rows; return the results."""
        try:
            self._run(sender)
        except BaseException:
            self.isolation.failed = True
            raise
        return self.results

    def _run(self, sender: Any) -> None:
        rows = self.rows
        crash = self._send(rows, sender)
        while crash is not None:
            self.isolation.check()
            if self.isolation.failed:
                return
            if self.isolation.jobs >= bisection.JOBS:
                limit = f"than {bisection.JOBS} jobs could find"
                self._raise(crash, f"more of its records crash the worker {limit}")
            record, problem = self._crashing_record(rows, sender, crash)
            if not record.settled:
                before = rows.where((F.col(RANK) < record.rank) & ~record.is_at)
                crash = self._search(before, sender)
                if crash is not None:
                    self._raise(crash)
                sender = self._less_tolerated(sender)
            if record.row[TASK] not in self.stopped:
                self._isolate(record, problem, sender)
            sender = self._without_begun_tasks(sender, record)
            after = F.col(RANK) > record.rank
            rows = self.rows.where(after & ~is_task_in(F.col(TASK), self.stopped))
            crash = self._search(rows, sender)

    def _search(self, rows: DataFrame, sender: Any, *, is_result: bool = True) -> Exception | None:
        """Send some of the rows as a job of the isolation."""
        with self.isolation.lock:
            self.isolation.jobs += 1
        return self._send(rows, sender, is_result=is_result)

    def _send(self, rows: DataFrame, sender: Any, *, is_result: bool = True) -> Exception | None:
        """Send some of the rows; return the exception of a crash, None without one."""
        try:
            result = send(rows.coalesce(1), sender)
        except Exception as exc:
            if not is_crash(rows.sparkSession, exc):
                raise
            return exc
        self.blocks.append(result)
        if is_result:
            self.results.append(result)
        return None

    def _crashing_record(
        self, rows: DataFrame, sender: Any, crash: Exception
    ) -> tuple[_SentRecord, Problem]:
        record = self._sent_record(rows, crash)
        problem = self._problem_alone(rows, record, sender)
        if record is not None and problem is not None:
            return record, problem
        until = rows if record is None else rows.where(F.col(RANK) <= record.rank)
        again = self._search(until, replace(sender, one_by_one=True), is_result=False)
        record = None if again is None else self._sent_record(rows, again)
        problem = self._problem_alone(rows, record, sender)
        if record is None or problem is None:
            self._raise(crash)
        return replace(record, settled=False), problem

    def _sent_record(self, rows: DataFrame, crash: Exception) -> _SentRecord | None:
        rank, settled = rank_at_crash(crash) or (0, False)
        found = rows.where(F.col(RANK) == rank).select(TASK, ENTRY, POSITION).collect()
        return _SentRecord(row=found[0], rank=rank, settled=settled) if found else None

    def _problem_alone(
        self, rows: DataFrame, record: _SentRecord | None, sender: Any
    ) -> Problem | None:
        """Return how a record crashes its worker when sent alone; None if it does not."""
        if record is None:
            return None
        crash = self._search(rows.where(record.is_at), sender, is_result=False)
        return None if crash is None else problem_of_job(rows.sparkSession, crash)

    def _isolate(self, record: _SentRecord, problem: Problem, sender: Any) -> None:
        """Report the record as failed; its task stops there."""
        task, entry, position = record.row
        made = sender.made.get(task, 0)
        made = made if made and self._is_first_of_task(record) else 0
        error = error_row(replace(problem, attempts=made + 1), self.isolation.policy)
        row = (task, entry, position, error, made, True)
        self.results.append(self.rows.sparkSession.createDataFrame([row], RESULT_SCHEMA))
        self.stopped.add(task)

    def _is_first_of_task(self, record: _SentRecord) -> bool:
        """Whether a record is the first of its task, which may have failed before."""
        before = (F.col(RANK) < record.rank) & F.col(TASK).eqNullSafe(F.lit(record.row[TASK]))
        return self.rows.where(before & ~record.is_at).isEmpty()

    def _less_tolerated(self, sender: Any) -> Any:
        """Return the sender of the remaining rows, with the failures already counted."""
        failed = F.count_if(F.col(ERROR).isNotNull()).alias("failed")
        stopped = F.max(STOPPED).alias("stopped")
        tolerated: dict[str | None, int] = dict(sender.tolerated_by_task)
        failures = 0
        for row in self.results[-1].groupBy(TASK).agg(failed, stopped).collect():
            task = row[TASK]
            tolerated[task] = tolerated.get(task, sender.tolerated) - row["failed"]
            failures += row["failed"]
            if row["stopped"]:
                self.stopped.add(task)
        outage_from = None if sender.outage_from is None else sender.outage_from - failures
        return replace(sender, tolerated_by_task=tolerated, outage_from=outage_from)

    def _without_begun_tasks(self, sender: Any, record: _SentRecord) -> Any:
        """Return the sender of the remaining rows: no retry is pending in tasks that have begun."""
        if not sender.made:
            return sender
        begun = self.rows.where(F.col(RANK) <= record.rank).select(TASK).distinct().collect()
        tasks = {row[TASK] for row in begun}
        made = {task: n for task, n in sender.made.items() if task not in tasks}
        return replace(sender, made=made)

    def _raise(
        self, crash: Exception, why: str = "no single record makes it fail alone"
    ) -> NoReturn:
        problem = problem_of_job(self.rows.sparkSession, crash)
        raise StepFailed("produce", problem, crash, why=why)
