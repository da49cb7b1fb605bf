"""Find out why native expressions failed: evaluate them again on the driver, for a few records.

A native step is bound once on the driver and applied to its rows: a few JVM calls, no job. Only
earlier Python steps and transforms run again, as a job over these records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.definition.checks import empty_frame
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.steps import Native, Process, Step, Transform
from arrester.agents.execution.step_runner import StepRunner
from arrester.agents.schema_registry.errors import named
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.frames.column_names import quoted
from arrester.agents.spark.frames.local_checkpoint import releasing
from arrester.agents.spark.jvm.plans.catalyst import (
    analysed_plan,
    collected,
    node_name,
    nodes,
    to_list,
)
from arrester.agents.spark.jvm.plans.determinism import differing_columns
from arrester.agents.spark.jvm.plans.native_evaluator import NativeEvaluator
from arrester.agents.spark.jvm.plans.prepared_expressions import PreparedExpressions
from arrester.agents.worker.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    INTERNAL,
    ORDINAL,
    OUTCOME,
    POSITION,
    RETRIES,
    ROW,
    SOURCE,
    TASK,
)
from arrester.domain.error_policy.policy import Policy

_PLACE = "__arrester_place"
#: For this many steps the bound evaluators are cached.
_CACHED_STEPS: Final = 64


class Received(NamedTuple):
    """What a step received of a record that failed at it."""

    #: The columns that the native steps before have made.
    columns: Mapping[str, Any]
    #: The columns that those steps read.
    read: frozenset[str]


NOT_REPEATED = Problem(
    exception_class="NotRepeated",
    message="the expression raised on the executor and did not raise again on the driver",
)


def diagnose(examples: DataFrame, pipeline: Pipeline, numbers: list[int]) -> list[Problem]:
    """Return why each row of `examples` failed; `numbers` are their steps, in the same order.

    `examples` are rows on the driver, with the source row in their first column, ROW.
    """
    problems = {
        number: iter(_problems(examples, pipeline, number, numbers))
        for number in set(numbers)
        if number > SOURCE and isinstance(pipeline.steps[number - 1], Native)
    }
    return [
        named(next(problems[number])) if number in problems else NOT_REPEATED for number in numbers
    ]


def diagnose_coordinates(
    examples: DataFrame, raised: Sequence[Column | None]
) -> list[Problem | None]:
    """Return why the expression of each record's task or position raised; None if it did not.

    `examples` are rows on the driver, in the same order.
    """
    source = _unwrapped(examples)
    problems: list[Problem | None] = []
    evaluators: dict[int, NativeEvaluator] = {}
    for row, expression in zip(collected(examples), raised, strict=True):
        if expression is None:
            problems.append(None)
            continue
        if id(expression) not in evaluators:
            evaluators[id(expression)] = NativeEvaluator(source, [{_PLACE: expression}])
        problems += evaluators[id(expression)].problems_of([row])
    return problems


def received_columns(
    examples: DataFrame, pipeline: Pipeline, numbers: list[int]
) -> list[Received | None]:
    """Return what the step at which each row of `examples` failed has received.

    `examples` and `numbers` as for `diagnose`. None: no step is before it, another kind of step is,
    or Python has no such value.
    """
    received = {
        number: iter(_received(examples, pipeline, number, numbers))
        for number in set(numbers)
        if SOURCE + 1 < number <= len(pipeline.steps)
    }
    return [next(received[number], None) if number in received else None for number in numbers]


def _received(
    examples: DataFrame, pipeline: Pipeline, number: int, numbers: Sequence[int]
) -> list[Received]:
    """Return what the records that failed at `number` were then; none if it is not known."""
    steps = [
        step
        for step in pipeline.steps[: number - 1]
        if isinstance(step, Native) and step.prepared is not None
    ]
    if len(steps) < number - 1:
        return []
    try:
        names, read = _made_and_read(pipeline, number)
        frame = _examples_of(examples, number, numbers).select(f"{ROW}.*")
        for step in steps:
            frame = frame.withColumns(dict(step.expressions))
        rows = frame.select(*map(quoted, names)).collect()
    except Exception:  # a date after 9999, an interval of months: Spark has those
        return []
    return [Received(row.asDict(), read) for row in rows] if names else []


@lru_cache(maxsize=_CACHED_STEPS)
def _made_and_read(pipeline: Pipeline, number: int) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the columns that the steps before one make and read, as schemas spell their names.

    A column that another evaluation gives other values, such as a time or a random number, is not
    among those that are made.
    """
    frame = empty_frame(pipeline.source)
    made: set[str] = set()
    for step in pipeline.steps[: number - 1]:
        assert isinstance(step, Native)
        frame = frame.withColumns(dict(step.expressions))
        made.update(name.lower() for name in step.expressions)
    names = tuple(name for name in frame.columns if name.lower() in made)
    differing = differing_columns(frame, names)
    return tuple(name for name in names if name not in differing), _read_columns(frame)


