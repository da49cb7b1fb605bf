"""The failure of a record as a row of values, or as the column of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from arrester.agents.executor.columns import ERROR_TYPE
from arrester.agents.spark.errors import Problem
from arrester.controlplane.domain.error_policy.exception_identity import known_as
from arrester.controlplane.domain.error_policy.policy import Policy


def error_row(problem: Problem, policy: Policy | None = None) -> dict[str, Any]:
    """Return a problem as the error of a failed row. The policy's table gives its kind."""
    rulings = {} if policy is None else policy.table.rulings
    name = known_as(problem.cause, rulings)
    return {
        "exception_class": problem.exception_class,
        "message": problem.message,
        "stack": problem.stack,
        "frame": problem.frame,
        "names": list(problem.cause.names),
        "condition": problem.condition,
        "kind": None if name is None else rulings[name].kind.value,
        "attempts": problem.attempts,
        "took_ms": problem.took_ms,
    }


def error_column(row: Mapping[str, Any]) -> Column:
    """Return the column of an error row."""
    names = F.array(*[F.lit(name) for name in row["names"]])
    values = [
        (names if name == "names" else F.lit(value)).alias(name) for name, value in row.items()
    ]
    return F.struct(*values).cast(ERROR_TYPE)
