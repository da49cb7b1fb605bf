"""PAUSE and resume of a task."""

from __future__ import annotations

from collections.abc import Callable

from arrester.agents.error_policy.respond import Decided
from arrester.agents.error_policy.settings import ErrorSettings
from arrester.domain.error_policy.policy import Response, StageKind
from arrester.domain.events import FinalResponse
from tests.conformance.cases import Case, Form
from tests.conformance.simulation import ANSWERS, Task

IGNORED = {
    "meaning": "a description",
    "then": "a description of the next step, which the expected fields show",
    "handler_returns": "PAUSE in every case",
    "task_state": "PAUSED in every case",
    "transition_to_RUNNING": "the thread is stopped, so the task cannot run",
}


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def handled(answer: Response) -> Task:
    settings = ErrorSettings.read({"deserialization.exception.handler": "my.Handler"})
    task = Task(settings.policy(StageKind.DESERIALIZE), stage=StageKind.DESERIALIZE)
    task.answer = answer
    return task


def check_pauses_again(case: Case) -> None:
    """The same failure pauses the task again."""
    assert case.given["bad_record_still_next"]
    task = handled(ANSWERS[case.given["handler_returns"]])
    outcomes = [task.operate(["other"]), task.operate(["other"])]
    assert outcomes == ["paused", "paused"]
    assert case.expect["after_resume"] == ("the same record fails again and the task pauses again")


def check_never_paused(case: Case) -> None:
    """Only the answer PAUSE pauses a task."""
    assert case.given["handler_never_returns"] == "PAUSE"
    assert case.expect["behaviour_change"] is None
    for answer in (Response.CONTINUE, Response.FAIL, Response.RETRY):
        task = handled(answer)
        task.operate(["other"])
        assert isinstance(task.last, Decided)
        assert task.last.response is not FinalResponse.PAUSE


FORMS: dict[Form, Callable[[Case], None]] = {
    ("given.bad_record_still_next",): check_pauses_again,
    ("given.handler_never_returns",): check_never_paused,
}
