"""Run the guarded steps of a micro-batch: native expressions, Python steps and transforms.

Adjacent native and adjacent Python steps run as one segment, a transform alone. All segments run at
once. A segment with Python code, or a transform, can fail as a Spark job: its worker crashes, or
the transform raises. Then each such segment runs separately over a local checkpoint of its input.

Each row carries the internal columns of its record. A record's first row has ORDINAL 0 and
represents it. A record fails or passes as a whole (`batch.record_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import groupby

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.definition.checks import differs
from arrester.agents.definition.steps import Columns, Deserialize, Native, Process, Step, Transform
from arrester.agents.execution.isolation import Isolation, SurvivingRows, Suspect
from arrester.agents.spark.column_names import map_in_arrow, quoted, with_columns_named
from arrester.agents.spark.errors import StepFailed
from arrester.agents.spark.job_attempts import is_cancelled
from arrester.agents.spark.jvm.prepared_expressions import SHARED, PreparedExpressions
from arrester.agents.spark.jvm.problems import problem_of_job
from arrester.agents.spark.jvm.transform_analysis import with_column_of
from arrester.agents.spark.jvm.try_eval import guarded_struct
from arrester.agents.spark.local_checkpoint import Checkpoints
from arrester.agents.spark.ship_worker_code import shipped, shipped_rules
from arrester.agents.worker.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    FILTERED,
    INTERNAL,
    LINK,
    ORDINAL,
    OUTCOME,
    POSITION,
    PREFIX,
    RETRIES,
    ROW,
    SOURCE,
    TASK,
)
from arrester.controlplane.domain.error_policy.policy import Policy

_ATTEMPT = "__arrester_attempt"
#: For this many steps the Columns are cached: making a Column takes many calls to the JVM.
_CACHED_STEPS = 256
#: The columns that Python steps set for each row.
_PYTHON_RESULT = {
    OUTCOME: T.StructField(OUTCOME, T.IntegerType()),
    ERROR: T.StructField(ERROR, ERROR_TYPE),
    ORDINAL: T.StructField(ORDINAL, T.IntegerType()),
    RETRIES: T.StructField(RETRIES, T.LongType()),
}
#: The columns that identify the record of a row.
_RECORD = (ROW, TASK, POSITION, ENTRY)


def unchanged(rows: DataFrame) -> DataFrame:
    """Return rows that already have all internal columns."""
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRunner:
    """Runs steps over rows with internal columns."""

    steps: Sequence[Step]
    policy: Policy
    #: The columns of the source, which steps may replace.
    source: Sequence[str] = ()
    #: Adds all internal columns to the author's.
    complete: Callable[[DataFrame], DataFrame] = unchanged

    def run_at_once(self, frame: DataFrame, checkpoints: Checkpoints) -> DataFrame:
        """Return `frame` after the steps. A job failure shows at evaluation."""
        source = self.source
        for number, segment in segments(self.steps, first=SOURCE + 1):
            if isinstance(segment[0], Transform):
                frame = _after_transform(checkpoints.add(self.complete(frame)), segment[0])
                source = ()
            else:
                frame = _after_steps(
                    frame, segment, policy=self.policy, first=number, source=source
                )
        return frame

    def run_step_by_step(self, frame: DataFrame, checkpoints: Checkpoints) -> DataFrame:
        """Return `frame` after the steps, with the failing records of each step isolated.

        Raises StepFailed if a step fails without a failing record. Exceptions of the source are
        raised.
        """
        frame = checkpoints.add(self.complete(frame))
        for number, segment in segments(self.steps, first=SOURCE + 1):
            if not isinstance(segment[0], Process | Transform):
                frame = _after_steps(frame, segment, policy=self.policy, first=number)
                continue
            suspect = _suspect(number, segment, self.policy)
            operation = suspect.all_steps
            if isinstance(segment[0], Transform):
                operation = partial(_after_transform, step=segment[0])
            isolation = Isolation(checkpoints.add(frame), suspect, self.policy)
            frame = isolation.run(operation, checkpoints).result
        return frame

    def may_isolate(self, exc: Exception) -> bool:
        """Whether records may be the cause: the author's code ran in the job, and the run is not
        stopping."""
        ran = any(isinstance(step, Process | Transform) for step in self.steps)
        return ran and not is_cancelled(exc) and not isinstance(exc, StepFailed)


def run_final_transform(
    frame: DataFrame, step: Transform, *, number: int, policy: Policy, checkpoints: Checkpoints
) -> SurvivingRows:
    """Return `frame`, a local checkpoint, with failures of the last step, and the step's result.

    The result does not identify its records.
    """
    suspect = _suspect(number, [step], policy)
    return Isolation(frame, suspect, policy).run(
        lambda rows: transformed(rows.where(F.col(OUTCOME).isNull()), step), checkpoints
    )


def segments(steps: Sequence[Step], *, first: int) -> Iterator[tuple[int, Sequence[Step]]]:
    """Yield segments of steps of one kind, each with the number of its first step; transforms
    alone."""
    number = first
    for _, run in groupby(enumerate(steps), key=lambda each: _kind(*each)):
        segment = [step for _, step in run]
        yield number, segment
        number += len(segment)


def _kind(index: int, step: Step) -> object:
    return (type(step), index) if isinstance(step, Transform) else isinstance(step, Process)


def _suspect(number: int, segment: Sequence[Step], policy: Policy) -> Suspect:
    step = segment[0]
    if isinstance(step, Transform):
        return Suspect(
            stage=step.stage,
            crashes_only=False,
            stateful=step.stateful,
            prefixes=[(number, partial(transformed, step=step))],
        )
    prefixes = [
        (
            number + count - 1,
            partial(_after_steps, steps=segment[:count], policy=policy, first=number),
        )
        for count in range(1, len(segment) + 1)
    ]
    return Suspect(stage=step.stage, crashes_only=True, prefixes=prefixes)


# Native and Python steps


def _after_steps(
    frame: DataFrame,
    steps: Sequence[Step],
    *,
    policy: Policy,
    first: int,
    source: Sequence[str] = (),
) -> DataFrame:
    """Return `frame` after a segment of native or Python steps; the first has the number `first`.

    Failed rows pass unchanged. Each Arrow batch passes all Python steps at once. Internal columns
    stay with their record. So do the columns `source`, which a step may replace: then they have
    their `_source_name`.
    """
    numbered = list(enumerate(steps, start=first))
    if isinstance(steps[0], Process):
        return _after_python(frame, numbered, policy, source)
    for number, step in numbered:
        assert isinstance(step, Deserialize | Columns)
        frame = _with_source_columns(frame, step, source)
        frame = _after_native(frame, number, step)
    return frame


def _source_name(number: int) -> str:
    """Return the name of a source column after a step has replaced it."""
    return f"{PREFIX}source_{number}"


def source_columns(columns: Collection[str], source: Sequence[str]) -> dict[str, str]:
    """Return the present names of the source's columns in a frame."""
    present = set(columns)
    return {
        name: _source_name(number) if _source_name(number) in present else name
        for number, name in enumerate(source)
    }


