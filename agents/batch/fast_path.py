"""The fast path: guard and write in one pass, which aborts at the first failure.

It is for all-or-nothing sinks. After any exception nothing is decided and nothing is written. The
slow path then finds the failed records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.batch.record_columns import task_key
from arrester.agents.definition.checks import empty_frame
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.steps import Columns, Deserialize, Native, Process, Step, Transform
from arrester.agents.execution.step_segments import python_schema, python_steps, quoted, segments
from arrester.agents.executor.columns import SOURCE
from arrester.agents.spark.common_subexpressions import Ready
from arrester.agents.spark.ship_executor import shipped, shipped_rules
from arrester.agents.spark.try_eval import VALUE, attempted, reusable
from arrester.controlplane.domain.error_policy.policy import Policy

_log = logging.getLogger("arrester.thread")

_ATTEMPT = "__arrester_attempt"
_TASK_ATTEMPT = "__arrester_task_attempt"
_POSITION_ATTEMPT = "__arrester_position_attempt"

Layer = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class FastPath:
    """The steps of a pipeline as a plan that all rows pass, or none. Made once for all
    micro-batches."""

    layers: Sequence[Layer]
    #: The text in exceptions of failed records.
    mark: str

    @classmethod
    def of(cls, pipeline: Pipeline, policy: Policy) -> FastPath | None:
        """Return the fast path; None for a sink that is not all or nothing, and for transforms.

        Rows that a transform does not request, such as those after a limit, would not be evaluated,
        so that earlier records could fail unseen.
        """
        if not pipeline.sink.is_atomic(pipeline.source.sparkSession):
            return None
        if any(isinstance(step, Transform) for step in pipeline.steps):
            return None
        making = _Making(empty_frame(pipeline.source), f"arrester-{uuid4().hex}")
        try:
            making.source(pipeline)
            for number, segment in segments(pipeline.steps, first=SOURCE + 1):
                if isinstance(segment[0], Process):
                    making.python(list(enumerate(segment, start=number)), policy)
                for step in segment:
                    if isinstance(step, Deserialize | Columns):
                        making.native(step)
            making.end(pipeline.columns)
        except PySparkException:
            # Spark analyses such an expression only once, so every micro-batch takes the slow path.
            _log.debug("%s cannot take the fast path", pipeline.name, exc_info=True)
            return None
        return cls(layers=making.layers, mark=making.mark)

    def frame(self, source: DataFrame) -> DataFrame:
        """Return the frame that the sink writes. Evaluating it raises if a record fails."""
        for layer in self.layers:
            source = layer(source)
        return source

    def is_failed_record(self, exc: BaseException) -> bool:
        """Whether a failed record is the cause of an exception. Otherwise the sink is."""
        seen: BaseException | None = exc
        while seen is not None:
            if self.mark in str(seen):
                return True
            seen = seen.__cause__ or seen.__context__
        return False


class _Making:
    """Plan layers, each checked on an empty frame."""

    def __init__(self, shape: DataFrame, mark: str) -> None:
        self.layers: list[Layer] = []
        self.mark = mark
        #: Failure conditions that no layer has checked yet: each layer costs time in every
        #: micro-batch.
        self._unasked: list[Column] = []
        self._shape = shape

    def source(self, pipeline: Pipeline) -> None:
        """Check that each record has a task and a position."""
        plain = pipeline.plain
        if plain is not None:
            self._unasked.append(quoted(plain.position).isNull())
            return
        theirs = self._theirs()
        task = self._attempted({VALUE: task_key(pipeline.task)})
        position = self._attempted({VALUE: pipeline.position.cast("long")})
        self.select([*theirs, task.alias(_TASK_ATTEMPT), position.alias(_POSITION_ATTEMPT)])
        missing = F.col(_POSITION_ATTEMPT)[VALUE].isNull()
        self._unasked += [F.col(_TASK_ATTEMPT).isNull(), missing]
        self._ask()
        self.select(theirs)

    def native(self, step: Native) -> None:
        """Add a native step. A failed attempt is NULL."""
        names = self._shape.withColumns(dict(step.expressions)).columns
        named = self._named
        made = {named(name): name for name in step.expressions}
        ready = step.ready
        if ready is None:
            values = {name: reusable(self._shape, each) for name, each in step.expressions.items()}
            ready = Ready(spark=self._shape.sparkSession, expressions=values)
        for layer in ready.layers(_ATTEMPT):
            self.select(layer)
        self._unasked.append(F.col(_ATTEMPT).isNull())
        self._ask()
        self.select(
            [
                F.col(_ATTEMPT).getField(made[named(name)]).alias(name)
                if named(name) in made
                else quoted(name)
                for name in names
            ]
        )

    def python(self, segment: Sequence[tuple[int, Step]], policy: Policy) -> None:
        """Add Python steps. The worker raises at the first failed attempt."""
        self._ask()
        steps = python_steps(segment)
        schema = python_schema(segment)
        whole = shipped("map_in_arrow").WholeSteps(
            steps,
            timezone=self._shape.sparkSession.conf.get("spark.sql.session.timeZone"),
            rules=shipped_rules(policy),
            mark=self.mark,
        )
        self._add(lambda frame: frame.mapInArrow(whole, schema))

    def select(self, columns: Sequence[Column]) -> None:
        self._add(lambda frame: frame.select(*columns))

    def _attempted(self, expressions: Mapping[str, Column]) -> Column:
        values = {name: reusable(self._shape, each) for name, each in expressions.items()}
        return attempted(self._shape.sparkSession, values)

    def end(self, columns: Sequence[str]) -> None:
        """Reduce the columns to the sink's."""
        self._ask()
        if tuple(self._shape.columns) != tuple(columns):
            self.select([quoted(name) for name in columns])

    def _ask(self) -> None:
        if not self._unasked:
            return
        failed = reduce(lambda one, other: one | other, self._unasked)
        passes = F.when(failed, F.raise_error(F.lit(self.mark))).otherwise(F.lit(True))
        self._unasked = []
        self._add(lambda frame: frame.where(passes))

    def _named(self, name: str) -> str:
        """Return the name by which Spark finds a column: `Value` and `value` may differ."""
        exactly = self._shape.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        return name if exactly else name.lower()

    def _theirs(self) -> list[Column]:
        return [quoted(name) for name in self._shape.columns]

    def _add(self, layer: Layer) -> None:
        self._shape = layer(self._shape)
        self.layers.append(layer)
