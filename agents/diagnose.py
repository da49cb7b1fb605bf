"""Why native expressions failed: they are evaluated again on the driver, for a few records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame

from agents.guard import as_column, failfast
from agents.inputs import Inputs, collected, inputs_of, unwrapped
from agents.pipeline import Pipeline
from agents.problem import Describer, Problem
from agents.steps import Columns, Deserialize, Step
from agents.worker.columns import SOURCE

_PLACE = "__arrester_place"

NOT_REPEATED = Problem(
    exception_class="NotRepeated",
    message="the expression raised on the executor and did not raise again on the driver",
)


def explain(examples: DataFrame, pipeline: Pipeline, numbers: list[int]) -> list[Problem]:
    """Return why each row of `examples` failed; `numbers` are their steps, in the same order.

    `examples` are gathered, with the source row in their column ROW. Each
    native step is bound once on the driver and applied to its rows: a few calls a row, no job. Only
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

    `examples` are gathered, in the same order.
    """
    source = unwrapped(examples)
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
        self._tried = _trying(
            jvm, [(each.projectList(), each.child().output()) for each in projects]
        )
        self._throwable = jvm.java.lang.Class.forName("java.lang.Throwable")
        self._describer = Describer(self._spark)

    def problem(self, row: Any) -> Problem | None:
        """Return what the step raises on a row, None when it passes."""
        thrown = self._tried.apply(row)
        return self._describer.problem(thrown) if self._throwable.isInstance(thrown) else None


def _trying(jvm: Any, projections: Sequence[tuple[Any, Any]]) -> Any:
    """Return a Java function that gives a row after projections, or what they raise.

    Raised into Python, each exception would be asked for dozens of things before we see it.
    """
    handles = jvm.java.lang.invoke.MethodHandles
    types = jvm.java.lang.invoke.MethodType
    lookup = handles.publicLookup()
    a_class = jvm.java.lang.Class.forName
    anything = a_class("java.lang.Object")
    row = a_class(
        "org.apache.spark.sql.catalyst.InternalRow",
        True,
        jvm.java.lang.Thread.currentThread().getContextClassLoader(),
    )
    one_to_one = types.methodType(row, row)
    made = handles.identity(row)
    for projected, below in projections:
        projection = jvm.org.apache.spark.sql.catalyst.expressions.InterpretedMutableProjection(
            projected, below
        )
        projection.initialize(0)
        apply = lookup.bind(projection, "apply", one_to_one)
        # The next row would be put into the same object.
        copy = lookup.findVirtual(row, "copy", types.methodType(row))
        made = handles.filterReturnValue(made, handles.filterReturnValue(apply, copy))
    raised = a_class("java.lang.Throwable")
    same = handles.identity(anything).asType(types.methodType(anything, raised))
    tried = handles.catchException(made.asType(types.methodType(anything, row)), raised, same)
    function = a_class("java.util.function.Function")
    return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
        function, tried.asType(types.methodType(anything, anything))
    )
