"""Evaluate native expressions on the driver, without a Spark job, and return their exceptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.spark.errors import Problem
from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.exceptions.java_inspector import java_inspector
from arrester.agents.spark.jvm.exceptions.problems import problems_of_java
from arrester.agents.spark.jvm.plans.catalyst import as_column, node_name
from arrester.agents.spark.jvm.plans.failfast import failfast, parsed_fields
from arrester.agents.spark.jvm.plans.isolated_evaluation import isolated_function


class NativeEvaluator:
    """Evaluate the last of some native steps for rows of the first one's input.

    Each step is a map of column names to expressions. If none of them keeps a state, `keeps_state`
    is False: then a failure takes less time.
    """

    def __init__(
        self,
        frame: DataFrame,
        steps: Sequence[Mapping[str, Column]],
        *,
        keeps_state: bool = True,
    ) -> None:
        self._spark = frame.sparkSession
        # The optimizer would evaluate a constant that is in no condition, and raise.
        is_row = F.spark_partition_id() >= 0
        for step in steps:
            self._last = [failfast(frame, expression) for expression in step.values()]
            values = {
                name: F.when(is_row, as_column(self._spark, expression))
                for name, expression in zip(step, self._last, strict=True)
            }
            last = frame.select(*[value.alias(name) for name, value in values.items()])
            frame = frame.withColumns(values)
        plan = last._jdf.queryExecution().optimizedPlan()
        projects: list[Any] = []
        while node_name(plan) == "Project":
            projects.insert(0, plan)
            plan = plan.child()
        self._inspector = java_inspector(self._spark)
        self._evaluate = isolated_function(
            self._spark,
            [(project.projectList(), project.child().output()) for project in projects],
            keeps_state=keeps_state,
        )
        #: The names of parsed fields; None: they were not needed yet.
        self._names: frozenset[str] | None = None
        #: A projection writes each row into the same object, and each pipeline has its own thread.
        self._lock = Lock()

    def problems(self, rows: Any) -> list[Problem | None]:
        """Return the exception of the step for each row of a Java array, None if it succeeds."""
        with self._lock:
            results = self._inspector.map(rows, self._evaluate)
        return problems_of_java(self._spark, results, self._fields)

    def _fields(self) -> frozenset[str]:
        """Return the names of the fields in the schemas of the step's parsers."""
        if self._names is None:
            self._names = frozenset(name for each in self._last for name in parsed_fields(each))
        return self._names

    def problems_of(self, rows: Sequence[Any]) -> list[Problem | None]:
        """Return the exception of the step for each of some rows, None if it succeeds."""
        jvm: Any = self._spark._jvm
        return self.problems(jvm_class(jvm, "java.util.ArrayList")(list(rows)).toArray())
