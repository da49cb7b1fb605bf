"""Tasks and positions that are plain columns of the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.spark.jvm.plans.failfast import failfast
from arrester.agents.spark.sources.kafka_source import COORDINATES, DASH, topic_partition


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCoordinates:
    """The names of the source's columns for task and position. Reading them never raises."""

    #: One column, or topic and partition joined by a dash; empty: the global task.
    task: tuple[str, ...]
    position: str

    @classmethod
    def of(
        cls, source: DataFrame, *, task: Column | None, position: Column
    ) -> SourceCoordinates | None:
        """Return the columns, None if one is an expression that needs a guard."""
        names = () if task is None else _task_names(source, task)
        position_name = column_name(source, position)
        if position_name is None or names is None:
            return None
        return cls(task=names, position=position_name)

    def key(self, column_of: Callable[[str], Column]) -> Column | None:
        """Return the task of a row, whose columns `column_of` returns; None: the global task."""
        if len(self.task) < 2:
            return column_of(self.task[0]) if self.task else None
        first, *others = (column_of(name).cast("string") for name in self.task)
        with_dashes = [part for other in others for part in (F.lit(DASH), other)]
        return F.concat(first, *with_dashes)


def _task_names(source: DataFrame, task: Column) -> tuple[str, ...] | None:
    """Return the columns of which the task consists, None for another expression."""
    name = column_name(source, task)
    if name is not None:
        return (name,)
    if not set(source.columns) >= COORDINATES:
        return None
    kafka_task = failfast(source, topic_partition())
    is_kafka_task = kafka_task.semanticEquals(failfast(source, task))
    return ("topic", "partition") if is_kafka_task else None


def column_name(source: DataFrame, column: Column) -> str | None:
    """Return the name of a plain column of the source, None for another expression."""
    expression = failfast(source, column)
    if expression.getClass().getSimpleName() != "AttributeReference":
        return None
    return str(expression.name())