def _with_source_columns(frame: DataFrame, step: Native, source: Sequence[str]) -> DataFrame:
    """Copy the source columns that the step is about to replace."""
    replaced = {name.lower() for name in step.expressions}
    present = source_columns(frame.columns, source)
    copies = {
        _source_name(number): quoted(name)
        for number, name in enumerate(source)
        if name.lower() in replaced and present[name] == name
    }
    return frame.withColumns(copies) if copies else frame


def _after_native(frame: DataFrame, number: int, step: Native) -> DataFrame:
    if step.prepared is None:
        attempt = guarded_struct(frame, step.expressions, unless=_is_decided())
        frame = frame.withColumn(_ATTEMPT, attempt)
    else:
        for columns in _attempts(step.prepared):
            frame = frame.select(*columns)
    frame = frame.withColumns(_result_of_attempt(number, tuple(step.expressions)))
    return frame.drop(_ATTEMPT, SHARED)


@cache
def _is_decided() -> Column:
    return F.col(OUTCOME).isNotNull()


@lru_cache(maxsize=_CACHED_STEPS)
def _attempts(expressions: PreparedExpressions) -> list[list[Column]]:
    return expressions.selections(_ATTEMPT, unless=_is_decided())


@lru_cache(maxsize=_CACHED_STEPS)
def _result_of_attempt(number: int, names: tuple[str, ...]) -> dict[str, Column]:
    """Return the columns after an attempt at the step `number`."""
    failed = F.col(OUTCOME).isNull() & F.col(_ATTEMPT).isNull()
    outcome = F.when(failed, F.lit(number)).otherwise(F.col(OUTCOME))
    return {OUTCOME: outcome} | {name: F.col(_ATTEMPT).getField(name) for name in names}


