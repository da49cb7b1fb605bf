"""The sink stage: write rows, and decide about the records that fail there (KIP-210)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.batch.record_columns import make_atomic, may_split_records
from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.decisions.end_reasons import RecordFatal, SinkFailed
from arrester.agents.decisions.handler_retries import HandlerRetries
from arrester.agents.decisions.judge import Decision, Judge
from arrester.agents.decisions.outage import SinkProgress
from arrester.agents.decisions.policies import StagePolicy
from arrester.agents.decisions.rules import FailureRules, SelfHealing
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.aggregate import Coordinates
from arrester.agents.failures.failure_set import FailureSet
from arrester.agents.journal.scratch import Scratch
from arrester.agents.sink.rejected_record import RejectedRecord, rejected_rows
from arrester.agents.spark.errors import Problem, error_column, error_row
from arrester.agents.spark.frames.local_checkpoint import ID, checkpointed, numbered, releasing
from arrester.agents.spark.jvm.exceptions.problems import problem_of_job
from arrester.agents.worker.columns import (
    DECIDED,
    ENTRY,
    ERROR,
    ERROR_TYPE,
    HELD,
    ORDINAL,
    OUTCOME,
    POSITION,
    RETRIES,
    SOURCE,
    TASK,
)
from arrester.domain.error_policy.classify import Kind
from arrester.domain.error_policy.policy import OutagePolicy, Policy

#: The names under which columns of a sink's results are joined to the rows.
_RESULT_NAMES: Final = {name: f"{name}_result" for name in (TASK, ENTRY, POSITION, ERROR, RETRIES)}

#: Up to this many records are marked by an expression, without a join.
_BY_EXPRESSIONS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeliveredRows:
    """A batch whose rejected records have failed at stage produce, and the decision about them."""

    evaluated: Evaluated
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStage(ABC):
    """Writes the rows that passed the steps of one pipeline in one run."""

    rules: FailureRules
    examples_limit: int
    #: The settings errors.outage.*
    outage: OutagePolicy
    #: Raises if the run is to end.
    check: Callable[[], None]
    #: Wait for this many milliseconds; raises if the run is to end.
    wait: Callable[[int], None]
    scratch: Scratch
    #: Wraps work that a stop request may cancel.
    cancelled_on_stop: Callable[[], AbstractContextManager[None]]

    @abstractmethod
    def write(
        self,
        evaluated: Evaluated,
        held: Column | None,
        number: int,
        reported: Sequence[Coordinates],
    ) -> Iterator[UndeliveredRows]:
        """Write the rows that passed and are not `held`; yield each decision about rejected rows.

        If `held` is None, no row is held. The caller commits a decision before it requests the next
        one. Raises SinkFailed, RecordFatal, SelfHealing, or an exception of `check`.
        """

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of this sink."""
        return self.rules.pipeline

    @property
    def number(self) -> int:
        """The step number of stage produce."""
        return self.pipeline.produce_number

    @property
    def policy(self) -> StagePolicy:
        """The policy of this stage."""
        return self.rules.stages[self.number]

    def decide(
        self,
        undelivered: Evaluated,
        policy: StagePolicy,
        reported: Sequence[Coordinates],
        progress: SinkProgress,
        *,
        outage: OutagePolicy | None = None,
        raised: BaseException | None = None,
    ) -> UndeliveredRows:
        """Decide about the records that failed at this stage, by `policy`.

        Raises SinkFailed if no record failed but the sink `raised`, and RecordFatal.
        """
        if not undelivered.failed and raised is not None:
            raise SinkFailed(raised) from raised
        rules = replace(self.rules, stages={**self.rules.stages, self.number: policy})
        judge = Judge(
            rules=rules,
            retries=HandlerRetries(rules=rules, policy=policy.policy, wait=self.wait),
            examples_limit=self.examples_limit,
            outage=outage or self.outage,
            sink_progress=progress,
        )
        try:
            decision = Decision()
            if undelivered.failed:
                decision = judge.decide(undelivered.failures, reported)
                judge.log(decision)
            if decision.fatal is not None:
                redaction = self.rules.redaction
                raise RecordFatal(decision.fatal, decision.outage, redaction=redaction) from raised
        except BaseException:
            undelivered.release()
            raise
        return UndeliveredRows(evaluated=undelivered, decision=decision)

    def end_of_run(self, raised: BaseException) -> SinkFailed | SelfHealing:
        """Return the exception that ends the run after a failed job that no record caused."""
        problem = problem_of_job(self.pipeline.source.sparkSession, raised)
        ruling = self.policy.policy.table.classify(problem.cause)
        if ruling.kind is Kind.SELF_HEALING:
            return SelfHealing(problem, ruling.reason)
        return SinkFailed(raised)


