"""A counter of the rows of a plan, added up by executors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.plans.accumulators import (
    LONG,
    added,
    invoked,
    object_type,
    registered,
    setters,
)
from arrester.agents.spark.jvm.plans.catalyst import (
    PROJECT,
    analysed_plan,
    frame_of,
    to_list,
    to_seq,
)

_ONE = "__arrester_one"
_CATALYST = "org.apache.spark.sql.catalyst"
_EXPRESSIONS = f"{_CATALYST}.expressions"


class RowCounter:
    """A new accumulator of Spark; with a name, the status of tasks contains it."""

    def __init__(self, spark: SparkSession, *, name: str | None, counts_failed_tasks: bool) -> None:
        self._jvm: Any = spark._jvm
        self._accumulator = registered(
            spark, LONG, name=name, counts_failed_tasks=counts_failed_tasks
        )
        self._parts = _plan_parts(self._jvm)
        self._condition = self._parts.counting_condition(self._jvm, self._accumulator)

    @property
    def count(self) -> int:
        """The number of rows that were read so far."""
        return int(self._accumulator.sum())

    def counted(self, frame: DataFrame) -> DataFrame:
        """Return the same rows, each counted when it is read."""
        jvm, plan = self._jvm, analysed_plan(frame)
        filter_class = jvm_class(jvm, f"{_CATALYST}.plans.logical.Filter")
        project_class = jvm_class(jvm, PROJECT)
        counting = filter_class(self._condition, project_class(self._parts.columns, plan))
        return frame_of(frame.sparkSession, project_class(plan.output(), counting))


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanParts:
    """The parts of a counting plan that are the same for each frame.

    Each part takes at least one call to the JVM.
    """

    #: A condition that holds for each row.
    condition: Any
    #: All columns, and a column of ones.
    columns: Any
    #: What is added for each row: a one.
    values: Any
    #: The type of an accumulator.
    object_type: Any
    #: The type of a condition.
    boolean: Any

    def counting_condition(self, jvm: Any, accumulator: Any) -> Any:
        """Return a condition that holds for each row, and adds 1 to an accumulator."""
        counted = added(jvm, accumulator, self.object_type, self.values)
        is_zero = invoked(jvm, counted, "isZero", self.boolean)
        is_counted = jvm_class(jvm, f"{_EXPRESSIONS}.Not")(is_zero)
        return jvm_class(jvm, f"{_EXPRESSIONS}.And")(self.condition, is_counted)


@lru_cache(maxsize=1)
def _plan_parts(jvm: Any) -> _PlanParts:
    partition_id = F.spark_partition_id()
    # Non-deterministic: the optimizer moves the count neither below Python nor into other filters.
    one = F.when(partition_id >= 0, 1).otherwise(0).cast("long").alias(_ONE)
    ones = SparkSession.active().range(0).select(one)
    condition = analysed_plan(ones.where(partition_id >= 0)).condition()
    [one_expression] = to_list(analysed_plan(ones).projectList())
    all_columns = jvm_class(jvm, f"{_CATALYST}.analysis.UnresolvedStar")(
        jvm_class(jvm, "scala.Option").empty()
    )
    return _PlanParts(
        condition=condition,
        columns=to_seq(jvm, [all_columns, one_expression]),
        values=setters(jvm, one_expression.toAttribute()),
        object_type=object_type(jvm, LONG),
        boolean=condition.dataType(),
    )
