"""Why native expressions failed: they are evaluated again on the driver, for a few records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, SparkSession

from agents.guard import as_column, failfast
from agents.pipeline import Pipeline
from agents.worker.columns import ROW, SOURCE
from controlplane.domain.causes import Cause
from controlplane.domain.classify import unwrapped

_MESSAGE_CHARACTERS = 4_000
_STACK_CHARACTERS = 16_000
_CAUSES = 10


#: Of what no table knows.
UNKNOWN = Cause(names=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What an operation raised, as text."""

    exception_class: str
    message: str
    condition: str | None = None
    stack: str | None = None
    frame: str | None = None
    #: What the tables know it by.
    cause: Cause = UNKNOWN
    attempts: int = 1


NOT_REPEATED = Problem(
    exception_class="NotRepeated",
    message="the expression raised on the executor and did not raise again on the driver",
)


def explain(examples: DataFrame, pipeline: Pipeline, numbers: list[int]) -> list[Problem]:
    """Return why each row of `examples` failed; `numbers` are their steps, in the same order.

    `examples` is a small local checkpoint itself, with the source row in its column ROW. Each
    native step is bound once on the driver and applied to its rows: 2 to 7 ms a row, no job.
    """
    rows = examples._jdf.queryExecution().executedPlan().executeCollect()
    evaluators = {
        number: _Evaluator(examples, pipeline, number)
        for number in set(numbers)
        if SOURCE < number <= len(pipeline.deserializers)
    }
    return [
        evaluators[number].problem(rows[index]) if number in evaluators else NOT_REPEATED
        for index, number in enumerate(numbers)
    ]


class _Evaluator:
    """One native step, bound to the columns of the examples."""

    def __init__(self, examples: DataFrame, pipeline: Pipeline, number: int) -> None:
        self._spark = examples.sparkSession
        jvm: Any = self._spark._jvm
        frame = examples.select(f"{ROW}.*")
        *before, step = pipeline.deserializers[:number]
        for each in before:
            value = as_column(self._spark, failfast(frame, each.expression))
            frame = frame.withColumn(each.name, value)
        value = as_column(self._spark, failfast(frame, step.expression))
        plan = frame.select(value.alias(step.name))._jdf.queryExecution().optimizedPlan()
        projects: list[Any] = []
        while plan.getClass().getSimpleName() == "Project":
            projects.insert(0, plan)
            plan = plan.child()
        expressions = jvm.org.apache.spark.sql.catalyst.expressions
        self._projections = [
            expressions.InterpretedMutableProjection(each.projectList(), each.child().output())
            for each in projects
        ]
        for projection in self._projections:
            projection.initialize(0)

    def problem(self, row: Any) -> Problem:
        try:
            for projection in self._projections:
                row = projection.apply(row).copy()
        except Py4JJavaError as exc:
            return _problem(self._spark, exc.java_exception)
        except CapturedException as exc:
            return _problem(self._spark, exc._origin)
        return NOT_REPEATED


def _problem(spark: SparkSession, thrown: Any) -> Problem:
    """Describe a JVM exception: its class, and its message with those of its causes."""
    jvm: Any = spark._jvm
    chain: list[Any] = []
    while thrown is not None and len(chain) < _CAUSES:
        chain.append(thrown)
        thrown = thrown.getCause()
    names = [each.getClass().getName() for each in chain]
    messages = [str(each.getMessage() or "").strip() for each in chain]
    causes = [f"caused by {name}: {text}" for name, text in zip(names, messages, strict=True)]
    stack = str(jvm.org.apache.spark.util.Utils.exceptionString(chain[0]))
    return Problem(
        exception_class=names[0],
        message="\n".join([messages[0], *causes[1:]])[:_MESSAGE_CHARACTERS],
        condition=_condition(jvm, chain[0]),
        stack=stack[:_STACK_CHARACTERS],
        cause=unwrapped(
            [Cause(names=_names(each), condition=_condition(jvm, each)) for each in chain]
        ),
    )


def _names(thrown: Any) -> tuple[str, ...]:
    """Return the names of an exception's class and of those that it extends."""
    names, cls = [], thrown.getClass()
    while cls is not None and cls.getName() != "java.lang.Throwable":
        names.append(str(cls.getName()))
        cls = cls.getSuperclass()
    return tuple(names)


def _condition(jvm: Any, thrown: Any) -> str | None:
    throwable = jvm.java.lang.Class.forName("org.apache.spark.SparkThrowable")
    if not throwable.isInstance(thrown):
        return None
    condition = thrown.getCondition()
    return None if condition is None else str(condition)
