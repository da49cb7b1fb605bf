"""Isolate records that crash a Python worker in `.produce`: repeat the round in parts.

A failed job has no results, so its successful tasks send their rows again. Therefore each part is a
job of its own: a crash affects one part only. The worker records which row it is sending. The
record of this row is sent alone before it is isolated. If it passes alone, a thread of the client
may have crashed the worker for an earlier record. Then the rows up to it are sent once more, with
one client per row.
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
from arrester.agents.spark.errors import (
    Problem,
    StepFailed,
    error_row,
)
from arrester.agents.spark.frames.column_names import map_in_arrow
from arrester.agents.spark.frames.local_checkpoint import checkpointed, releasing
from arrester.agents.spark.job_attempts import for_thread
from arrester.agents.spark.jvm.exceptions.problems import problem_of_job
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
from arrester.domain.error_policy.policy import Policy

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
    """Sends the rounds of a micro-batch in which some rows crash the worker."""

    policy: Policy
    #: Raises if the run is to end.
    check: Callable[[], None]
    #: Whether a worker has crashed: later rounds are sent in parts, too.
    has_crashed: bool = False
    #: The number of jobs of the isolation, in all parts and rounds.
    jobs: int = 0
    #: Whether a part has raised an exception: the results of the other parts are discarded.
    part_failed: bool = False
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
            # The jobs of all threads have the tags of this one: a stop request cancels by tag.
            runs = [for_thread(spark, part.run) for part in parts]
            with ThreadPoolExecutor(max(1, len(runs))) as pool:
                results = [*chain.from_iterable(pool.map(lambda run: run(sender), runs))]
            empty = spark.createDataFrame([], RESULT_SCHEMA)
            return checkpointed(reduce(DataFrame.union, results, empty))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SentRecord:
    """The record that was being sent when a worker crashed."""

    row: Row
    #: The rank of the row that was being sent.
    rank: int
    #: Whether no row before it needs to be sent again.
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
    #: Tasks of which no more rows are sent in this round.
    stopped: set[str | None] = field(default_factory=set)

    def run(self, sender: Any) -> Sequence[DataFrame]:
        """Send the rows; return the results."""
        try:
            self._run(sender)
        except BaseException:
            self.isolation.part_failed = True
            raise
        return self.results

    def _run(self, sender: Any) -> None:
        rows = self.rows
        crash = self._send(rows, sender)
        while crash is not None:
            self.isolation.check()
            if self.isolation.part_failed:
                return
            if self.isolation.jobs >= bisection.JOBS:
                limit = f"than {bisection.JOBS} jobs could find"
                self._raise_step_failed(crash, f"more of its records crash the worker {limit}")
            record, problem = self._crashing_record(rows, sender, crash)
            if not record.settled:
                before = rows.where((F.col(RANK) < record.rank) & ~record.is_at)
                crash = self._resend(before, sender)
                if crash is not None:
                    self._raise_step_failed(crash)
                sender = self._with_lower_limits(sender)
            if record.row[TASK] not in self.stopped:
                self._isolate(record, problem, sender)
            sender = self._without_begun_tasks(sender, record)
            after = F.col(RANK) > record.rank
            rows = self.rows.where(after & ~is_task_in(F.col(TASK), self.stopped))
            crash = self._resend(rows, sender)

    def _resend(self, rows: DataFrame, sender: Any, *, is_result: bool = True) -> Exception | None:
        """Send some of the rows in a job that counts as one of the isolation."""
        with self.isolation.lock:
            self.isolation.jobs += 1
        return self._send(rows, sender, is_result=is_result)

    def _send(self, rows: DataFrame, sender: Any, *, is_result: bool = True) -> Exception | None:
        """Send some of the rows; return the exception of a crash, None without one.

        `is_result`: failures in these rows are part of the result of the round.
        """
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
        """Return the record that crashes the worker, and its problem; raises StepFailed."""
        record = self._sent_record(rows, crash)
        problem = self._problem_alone(rows, record, sender)
        if record is not None and problem is not None:
            return record, problem
        up_to_record = rows if record is None else rows.where(F.col(RANK) <= record.rank)
        repeated = self._resend(up_to_record, replace(sender, one_by_one=True), is_result=False)
        record = None if repeated is None else self._sent_record(rows, repeated)
        problem = self._problem_alone(rows, record, sender)
        if record is None or problem is None:
            self._raise_step_failed(crash)
        return replace(record, settled=False), problem

    def _sent_record(self, rows: DataFrame, crash: Exception) -> _SentRecord | None:
        """Return the record that the worker was sending, None if it is not known."""
        rank, settled = rank_at_crash(crash) or (0, False)
        at_rank = rows.where(F.col(RANK) == rank).select(TASK, ENTRY, POSITION).collect()
        return _SentRecord(row=at_rank[0], rank=rank, settled=settled) if at_rank else None

    def _problem_alone(
        self, rows: DataFrame, record: _SentRecord | None, sender: Any
    ) -> Problem | None:
        """Return how a record crashes its worker when sent alone; None if it does not."""
        if record is None:
            return None
        crash = self._resend(rows.where(record.is_at), sender, is_result=False)
        return None if crash is None else problem_of_job(rows.sparkSession, crash)

    def _isolate(self, record: _SentRecord, problem: Problem, sender: Any) -> None:
        """Add the record to the results as failed; its task stops there."""
        task, entry, position = record.row
        retries = sender.attempts.get(task, 0)
        retries = retries if retries and self._is_first_of_task(record) else 0
        error = error_row(replace(problem, attempts=retries + 1), self.isolation.policy)
        row = (task, entry, position, error, retries, True)
        self.results.append(self.rows.sparkSession.createDataFrame([row], RESULT_SCHEMA))
        self.stopped.add(task)

    def _is_first_of_task(self, record: _SentRecord) -> bool:
        """Whether a record is the first of its task: only this one can have failed before."""
        before = (F.col(RANK) < record.rank) & F.col(TASK).eqNullSafe(F.lit(record.row[TASK]))
        return self.rows.where(before & ~record.is_at).isEmpty()

    def _with_lower_limits(self, sender: Any) -> Any:
        """Return the sender of the remaining rows; the latest results are deducted from its limits.

        Tasks that stopped in these results stop in this round.
        """
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
        if not sender.attempts:
            return sender
        up_to_record = self.rows.where(F.col(RANK) <= record.rank)
        begun = {row[TASK] for row in up_to_record.select(TASK).distinct().collect()}
        attempts = {task: count for task, count in sender.attempts.items() if task not in begun}
        return replace(sender, attempts=attempts)

    def _raise_step_failed(
        self, crash: Exception, why: str = "no single record makes it fail alone"
    ) -> NoReturn:
        problem = problem_of_job(self.rows.sparkSession, crash)
        raise StepFailed("produce", problem, crash, why=why)