def with_all_failed(
    evaluated: Evaluated, is_held: Column, problem: Problem, pipeline: Pipeline
) -> Evaluated:
    """Return the batch with all rows for the sink marked as failed at stage produce."""
    number = pipeline.produce_number
    error = error_column(error_row(problem))
    frame = _with_errors(evaluated.frame, is_held, error, _no_retries(), number)
    if may_split_records(pipeline.steps):
        # The row that represents the record may be none of the rows for the sink.
        frame = make_atomic(frame)
    return _checkpointed(frame, number)


def with_failures(
    evaluated: Evaluated, is_held: Column, results: DataFrame, number: int, *, splits: bool = False
) -> Evaluated:
    """Return the batch with the records of `results` marked as failed at stage produce, `number`.

    `results` has TASK, ENTRY, POSITION, ERROR and RETRIES; a record without an error passed.
    `splits`: the row that represents a record may be none of its rows for the sink.
    """
    frame = _with_results(evaluated.frame, is_held, results, number)
    return _checkpointed(make_atomic(frame) if splits else frame, number)


def with_few_failures(
    evaluated: Evaluated,
    is_held: Column,
    rejected: Sequence[RejectedRecord],
    number: int,
    policy: Policy,
) -> Evaluated:
    """Return the batch like `with_failures`, without a further local checkpoint of its rows.

    Each record is one row, and at most some thousand records are `rejected`.
    """
    rows = evaluated.frame
    # A join may change the order of rows, so IDs precede it.
    rows = rows if ID in rows.columns else numbered(rows)
    if len(rejected) <= _BY_EXPRESSIONS:
        # A join would be one more job for each evaluation of the rows.
        error = F.lit(None).cast(ERROR_TYPE)
        for each in rejected:
            own_error = error_column(error_row(each.problem, policy))
            error = F.when(each.is_at(), own_error).otherwise(error)
        frame = _with_errors(rows, is_held, error, _no_retries(), number)
    else:
        results = rejected_rows(rows.sparkSession, rejected, policy)
        frame = _with_results(rows, is_held, results, number)
    failures = FailureSet.of_numbered(frame, is_small=True).at_driver()
    return Evaluated(
        rows=frame, failed=len(failures.on_driver), collected_failures=failures, blocks=()
    )


def _with_results(frame: DataFrame, is_held: Column, results: DataFrame, number: int) -> DataFrame:
    """Return the rows, in which records of `results` have their errors as of stage `number`."""
    renamed = results.select(*[F.col(name).alias(other) for name, other in _RESULT_NAMES.items()])
    is_same_record = [
        F.col(name).eqNullSafe(F.col(_RESULT_NAMES[name])) for name in (TASK, ENTRY, POSITION)
    ]
    joined = frame.join(renamed, [*is_same_record, _is_for_sink(is_held)], "left")
    error, retries = F.col(_RESULT_NAMES[ERROR]), F.col(_RESULT_NAMES[RETRIES])
    marked = _with_errors(joined, is_held, error, F.coalesce(retries, _no_retries()), number)
    return marked.drop(*_RESULT_NAMES.values())


def _with_errors(
    frame: DataFrame, is_held: Column, error: Column, retries: Column, number: int
) -> DataFrame:
    """Return the rows, in which rows for the sink with an error have failed at stage `number`."""
    is_for_sink = _is_for_sink(is_held)
    failed = F.when(is_for_sink & error.isNotNull(), F.lit(number))
    return frame.withColumns(
        {
            OUTCOME: failed.otherwise(_as_decided(is_held)),
            ERROR: F.when(is_for_sink, error).otherwise(F.col(ERROR)),
            RETRIES: retries,
        }
    )


def _no_retries() -> Column:
    return F.lit(0).cast("long")


def _is_for_sink(is_held: Column) -> Column:
    return F.col(OUTCOME).isNull() & ~is_held


def _as_decided(is_held: Column) -> Column:
    """Return the outcome of a record after the earlier decisions about it."""
    decided = (F.col(OUTCOME) >= SOURCE) | (F.col(OUTCOME) == HELD) | is_held
    return F.when(F.coalesce(decided, F.lit(False)), F.lit(DECIDED)).otherwise(F.col(OUTCOME))


def _checkpointed(frame: DataFrame, number: int) -> Evaluated:
    """Return the batch in a local checkpoint, with the number of its records failed at `number`."""
    is_record = F.col(ORDINAL) == 0
    failed = F.count_if(is_record & (F.col(OUTCOME) == number)).alias("failed")
    retries = F.sum(F.when(is_record, F.col(RETRIES))).alias("retries")
    with releasing() as blocks:
        blocks.append(checkpointed(frame))
        counts = blocks[0].agg(failed, retries).collect()[0]
        rows = blocks.pop()
    return Evaluated(
        rows=rows, failed=counts["failed"], retries=counts["retries"] or 0, blocks=(rows,)
    )
