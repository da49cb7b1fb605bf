"""The fast path: guard and write as one plan, which aborts at the first failure.

It is for atomic sinks: after any exception, nothing is decided and nothing is written. The slow
path then finds the failed records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.batch.record_columns import task_key
from arrester.agents.definition.checks import empty_frame
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Sink
from arrester.agents.definition.steps import Native, Process, Step, Transform
from arrester.agents.definition.stores.sink_store import BatchStore
from arrester.agents.execution.row_steps import python_schema, python_steps
from arrester.agents.execution.step_runner import segments
from arrester.agents.spark.frames.column_names import map_in_arrow, quoted
from arrester.agents.spark.jvm.log_filter import LogFilter, abort_mark
from arrester.agents.spark.jvm.plans.prepared_expressions import PreparedExpressions
from arrester.agents.spark.jvm.plans.row_counter import RowCounter
from arrester.agents.spark.jvm.plans.try_eval import VALUE, reusable, try_eval
from arrester.agents.spark.jvm.session_zone import python_zone
from arrester.agents.spark.ship_worker_code import shipped, shipped_rules
from arrester.agents.spark.sources.rows_read import RowsUnread
from arrester.agents.spark.sources.source_reads import SourceReads
from arrester.agents.worker.columns import SOURCE
from arrester.domain.error_policy.exception_identity import linked
from arrester.domain.error_policy.policy import Policy

_log = logging.getLogger("arrester.thread")

_ABORT_MESSAGE = (
    "Arrester: a record failed; this write was aborted on purpose and is done again record by "
    "record"
)
_ATTEMPT = "__arrester_attempt"
_TASK_ATTEMPT = "__arrester_task_attempt"
_POSITION_ATTEMPT = "__arrester_position_attempt"

Layer = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class FastPath:
    """The steps of a pipeline as a plan that all rows pass, or none.

    One object serves all micro-batches.
    """

    pipeline: Pipeline
    layers: Sequence[Layer]
    #: A text in the exceptions of failed records, and in no others.
    abort_mark: str
    log_filter: LogFilter
    #: Counts the records of all micro-batches; None: the sink may read them more than once.
    counter: RowCounter | None

    @classmethod
    def of(cls, pipeline: Pipeline, policy: Policy) -> FastPath | None:
        """Return the fast path; None for a sink that is not atomic, and for transforms.

        A transform may not request all rows, for example because of a limit. Then the steps before
        it would not be evaluated for the other rows, and failed records would stay unnoticed.
        """
        if not pipeline.sink.is_atomic(pipeline.source.sparkSession):
            return None
        if any(isinstance(step, Transform) for step in pipeline.steps):
            return None
        plan = _PlanBuilder(empty_frame(pipeline.source), abort_mark())
        try:
            plan.check_source(pipeline)
            for number, steps in segments(pipeline.steps, first=SOURCE + 1):
                if isinstance(steps[0], Process):
                    plan.add_python(list(enumerate(steps, start=number)), policy)
                for step in steps:
                    if isinstance(step, Native):
                        plan.add_native(step)
            plan.end(pipeline.columns)
        except PySparkException:
            # Spark cannot analyse such an expression again: all micro-batches take the slow path.
            _log.debug("%s cannot take the fast path", pipeline.name, exc_info=True)
            return None
        spark = pipeline.source.sparkSession
        store = pipeline.sink.function if isinstance(pipeline.sink, Sink) else None
        reads_once = isinstance(store, BatchStore) and store.reads_once(spark)
        return cls(
            pipeline=pipeline,
            layers=plan.layers,
            abort_mark=plan.abort_mark,
            log_filter=LogFilter(spark),
            counter=RowCounter(spark, name=None, counts_failed_tasks=False) if reads_once else None,
        )

    def frame(self, source: DataFrame) -> DataFrame:
        """Return the frame that the sink writes. Evaluating it raises if a record fails."""
        for layer in self.layers:
            source = layer(source)
        return source

    def write(self, source: DataFrame, number: int, *, check: Callable[[], None]) -> bool:
        """Evaluate and write at once; return False, with nothing written, after any exception.

        Source, steps and sink fail alike here: only the slow path evaluates before it writes.
        `check` raises if the run is to end. Raises RowsUnread if the sink returned before it had
        read all rows.
        """
        sink = self._sink
        self.log_filter.begin(self.abort_mark)
        try:
            sink(self.frame(source), number)
        except BaseException as exc:  # SystemExit would hang the query forever
            self.log_filter.end(self.abort_mark)
            check()
            if isinstance(exc, RowsUnread):
                raise
            record_failed = self._is_failed_record(exc)
            why = "a record failed" if record_failed else f"{type(exc).__name__} was raised"
            message = "pipeline %r, batch %s: %s on the fast path; repeating it on the slow path"
            _log.info(message, self.pipeline.name, number, why)
            return False
        return True

    def reads(self, source: DataFrame) -> SourceReads:
        """Return a counter of the records that the next write reads."""
        return SourceReads(source, counter=self.counter)

    @property
    def _sink(self) -> Sink:
        sink = self.pipeline.sink
        assert isinstance(sink, Sink)
        return sink

    def _is_failed_record(self, exc: BaseException) -> bool:
        """Whether a failed record is the cause of an exception."""
        return any(self.abort_mark in str(link) for link in linked(exc))


class _PlanBuilder:
    """Adds layers to a plan. Each is analysed on an empty frame."""

    def __init__(self, shape: DataFrame, abort_mark: str) -> None:
        self.layers: list[Layer] = []
        self.abort_mark = abort_mark
        # Executors log this message.
        self._abort_message = f"{_ABORT_MESSAGE} ({abort_mark})"
        #: Failure conditions that no layer checks yet. One layer checks several, because each layer
        #: takes time in every micro-batch.
        self._unchecked: list[Column] = []
        self._shape = shape

    def check_source(self, pipeline: Pipeline) -> None:
        """Check that each record has a position, and a task whose expression does not raise."""
        coordinates = pipeline.source_coordinates
        if coordinates is not None:
            self._unchecked.append(quoted(coordinates.position).isNull())
            return
        columns = [quoted(name) for name in self._shape.columns]
        task = self._attempt(task_key(pipeline.task)).alias(_TASK_ATTEMPT)
        position = self._attempt(pipeline.position.cast("long")).alias(_POSITION_ATTEMPT)
        self._select([*columns, task, position])
        missing = F.col(_POSITION_ATTEMPT)[VALUE].isNull()
        self._unchecked += [F.col(_TASK_ATTEMPT).isNull(), missing]
        self._check()
        self._select(columns)

    def add_native(self, step: Native) -> None:
        """Add a native step. A failed attempt is NULL."""
        names = self._shape.withColumns(dict(step.expressions)).columns
        resolved_name = self._resolved_name
        written = {resolved_name(name): name for name in step.expressions}
        prepared = step.prepared
        if prepared is None:
            values = {
                name: reusable(self._shape, expression)
                for name, expression in step.expressions.items()
            }
            prepared = PreparedExpressions(spark=self._shape.sparkSession, expressions=values)
        for columns in prepared.selections(_ATTEMPT):
            self._select(columns)
        self._unchecked.append(F.col(_ATTEMPT).isNull())
        self._check()
        self._select(
            [
                F.col(_ATTEMPT).getField(written[resolved_name(name)]).alias(name)
                if resolved_name(name) in written
                else quoted(name)
                for name in names
            ]
        )

    def add_python(self, numbered_steps: Sequence[tuple[int, Step]], policy: Policy) -> None:
        """Add Python steps. The worker raises at the first failed attempt."""
        self._check()
        schema = python_schema(numbered_steps)
        steps = shipped("map_in_arrow").FastPathSteps(
            python_steps(numbered_steps),
            timezone=python_zone(self._shape.sparkSession),
            rules=shipped_rules(policy),
            abort_message=self._abort_message,
        )
        self._add(lambda frame: map_in_arrow(frame, steps, schema))

    def end(self, columns: Sequence[str]) -> None:
        """Check the remaining conditions, and reduce the columns to the sink's."""
        self._check()
        if tuple(self._shape.columns) != tuple(columns):
            self._select([quoted(name) for name in columns])

    def _attempt(self, expression: Column) -> Column:
        return try_eval(self._shape.sparkSession, {VALUE: reusable(self._shape, expression)})

    def _check(self) -> None:
        """Add a layer that raises if one of the unchecked conditions is true."""
        if not self._unchecked:
            return
        failed = reduce(lambda one, other: one | other, self._unchecked)
        passes = F.when(failed, F.raise_error(F.lit(self._abort_message))).otherwise(F.lit(True))
        self._unchecked = []
        self._add(lambda frame: frame.where(passes))

    def _resolved_name(self, name: str) -> str:
        """Return the name by which Spark finds a column: `Value` and `value` may differ."""
        is_case_sensitive = self._shape.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        return name if is_case_sensitive else name.lower()

    def _select(self, columns: Sequence[Column]) -> None:
        self._add(lambda frame: frame.select(*columns))

    def _add(self, layer: Layer) -> None:
        self._shape = layer(self._shape)
        self.layers.append(layer)
