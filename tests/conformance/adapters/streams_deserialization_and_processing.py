"""Handlers of deserialization and processing: KIP-161, KIP-1033."""

from __future__ import annotations

from arrester.controlplane.domain.error_policy.log_levels import LEVELS
from arrester.controlplane.domain.error_policy.policy import Answer, StageKind
from arrester.controlplane.domain.error_policy.respond import (
    Because,
    Decided,
    HandlerRaised,
    TaskRun,
)
from arrester.controlplane.domain.error_policy.retry import Attempts
from arrester.controlplane.domain.error_policy.settings import ErrorSettings
from tests.conformance.adapters.streams_production_handler import cause_of
from tests.conformance.cases import Case, Json
from tests.conformance.simulation import Task

NEEDS_SPARK = {
    "corrupt-records-advance-offset": "the position that is kept after skipped records",
    "valid-then-corrupt": "the position that is kept after each record",
    "proc-fail": "the records written, and the names in the message",
    "proc-fail-wraps-node": "the names in the message, and the original cause",
    "handler-context-fields": "the context that the agent hands to a handler",
}
BUILT_IN = {"log-and-continue": Answer.CONTINUE, "log-and-fail": Answer.FAIL}
NOBODY = object()


def check(case: Case) -> None:
    given, expect = case.given, case.expect
    stage = StageKind.DESERIALIZE if "deser" in case.id else StageKind.PROCESS
    if "exceptions" in given:
        for name, called, raises in zip(
            given["exceptions"], expect["handler_called"], expect["raises"], strict=True
        ):
            check_excluded(name, called=called, raises=raises)
    elif "exception" in given:
        check_excluded(given["exception"], called=expect["handler_called"], raises=True)
    elif "processing.exception.handler" in expect:
        check_default(expect)
    else:
        check_answer(stage, given, expect)


def task_of(stage: StageKind, answer: object) -> Task:
    name = {"deserialize": "deserialization", "process": "processing"}[stage]
    keys = {} if answer is NOBODY else {f"{name}.exception.handler": "my.Handler"}
    task = Task(ErrorSettings.read(keys).policy(stage), stage=stage)
    task.answer = answer
    return task


def answer_of(given: Json) -> object:
    if given.get("handler") == "raises":
        return HandlerRaised("the handler's own exception")
    if "handler" in given:
        return BUILT_IN.get(given["handler"] or "", NOBODY)
    returned = given.get("handler_returns", "RESUME")
    # What is no answer reaches the rules as it is.
    return Answer.__members__.get(returned or "", returned)


def check_answer(stage: StageKind, given: Json, expect: Json) -> None:
    task = task_of(stage, answer_of(given))
    if given.get("task") == "global":
        task.key = None
    outcome = task.operate(["other"])
    raises = expect.get("raises")
    assert outcome == ("task_killed" if raises else "skipped")
    if "user-code error" in str(raises):
        assert isinstance(task.last, Decided)
        assert task.last.because is Because.HANDLER_BROKEN
    if "handler_called" in expect:
        assert bool(task.asked) is expect["handler_called"]
    if "dropped_records_delta" in expect:
        assert task.counters.records_skipped == expect["dropped_records_delta"]
    if "dlq_records" in expect:
        assert task.dead_letters == expect["dlq_records"]
    if "log_level" in expect:
        assert levels(task) == {expect["log_level"]}


def levels(task: Task) -> set[str]:
    assert isinstance(task.last, Decided)
    return {LEVELS[saying].name for saying in task.last.said}


def check_excluded(name: str, *, called: bool, raises: bool) -> None:
    """Nobody is asked about what the platform repairs, or about what has been decided."""
    task = task_of(StageKind.PROCESS, Answer.CONTINUE)
    # In Streams this class wraps a failure for which another stage has decided FAIL.
    task.run = TaskRun(failed=name == "FailedProcessingException")
    outcome = task.ended(task.fail(cause_of(name), Attempts()))
    assert bool(task.asked) is called
    assert (outcome in ("task_killed", "not ours")) is raises


def check_default(expect: Json) -> None:
    assert expect["processing.exception.handler"] == "log-and-fail"
    nobody = task_of(StageKind.PROCESS, NOBODY)
    assert nobody.operate(["other"]) == "task_killed"
    for name, level in expect["log levels"].items():
        task = task_of(StageKind.PROCESS, BUILT_IN[name])
        task.operate(["other"])
        assert levels(task) == {level}
