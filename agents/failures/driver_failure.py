"""The failure of a script outside a run, with its stack trace."""

from __future__ import annotations

from arrester.agents.failures.fingerprints import failure_at
from arrester.agents.spark.jvm.exceptions.problems import problem_of_end
from arrester.domain.events import DRIVER, Body, Failure


def driver_failure(exc: BaseException) -> tuple[Failure, Body]:
    """Return an exception of the driver, outside a run, as a failure and the body of its event."""
    problem = problem_of_end(exc)
    return failure_at(DRIVER, problem), Body(stack=problem.stack)
