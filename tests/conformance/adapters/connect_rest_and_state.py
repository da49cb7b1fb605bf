"""Connect's REST plane: what of it states a behaviour that a task of ours has."""

from __future__ import annotations

from tests.conformance.cases import Case

NEEDS_SPARK = {
    "no-auto-restart": "a DEAD task of a running thread (errors.failure.scope=task) stays DEAD",
    "failed-task-ignores-pause": "pausing a DEAD task by hand is refused",
    "status-trace": "the stack trace of what killed a task, served until the task runs again",
    "task-fails-in-poll": "a source that raises ends the thread, after what was decided is kept",
}


def check(case: Case) -> None:
    raise AssertionError(f"{case.name}: no rule here reads this form")
