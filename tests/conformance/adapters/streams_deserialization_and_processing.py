"""Handlers of deserialization and processing: KIP-161, KIP-1033."""

from __future__ import annotations

from collections.abc import Callable

from arrester.agents.error_policy.respond import (
    Decided,
    DecisionReason,
    HandlerRaised,
    TaskRun,
)
from arrester.agents.error_policy.settings import ErrorSettings
from arrester.domain.error_policy.log_levels import LEVELS
from arrester.domain.error_policy.policy import Response, StageKind
from arrester.domain.error_policy.retry import Attempts
from tests.conformance.adapters.streams_production_handler import cause_of
from tests.conformance.cases import Case, Form, Json, Known
from tests.conformance.simulation import Task

IGNORED = {
    "dlq": "the name of the topic",
    "record": "a description: dropped",
    "commit_needed": "a description; the check reads the committed position",
}
BUILT_IN = Known({"log-and-continue": Response.CONTINUE, "log-and-fail": Response.FAIL})
NO_HANDLER = object()


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def check_exceptions(case: Case) -> None:
    given, expect = case.given, case.expect
    for name, called, raises in zip(
        given["exceptions"], expect["handler_called"], expect["raises"], strict=True
    ):
        check_excluded(name, called=called, raises=raises)


def check_exception(case: Case) -> None:
    given, expect = case.given, case.expect
    check_excluded(
        given["exception"], called=expect["handler_called"], raises=bool(expect["raises"])
    )


def task_of(stage: StageKind, answer: object) -> Task:
    name = {"deserialize": "deserialization", "process": "processing"}[stage]
    keys = {} if answer is NO_HANDLER else {f"{name}.exception.handler": "my.Handler"}
    task = Task(ErrorSettings.read(keys).policy(stage), stage=stage)
    task.answer = answer
    return task


def answer_of(given: Json) -> object:
    if given.get("handler") == "raises":
        return HandlerRaised("the handler's own exception")
    if "handler" in given:
        return NO_HANDLER if given["handler"] is None else BUILT_IN[given["handler"]]
    returned = given.get("handler_returns", "RESUME")
    # The rules also get values that are not answers.
    return Response.__members__.get(returned or "", returned)


def check_answer(case: Case) -> None:
    given, expect = case.given, case.expect
    stage = StageKind.DESERIALIZE if "deser" in case.id else StageKind.PROCESS
    task = task_of(stage, answer_of(given))
    if given.get("task") == "global" or given.get("processing.exception.handler.global.enabled"):
        task.key = None
    fails = any([given.get("key_fails", True), given.get("value_fails", True)])
    outcome = task.operate(["other"] if fails else ["ok"])
    raises = expect.get("raises")
    assert outcome == ("task_killed" if raises else "skipped" if fails else "success")
    if "user-code error" in str(raises):
        assert isinstance(task.last, Decided)
        assert task.last.reason is DecisionReason.HANDLER_BROKEN
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
    return {LEVELS[message].name for message in task.last.messages}


def check_excluded(name: str, *, called: bool, raises: bool) -> None:
    """No handler is called for exceptions that the platform handles, or after a decision."""
    task = task_of(StageKind.PROCESS, Response.CONTINUE)
    # In Streams this class wraps a failure for which another stage has decided FAIL.
    task.run = TaskRun(failed=name == "FailedProcessingException")
    outcome = task.ended(task.fail(cause_of(name), Attempts()))
    assert bool(task.asked) is called
    assert (outcome in ("task_killed", "not ours")) is raises


def check_default(case: Case) -> None:
    expect = case.expect
    default = task_of(StageKind.PROCESS, NO_HANDLER).operate(["other"])
    named = task_of(StageKind.PROCESS, BUILT_IN[expect["processing.exception.handler"]])
    assert named.operate(["other"]) == default
    for name, level in expect["log levels"].items():
        task = task_of(StageKind.PROCESS, BUILT_IN[name])
        task.operate(["other"])
        assert levels(task) == {level}


FORMS: dict[Form, Callable[[Case], None]] = {
    ("given.exceptions",): check_exceptions,
    ("given.exception", "expect.raises"): check_exception,
    ("expect.processing.exception.handler",): check_default,
    ("expect.raises",): check_answer,
    ("expect.handler_called",): check_answer,
    ("expect.dlq_records",): check_answer,
    ("expect.dropped_records_delta",): check_answer,
}
