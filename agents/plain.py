"""Task and position that are columns of the source and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame

from agents.guard import failfast


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The names of such columns: to read them never raises."""

    #: None: the global task.
    task: str | None
    position: str

    @classmethod
    def of(cls, source: DataFrame, *, task: Column | None, position: Column) -> Plain | None:
        """Return them, None when one is an expression that has to be guarded."""
        task_name = None if task is None else _column_name(source, task)
        position_name = _column_name(source, position)
        if position_name is None or (task_name is None and task is not None):
            return None
        return cls(task=task_name, position=position_name)


def _column_name(source: DataFrame, column: Column) -> str | None:
    expression = failfast(source, column)
    if expression.getClass().getSimpleName() != "AttributeReference":
        return None
    return str(expression.name())
