"""Sink probe: find the records that a sink rejects, by writing parts of a batch where nobody reads.

Under the number of a micro-batch only the complete remaining batch is ever written. The probe
therefore writes elsewhere: file sinks into a scratch folder, other sinks as their author defines. A
record is isolated only if the probe passes without any record and fails with this one alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.decisions.end_reasons import reason_of
from arrester.agents.decisions.rules import SelfHealing
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Files, Sink
from arrester.agents.execution.bisection import Bisection, FailingRecord, NoSingleRecord
from arrester.agents.execution.step_segments import quoted
from arrester.agents.execution.transforms import transformed
from arrester.agents.executor.columns import ENTRY, ERROR, ERROR_TYPE, FATE, POSITION, RETRIES, TASK
from arrester.agents.failures.pause_offsets import is_record
from arrester.agents.journal.scratch import Scratch
from arrester.agents.spark.driver_errors import problem_of
from arrester.agents.spark.error_columns import error_row
from arrester.agents.spark.errors import Problem, StepFailed, problem_of_job, thrown_of
from arrester.agents.spark.job_attempts import Action, AttemptFailed, FailedJob, attempted
from arrester.agents.spark.local_checkpoint import ID, numbered
from arrester.agents.spark.row_counters import metered
from arrester.controlplane.domain.error_policy.classify import Kind
from arrester.controlplane.domain.error_policy.policy import Policy
from arrester.controlplane.domain.errors import ArresterError

_log = logging.getLogger("arrester.thread")


class ProbeExited(ArresterError):
    """Stands for something raised by a probe that is not an Exception, such as SystemExit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRecord:
    """A record that a sink rejects, and the reason."""

    task: str | None
    entry: int
    position: int | None
    problem: Problem

    def is_at(self) -> Column:
        """Return whether a row belongs to this record."""
        return is_record(self.task, self.entry, self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkProbes:
    """Run the probes of one run."""

    pipeline: Pipeline
    scratch: Scratch
    #: Wraps work that a stop request may cancel.
    given_up_on_stop: Callable[[], AbstractContextManager[None]]

    def start_probe(self, sink: Sink, policy: Policy) -> SinkProbe | None:
        """Return the probe for one micro-batch or chunk; None if the sink has none."""
        tail = self.pipeline.tail
        if tail is not None and tail.stateful:
            # The result for a part has no meaning for the whole.
            return None
        action, at_once = self._action(sink)
        return None if action is None else SinkProbe(self, action, policy, at_once=at_once)

    def _action(self, sink: Sink) -> tuple[Action | None, int]:
        if not isinstance(sink.function, Files):
            # The author may have one staging table: one probe at a time.
            return sink.probe, 1
        files = sink.function

        def write(df: DataFrame) -> None:
            with self.scratch.folder() as folder:
                files.write_into(df, folder)

        return write, 4


class SinkProbe:
    """Find the records of one micro-batch or chunk that its sink rejects.

    The number of jobs is bounded for all failures of the sink together.
    """

    def __init__(self, probes: SinkProbes, action: Action, policy: Policy, *, at_once: int) -> None:
        self._trials = probes
        self._pipeline = probes.pipeline
        self._action = action
        self._policy = policy
        self._search = Bisection(self._tried, at_once=at_once, trying=True)

    def refused(self, evaluated: Evaluated, held: Column, problem: Problem) -> list[RejectedRecord]:
        """Return the rejected records: without them the probe passes.

        None if the sink fails as a whole. `problem` is the failure of the sink. Raises SelfHealing
        if the probes fail for a reason that the platform repairs.
        """
        name = self._pipeline.name
        _log.info("pipeline %r: the sink failed; probing for rejected records", name)
        came = numbered(evaluated.frame).where(F.col(FATE).isNull() & ~held)
        try:
            with self._trials.given_up_on_stop():
                found = self._found(came, problem)
        except (NoSingleRecord, StepFailed) as exc:
            self._heals(came.sparkSession, exc.raised)
            self._say_why(exc)
            return []
        finally:
            self._trials.scratch.clear()
        said = str(len(found)) if found else "none, its probe passes"
        _log.info("pipeline %r: records rejected by the sink: %s", name, said)
        return found

    def _say_why(self, exc: NoSingleRecord | StepFailed) -> None:
        """Log why no record is isolated, without text that may quote a record."""
        name = self._pipeline.name
        if isinstance(exc, NoSingleRecord) and exc.recordless:
            said = f"{type(exc.raised).__name__}: {reason_of(exc.raised)}"
            _log.warning("pipeline %r: the sink probe fails without any record: %s", name, said)
            return
        why = exc.reason if isinstance(exc, StepFailed) else str(exc)
        _log.info("pipeline %r: the sink failed, and no single record is the cause: %s", name, why)

    def _found(self, came: DataFrame, problem: Problem) -> list[RejectedRecord]:
        found: list[RejectedRecord] = []
        while True:
            rows = came.where(~_is_one_of(found)) if found else came
            failed = self._failed(rows)
            if failed is None:
                return found
            self._vetted(rows.sparkSession, failed.raised, problem)
            found.append(self._of(rows, self._search.one(rows, failed), problem))

    def _failed(self, rows: DataFrame) -> FailedJob | None:
        """Return how the probe over some rows fails; None if it passes."""
        try:
            attempted(rows.sparkSession, lambda: self._tried(rows))
        except AttemptFailed as exc:
            return exc.failed
        return None

    def _tried(self, rows: DataFrame) -> None:
        """Write some rows as the sink does, where nobody reads them."""
        try:
            self._action(self._given(rows))
        except Exception:
            raise
        except BaseException as exc:
            raise ProbeExited(f"{type(exc).__name__}: {exc}") from exc

    def _given(self, rows: DataFrame) -> DataFrame:
        tail = self._pipeline.tail
        if tail is not None:
            return metered(transformed(rows, tail))
        # Keeps the author's filters above this one: below it they would run on rows that are left
        # out.
        fenced = rows.where(F.spark_partition_id() >= 0)
        return fenced.select(*[quoted(name) for name in self._pipeline.columns])

    def _of(self, rows: DataFrame, guilty: FailingRecord, problem: Problem) -> RejectedRecord:
        """Return the record of a row, with the sink's attempts at it."""
        alone = self._vetted(rows.sparkSession, guilty.raised, problem)
        where = rows.where(F.col(ID) == guilty.id).select(TASK, ENTRY, POSITION).collect()[0]
        return RejectedRecord(
            task=where[TASK],
            entry=where[ENTRY],
            position=where[POSITION],
            problem=replace(alone, attempts=problem.attempts, took_ms=problem.took_ms),
        )

    def _vetted(self, spark: SparkSession, raised: Exception, problem: Problem) -> Problem:
        """Return the failure of a probe; raises NoSingleRecord if records did not cause it."""
        found, kind = self._heals(spark, raised)
        # The sink's own failure was neither: a connection lost now is not caused by a record.
        passing = kind is Kind.RETRIABLE and kind is not self._kind(problem)
        if kind is Kind.FATAL or passing:
            raise NoSingleRecord(f"the probe fails with {found.exception_class}", raised)
        return found

    def _heals(self, spark: SparkSession, raised: BaseException) -> tuple[Problem, Kind]:
        of_python = thrown_of(raised) is None
        found = (problem_of if of_python else problem_of_job)(spark, raised)
        kind = self._kind(found)
        if kind is Kind.SELF_HEALING:
            raise SelfHealing(found, self._policy.table.classify(found.cause).reason) from raised
        return found, kind

    def _kind(self, problem: Problem) -> Kind:
        return self._policy.table.classify(problem.cause).kind


def failed_rows(spark: SparkSession, found: Sequence[RejectedRecord], policy: Policy) -> DataFrame:
    """Return the coordinates and failures of the records as a frame to join with."""
    schema = T.StructType().add(TASK, T.StringType()).add(ENTRY, T.IntegerType())
    schema = schema.add(POSITION, T.LongType()).add(ERROR, ERROR_TYPE).add(RETRIES, T.LongType())
    rows = [
        (each.task, each.entry, each.position, error_row(each.problem, policy), 0) for each in found
    ]
    return F.broadcast(spark.createDataFrame(rows, schema))


def _is_one_of(found: Sequence[RejectedRecord]) -> Column:
    return reduce(lambda one, other: one | other, [each.is_at() for each in found])
