"""Find out why native expressions failed: evaluate them again on the driver, for a few records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.steps import Columns, Deserialize, Step
from arrester.agents.execution.native_inputs import inputs_of, needs_rerun, unwrapped
from arrester.agents.executor.columns import FATE, ROW, SOURCE
from arrester.agents.spark.catalyst import collected
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.native_evaluator import NativeEvaluator

_PLACE = "__arrester_place"
#: For this many steps the bound evaluators are cached.
_KEPT: Final = 64

NOT_REPEATED = Problem(
    exception_class="NotRepeated",
    message="the expression raised on the executor and did not raise again on the driver",
)


def explain(examples: DataFrame, pipeline: Pipeline, numbers: list[int]) -> list[Problem]:
    """Return why each row of `examples` failed; `numbers` are their steps, in the same order.

    `examples` are gathered, with the source row in their first column, ROW. A native step is bound
    once on the driver and applied to its rows: a few JVM calls, no job. Only earlier steps that are
    not native run again, as a job over these records.
    """
    found = {
        number: iter(_problems(examples, pipeline, number, numbers))
        for number in set(numbers)
        if number > SOURCE and isinstance(pipeline.steps[number - 1], Deserialize | Columns)
    }
    return [next(found[number]) if number in found else NOT_REPEATED for number in numbers]


def explain_places(examples: DataFrame, raised: Sequence[Column | None]) -> list[Problem | None]:
    """Return why the expression of each record's task or position raised; None if it did not.

    `examples` are gathered, in the same order.
    """
    source = unwrapped(examples)
    found: list[Problem | None] = []
    evaluators: dict[int, NativeEvaluator] = {}
    for row, expression in zip(collected(examples), raised, strict=True):
        if expression is None:
            found.append(None)
            continue
        if id(expression) not in evaluators:
            evaluators[id(expression)] = NativeEvaluator(source, [{_PLACE: expression}])
        found += evaluators[id(expression)].problems_of([row])
    return found


def _problems(
    examples: DataFrame, pipeline: Pipeline, number: int, numbers: Sequence[int]
) -> list[Problem]:
    if not needs_rerun(pipeline.steps[:number]):
        mine = examples if len(set(numbers)) == 1 else examples.where(F.col(FATE) == number)
        found = _evaluator(pipeline, number).problems(collected(mine))
        return [each or NOT_REPEATED for each in found]
    inputs = inputs_of(examples, pipeline.steps, number)
    evaluator = NativeEvaluator(inputs.frame, _expressions(inputs.steps))
    tried = [evaluator.problems_of(rows) for rows in inputs.rows]
    return [next((each for each in found if each), NOT_REPEATED) for found in tried]


@lru_cache(maxsize=_KEPT)
def _evaluator(pipeline: Pipeline, number: int) -> NativeEvaluator:
    """Return the evaluator of a native step that follows native ones only, for source records."""
    shape = T.StructType([T.StructField(ROW, pipeline.source.schema)])
    records = pipeline.source.sparkSession.createDataFrame([], shape)
    return NativeEvaluator(unwrapped(records), _expressions(pipeline.steps[:number]))


def _expressions(steps: Sequence[Step]) -> list[Mapping[str, Column]]:
    assert all(isinstance(step, Deserialize | Columns) for step in steps)
    return [step.expressions for step in steps if isinstance(step, Deserialize | Columns)]