def _read_columns(frame: DataFrame) -> frozenset[str]:
    """Return the columns that the expressions of a frame read, as its inputs spell their names."""
    read: set[str] = set()
    for plan in nodes(analysed_plan(frame)):
        if node_name(plan) != "Project":
            continue
        # An expression may spell the name in another case.
        names = {column.exprId().id(): column.name() for column in to_list(plan.child().output())}
        read.update(
            names.get(column.exprId().id(), column.name())
            for expression in to_list(plan.projectList())
            if node_name(expression) == "Alias"
            for column in to_list(expression.references().toSeq())
        )
    return frozenset(read)


def _examples_of(examples: DataFrame, number: int, numbers: Sequence[int]) -> DataFrame:
    return examples if len(set(numbers)) == 1 else examples.where(F.col(OUTCOME) == number)


def _problems(
    examples: DataFrame, pipeline: Pipeline, number: int, numbers: Sequence[int]
) -> list[Problem]:
    """Return why the records of one step failed, in order."""
    own_examples = _examples_of(examples, number, numbers)
    steps = pipeline.steps[:number]
    rerun = [at for at, step in enumerate(steps, 1) if isinstance(step, Process | Transform)]
    if rerun:
        return _problems_after_rerun(own_examples, steps, rerun[-1])
    prepared = tuple(step.prepared for step in steps if isinstance(step, Native))
    problems = _evaluator(pipeline, number, prepared).problems(collected(own_examples))
    return [each or NOT_REPEATED for each in problems]


@lru_cache(maxsize=_CACHED_STEPS)
def _evaluator(
    pipeline: Pipeline, number: int, _prepared: tuple[PreparedExpressions | None, ...]
) -> NativeEvaluator:
    """Return the evaluator of a native step that follows native ones only, for source records.

    `_prepared` are those of the steps: others after new schemas of a registry.
    """
    shape = T.StructType([T.StructField(ROW, pipeline.source.schema)])
    records = pipeline.source.sparkSession.createDataFrame([], shape)
    return _evaluator_of(_unwrapped(records), pipeline.steps[:number])


def _problems_after_rerun(examples: DataFrame, steps: Sequence[Step], first: int) -> list[Problem]:
    """Return the problems at the last step; the `first` ones run again, once for each record."""
    # The position is the index among the examples.
    records = examples.select(
        ROW,
        F.lit(None).cast("string").alias(TASK),
        F.monotonically_increasing_id().alias(POSITION),
        F.lit(0).alias(ENTRY),
        F.lit(None).cast("int").alias(OUTCOME),
        F.lit(None).cast(ERROR_TYPE).alias(ERROR),
        F.lit(0).alias(ORDINAL),
        F.lit(0).cast("long").alias(RETRIES),
        f"{ROW}.*",
    )
    runner = StepRunner(steps=steps[:first], policy=Policy())
    by_record: dict[int, list[Any]] = {}
    with releasing() as checkpoints:
        # In a local checkpoint the plan of the next steps begins with these rows.
        frame = checkpoints.add(runner.run_at_once(records, checkpoints))
        position, outcome = frame.columns.index(POSITION), frame.columns.index(OUTCOME)
        for row in collected(frame):
            rows = by_record.setdefault(row.getLong(position), [])
            if row.isNullAt(outcome):
                rows.append(row)
    evaluator = _evaluator_of(frame.drop(*INTERNAL), steps[first:])
    problems_by_record = [evaluator.problems_of(by_record[at]) for at in sorted(by_record)]
    return [
        next((each for each in of_record if each), NOT_REPEATED) for of_record in problems_by_record
    ]


def _evaluator_of(frame: DataFrame, steps: Sequence[Step]) -> NativeEvaluator:
    native = [step for step in steps if isinstance(step, Native)]
    assert len(native) == len(steps)
    prepared = [step.prepared for step in native]
    keeps_state = any(each is None or each.isolated is not None for each in prepared)
    return NativeEvaluator(frame, [step.expressions for step in native], keeps_state=keeps_state)


def _unwrapped(examples: DataFrame) -> DataFrame:
    """Return an empty frame whose plan takes the source's columns out of `examples`.

    Over the rows themselves Spark would evaluate constants during planning, and raise there.
    """
    return examples.sparkSession.createDataFrame([], examples.schema).select(f"{ROW}.*")
