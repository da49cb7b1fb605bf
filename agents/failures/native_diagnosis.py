"""Why native expressions failed: they are evaluated again on the driver, for a few records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.steps import Columns, Deserialize, Step
from arrester.agents.execution.native_inputs import collected, inputs_of, runs_again, unwrapped
from arrester.agents.executor.columns import FATE, ROW, SOURCE
from arrester.agents.spark.errors import Problem, problems_of_jvm
from arrester.agents.spark.jvm_exceptions import Asking, asking
from arrester.agents.spark.try_eval import as_column, failfast

_PLACE = "__arrester_place"
#: Of so many steps of pipelines what is bound is kept.
_KEPT: Final = 64

NOT_REPEATED = Problem(
    exception_class="NotRepeated",
    message="the expression raised on the executor and did not raise again on the driver",
)


def explain(examples: DataFrame, pipeline: Pipeline, numbers: list[int]) -> list[Problem]:
    """Return why each row of `examples` failed; `numbers` are their steps, in the same order.

    `examples` are gathered, with the source row in their first column, ROW. A native step is bound
    on the driver, once, and applied to its rows: a few calls in all, no job. Only what comes before
    it and is not native runs again, as a job over these records.
    """
    found = {
        number: iter(_problems(examples, pipeline, number, numbers))
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
        found += evaluators[id(expression)].problems_of([row])
    return found


def _problems(
    examples: DataFrame, pipeline: Pipeline, number: int, numbers: Sequence[int]
) -> list[Problem]:
    if not runs_again(pipeline.steps[:number]):
        mine = examples if len(set(numbers)) == 1 else examples.where(F.col(FATE) == number)
        found = _evaluator(pipeline, number).problems(collected(mine))
        return [each or NOT_REPEATED for each in found]
    inputs = inputs_of(examples, pipeline.steps, number)
    evaluator = _Evaluator(inputs.frame, inputs.steps)
    tried = [evaluator.problems_of(rows) for rows in inputs.rows]
    return [next((each for each in found if each), NOT_REPEATED) for found in tried]


@lru_cache(maxsize=_KEPT)
def _evaluator(pipeline: Pipeline, number: int) -> _Evaluator:
    """Return a native step that comes after native ones only, bound to records of the source."""
    shape = T.StructType([T.StructField(ROW, pipeline.source.schema)])
    records = pipeline.source.sparkSession.createDataFrame([], shape)
    return _Evaluator(unwrapped(records), pipeline.steps[:number])


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
        self._asking = asking(self._spark)
        self._tried = _trying(
            self._asking,
            jvm,
            [(each.projectList(), each.child().output()) for each in projects],
        )
        #: A projection puts each row into the same object, and pipelines have threads of their own.
        self._lock = Lock()

    def problems(self, rows: Any) -> list[Problem | None]:
        """Return what the step raises on each row of a Java array, None where it passes."""
        with self._lock:
            tried = self._asking.each(rows, self._tried)
        return problems_of_jvm(self._spark, tried)

    def problems_of(self, rows: Sequence[Any]) -> list[Problem | None]:
        """Return what the step raises on each of some rows, None where it passes."""
        jvm: Any = self._spark._jvm
        return self.problems(jvm.java.util.ArrayList(list(rows)).toArray())


def _trying(asking: Asking, jvm: Any, projections: Sequence[tuple[Any, Any]]) -> Any:
    """Return a Java function that gives a row after projections, or what they raise.

    Raised into Python, each exception would be asked for dozens of things before we see it.
    """
    row = asking.named("org.apache.spark.sql.catalyst.InternalRow")
    one_to_one = jvm.java.lang.invoke.MethodType.methodType(row, row)
    made = asking.handles.identity(row)
    for projected, below in projections:
        projection = jvm.org.apache.spark.sql.catalyst.expressions.InterpretedMutableProjection(
            projected, below
        )
        projection.initialize(0)
        apply = asking.lookup.bind(projection, "apply", one_to_one)
        # The next row would be put into the same object.
        copy = asking.method(row, "copy", row)
        made = asking.handles.filterReturnValue(made, asking.handles.filterReturnValue(apply, copy))
    return asking.function(asking.caught(made, row))
