"""PAUSE and resume of a task."""

from __future__ import annotations

from arrester.controlplane.domain.error_policy.policy import Answer, StageKind
from arrester.controlplane.domain.error_policy.respond import Decided
from arrester.controlplane.domain.error_policy.settings import ErrorSettings
from arrester.controlplane.domain.events import Response
from tests.conformance.cases import Case
from tests.conformance.simulation import Task

NEEDS_SPARK = {
    "pause-commits-last-good": "what is written, and the position that is kept",
    "resume-fails-to-transition": "resume() answers False",
    "(skip-then-resume|fix-and-restart)": "the record that runs next",
    "paused-listing": "paused_tasks() of an agent",
}


def check(case: Case) -> None:
    if case.given.get("bad_record_still_next"):
        check_pauses_again(case)
    else:
        check_never_paused(case)


def handled(answer: Answer) -> Task:
    settings = ErrorSettings.read({"deserialization.exception.handler": "my.Handler"})
    task = Task(settings.policy(StageKind.DESERIALIZE), stage=StageKind.DESERIALIZE)
    task.answer = answer
    return task


def check_pauses_again(case: Case) -> None:
    """The memory of the run is as it was: the same failure has the same fate."""
    task = handled(Answer[case.given["handler_returns"]])
    fates = [task.operate(["other"]), task.operate(["other"])]
    assert fates == ["paused", "paused"]
    assert case.expect["after_resume"] == ("the same record fails again and the task pauses again")


def check_never_paused(case: Case) -> None:
    """Nobody pauses a task but a handler that says so."""
    assert case.given["handler_never_returns"] == "PAUSE"
    assert case.expect["behaviour_change"] is None
    for answer in (Answer.CONTINUE, Answer.FAIL, Answer.RETRY):
        task = handled(answer)
        task.operate(["other"])
        assert isinstance(task.last, Decided)
        assert task.last.response is not Response.PAUSE
