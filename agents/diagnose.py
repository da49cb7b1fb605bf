"""Why native expressions failed: they are evaluated again on the driver, for a few records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import Column, DataFrame, SparkSession

from agents.guard import as_column, failfast
from agents.inputs import Inputs, collected, inputs_of
from agents.pipeline import Pipeline
from agents.steps import Columns, Deserialize, Step
from agents.worker.columns import ROW, SOURCE
from controlplane.domain.causes import Cause
from controlplane.domain.classify import unwrapped

_MESSAGE_CHARACTERS = 4_000
_STACK_CHARACTERS = 16_000
_CAUSES = 10
_PLACE = "__arrester_place"


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
    native step is bound once on the driver and applied to its rows: 2 to 7 ms a row, no job. Only
    what comes before it and is not native runs again, as a job over these records.
    """
    found = {
        number: iter(_problems(inputs_of(examples, pipeline.steps, number)))
        for number in set(numbers)
        if number > SOURCE and isinstance(pipeline.steps[number - 1], Deserialize | Columns)
    }
    return [next(found[number]) if number in found else NOT_REPEATED for number in numbers]


def explain_places(examples: DataFrame, raised: Sequence[Column | None]) -> list[Problem | None]:
    """Return why the expression of each record's task or position raised; None where none did.

    `examples` is a small local checkpoint itself, in the same order.
    """
    source = examples.select(f"{ROW}.*")
    found: list[Problem | None] = []
    evaluators: dict[int, _Evaluator] = {}
    for row, expression in zip(collected(examples), raised, strict=True):
        if expression is None:
            found.append(None)
            continue
        if id(expression) not in evaluators:
            step = Deserialize(name=_PLACE, expression=expression, on_error=None)
            evaluators[id(expression)] = _Evaluator(source, [step])
        found.append(evaluators[id(expression)].problem(row))
    return found


def _problems(inputs: Inputs) -> list[Problem]:
    evaluator = _Evaluator(inputs.frame, inputs.steps)
    tried = [[evaluator.problem(row) for row in rows] for rows in inputs.rows]
    return [next((each for each in found if each), NOT_REPEATED) for found in tried]


class _Evaluator:
    """The last of some native steps, bound to the columns of the first one's input."""

    def __init__(self, frame: DataFrame, steps: Sequence[Step]) -> None:
        self._spark = frame.sparkSession
        jvm: Any = self._spark._jvm
        for step in steps:
            assert isinstance(step, Deserialize | Columns)
            values = {
                name: as_column(self._spark, failfast(frame, expression))
                for name, expression in step.expressions.items()
            }
            made = frame.select(*[value.alias(name) for name, value in values.items()])
            frame = frame.withColumns(values)
        plan = made._jdf.queryExecution().optimizedPlan()
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

    def problem(self, row: Any) -> Problem | None:
        """Return what the step raises on a row, None when it passes."""
        try:
            for projection in self._projections:
                row = projection.apply(row).copy()
        except Py4JJavaError as exc:
            return problem_of_jvm(self._spark, exc.java_exception)
        except CapturedException as exc:
            return problem_of_jvm(self._spark, exc._origin)
        return None


def problem_of_jvm(spark: SparkSession, thrown: Any) -> Problem:
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