def _after_python(
    frame: DataFrame,
    segment: Sequence[tuple[int, Step]],
    policy: Policy,
    source: Sequence[str],
) -> DataFrame:
    present = source_columns(frame.columns, source)
    pairs = [(present[name], _source_name(number)) for number, name in enumerate(source)]
    internal = {name for name in frame.columns if is_internal(name)}
    internal -= {*_PYTHON_RESULT, *present.values()}
    pairs += [(name, name) for name in sorted(internal)]
    carried = [T.StructField(new, frame.schema[name].dataType) for name, new in pairs]
    guarded_steps = shipped("map_in_arrow").GuardedSteps(
        python_steps(segment),
        timezone=frame.sparkSession.conf.get("spark.sql.session.timeZone"),
        rules=shipped_rules(policy),
        carried=pairs,
    )
    # A failed record's columns are NULL, so Spark's schema must be nullable.
    results = [
        T.StructField(field.name, field.dataType, True) for field in python_schema(segment).fields
    ]
    schema = T.StructType([*carried, *_PYTHON_RESULT.values(), *results])
    return map_in_arrow(frame, guarded_steps, schema)


def python_steps(segment: Sequence[tuple[int, Step]]) -> list[object]:
    """Return numbered Python steps in the form that executors take."""
    steps = shipped("map_in_arrow")
    return [
        steps.Step(
            number=number,
            function=step.function,
            schema_json=step.schema.json(),
            retriable=step.retriable,
        )
        for number, step in segment
        if isinstance(step, Process)
    ]


def python_schema(segment: Sequence[tuple[int, Step]]) -> T.StructType:
    """Return the columns that adjacent Python steps return."""
    step = segment[-1][1]
    assert isinstance(step, Process)
    return step.schema


# Transforms: the author's functions of a DataFrame


def transformed(frame: DataFrame, step: Transform) -> DataFrame:
    """Return the function's result for the author's columns of `frame`."""
    return _call(step, with_columns_named(_with_barrier(frame), _author_columns(frame)))


def _after_transform(frame: DataFrame, step: Transform) -> DataFrame:
    """Return the rows of `frame`, a local checkpoint, after a transform that other steps follow.

    Failed rows pass unchanged. Each other record has one row FILTERED without the author's columns,
    in addition to the rows that it became, which identify it.
    """
    linked = _with_barrier(frame.where(F.col(OUTCOME).isNull())).withColumn(
        LINK, F.struct(*_RECORD)
    )
    result = _call(step, with_columns_named(linked, _author_columns(frame)))
    # Another barrier: a later step's guard must not catch exceptions of the function's columns.
    rows = _with_barrier(with_column_of(result, linked, LINK)).select(
        *[F.col(LINK)[name].alias(name) for name in _RECORD],
        F.lit(None).cast("int").alias(OUTCOME),
        F.lit(None).cast(ERROR_TYPE).alias(ERROR),
        # None of the new rows is the first row of its record.
        F.lit(1).alias(ORDINAL),
        F.lit(0).cast("long").alias(RETRIES),
        *[quoted(name) for name in result.columns],
    )
    records = frame.select(
        *[
            F.coalesce(OUTCOME, F.lit(FILTERED)).alias(OUTCOME) if name == OUTCOME else name
            for name in INTERNAL
        ],
        *[F.lit(None).cast(field.dataType).alias(field.name) for field in result.schema],
    )
    return records.union(rows)


def _with_barrier(frame: DataFrame) -> DataFrame:
    """Return the same rows, with a barrier for the optimizer's filter pushdown.

    A filter of the function below it would run on rows that were left out on purpose, such as
    failed ones.
    """
    return frame.where(F.spark_partition_id() >= 0)


def _call(step: Transform, rows: DataFrame) -> DataFrame:
    try:
        result = step.function(rows)
        if not isinstance(result, DataFrame):
            raise TypeError(f"a transform returns a DataFrame; got {type(result).__name__}")
        difference = differs(step.schema, result.schema)
        if difference is not None:
            raise TypeError(f"a transform returns the same columns each time; {difference}")
    except Exception as exc:  # the author's code, on the driver: no record is the cause
        problem = problem_of_job(rows.sparkSession, exc)
        raise StepFailed(step.stage, problem, exc, why="on the driver") from exc
    return result


def _author_columns(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if not is_internal(name)]


def is_internal(name: str) -> bool:
    """Whether a column is internal."""
    return name.startswith(PREFIX)
