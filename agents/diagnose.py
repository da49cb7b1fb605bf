"""Why native expressions failed: they are evaluated again on the driver, for a few records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import Column, DataFrame

from agents.guard import as_column, failfast
from agents.inputs import Inputs, collected, inputs_of
from agents.pipeline import Pipeline
from agents.problem import Problem, problem_of_jvm
from agents.steps import Columns, Deserialize, Step
from agents.worker.columns import ROW, SOURCE

_PLACE = "__arrester_place"

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
