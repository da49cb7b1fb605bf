from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.agents.error_policy.respond import (
    NOT_CALLED,
    CallHandler,
    Decided,
    DecisionReason,
    FailedAttempt,
    HandlerRaised,
    Outcome,
    SelfHealingFailure,
    TaskRun,
    as_answer,
    respond,
)
from arrester.domain.error_policy.classify import describe
from arrester.domain.error_policy.exception_identity import Cause
from arrester.domain.error_policy.log_levels import LEVELS, LogMessage
from arrester.domain.error_policy.policy import Policy, Response, StageKind
from arrester.domain.error_policy.retry import (
    Attempts,
    RetryAfter,
    RetryPolicy,
)
from arrester.domain.error_policy.tolerance import Tolerance
from arrester.domain.events import FinalResponse

VALUE, LATER, DENIED = (describe(e) for e in (ValueError(), TimeoutError(), PermissionError()))
SUPERSEDED = Cause(names=("org.apache.kafka.common.errors.ProducerFencedException",))
HANDLED = Policy(handled=True)
RETRYING = Policy(handled=True, retry=RetryPolicy(limit=2))


def failure(
    cause: Cause = VALUE,
    *,
    stage: StageKind = StageKind.PROCESS,
    made: int = 1,
    task: str | None = "JFK",
    position: int | None = 7,
) -> FailedAttempt:
    return FailedAttempt(
        stage=stage, cause=cause, attempts=Attempts(made=made), task=task, position=position
    )


def outcome_of(
    failed: FailedAttempt,
    policy: Policy = HANDLED,
    run: TaskRun = TaskRun(),  # noqa: B008 (frozen)
    *,
    answer: object = NOT_CALLED,
) -> Outcome:
    return respond(failed, policy, run, chance=lambda n: 0, answer=answer)


def decided(outcome: Outcome) -> tuple[FinalResponse, DecisionReason]:
    assert isinstance(outcome, Decided)
    return outcome.response, outcome.reason


any_policy = st.builds(
    Policy,
    handled=st.booleans(),
    retry=st.builds(RetryPolicy, limit=st.integers(-1, 3), timeout_ms=st.integers(-1, 500)),
    tolerance=st.builds(Tolerance, limit=st.none() | st.integers(-1, 3)),
    by_class=st.dictionaries(
        st.sampled_from(["builtins.ValueError", "builtins.OSError", "builtins.Exception"]),
        st.sampled_from(list(Response)),
    ),
)
any_failure = st.builds(
    failure,
    st.sampled_from([VALUE, LATER, DENIED, SUPERSEDED]),
    stage=st.sampled_from(list(StageKind)),
    made=st.integers(1, 5),
    task=st.none() | st.just("JFK"),
    position=st.none() | st.integers(),
)
any_answer = st.sampled_from([*Response, *FinalResponse, None, "CONTINUE", 3, HandlerRaised("x")])


@given(any_failure, any_policy, st.builds(TaskRun, failed=st.booleans()), any_answer)
def test_every_failure_is_decided_with_one_call_of_the_handler(
    failed: FailedAttempt, policy: Policy, run: TaskRun, answer: object
) -> None:
    first = outcome_of(failed, policy, run)
    last = outcome_of(failed, policy, run, answer=answer)
    assert not isinstance(last, CallHandler)
    if not isinstance(first, CallHandler):
        assert first == last
    if isinstance(last, Decided):
        assert last.run.failed is (last.response is FinalResponse.FAIL)
        if last.response is FinalResponse.PAUSE:
            assert failed.task is not None and failed.position is not None


@given(any_failure, any_policy, any_answer)
def test_only_the_first_failure_decides(
    failed: FailedAttempt, policy: Policy, answer: object
) -> None:
    after = outcome_of(failed, policy, TaskRun(failed=True), answer=answer)
    assert decided(after) == (FinalResponse.FAIL, DecisionReason.ALREADY_FAILED)
    assert isinstance(after, Decided) and after.messages == ()


def test_self_healing_failures_are_never_decided() -> None:
    assert isinstance(outcome_of(failure(SUPERSEDED)), SelfHealingFailure)


def test_a_fatal_failure_calls_no_handler_and_is_logged_at_debug() -> None:
    outcome = outcome_of(failure(DENIED), RETRYING, answer=Response.CONTINUE)
    assert decided(outcome) == (FinalResponse.FAIL, DecisionReason.FATAL)
    assert isinstance(outcome, Decided)
    assert [LEVELS[message].name for message in outcome.messages] == ["DEBUG", "ERROR"]


@given(any_failure, any_policy, any_answer)
def test_a_declared_answer_for_a_class_replaces_the_handler(
    failed: FailedAttempt, policy: Policy, answer: object
) -> None:
    declared = policy.answer_for(failed.cause)
    outcome = outcome_of(failed, policy, answer=answer)
    if declared is None:
        assert outcome == outcome_of(failed, replace(policy, by_class={}), answer=answer)
    else:
        handled = replace(policy, by_class={}, handled=True)
        assert outcome == outcome_of(failed, handled, answer=declared)


def test_the_most_specific_name_of_a_class_wins() -> None:
    policy = Policy(
        by_class={"builtins.Exception": Response.FAIL, "builtins.OSError": Response.PAUSE}
    )
    assert policy.answer_for(describe(ConnectionError())) is Response.PAUSE
    assert policy.answer_for(describe(KeyError())) is Response.FAIL
    assert policy.answer_for(describe(SystemExit())) is None
    cast = Cause(names=("java.lang.X",), condition="CAST_INVALID_INPUT.SUB")
    assert Policy(by_class={"CAST_INVALID_INPUT": Response.CONTINUE}).answer_for(cast)


def test_retries_come_before_the_handler() -> None:
    assert outcome_of(failure(LATER), RETRYING, answer=Response.CONTINUE) == RetryAfter(300)
    assert outcome_of(failure(LATER, made=3), RETRYING) == CallHandler()


def test_native_expressions_are_retried_only_if_the_handler_answers_retry() -> None:
    native = failure(LATER, stage=StageKind.DESERIALIZE)
    assert outcome_of(native, RETRYING) == CallHandler()
    assert outcome_of(native, RETRYING, answer=Response.RETRY) == RetryAfter(300)


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        (failure(), DecisionReason.NOT_RETRIABLE),
        (failure(LATER, made=3), DecisionReason.RETRIES_EXHAUSTED),
    ],
)
def test_an_invalid_retry_is_fail_with_a_warning(
    failed: FailedAttempt, reason: DecisionReason
) -> None:
    outcome = outcome_of(failed, RETRYING, answer=Response.RETRY)
    assert decided(outcome) == (FinalResponse.FAIL, reason)
    assert isinstance(outcome, Decided)
    assert LEVELS[outcome.messages[0]].name == "WARN"


@pytest.mark.parametrize(
    ("task", "position", "response", "reason"),
    [
        ("JFK", 7, FinalResponse.PAUSE, DecisionReason.HANDLER),
        (None, 7, FinalResponse.FAIL, DecisionReason.GLOBAL_TASK),
        ("JFK", None, FinalResponse.FAIL, DecisionReason.NO_POSITION),
    ],
)
def test_pause_needs_a_task_and_a_position(
    task: str | None, position: int | None, response: FinalResponse, reason: DecisionReason
) -> None:
    outcome = outcome_of(failure(task=task, position=position), answer=Response.PAUSE)
    assert decided(outcome) == (response, reason)


@pytest.mark.parametrize("answer", [None, "CONTINUE", 0, True, HandlerRaised("boom"), object()])
def test_an_invalid_answer_is_fail(answer: object) -> None:
    outcome = outcome_of(failure(), answer=answer)
    assert decided(outcome) == (FinalResponse.FAIL, DecisionReason.HANDLER_BROKEN)


def test_resume_is_an_alias_of_continue() -> None:
    assert Response["RESUME"] is Response.CONTINUE
    assert as_answer(FinalResponse.CONTINUE) is Response.CONTINUE


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(), (FinalResponse.FAIL, DecisionReason.NO_POLICY)),
        (
            Policy(tolerance=Tolerance(limit=-1)),
            (FinalResponse.CONTINUE, DecisionReason.LIMIT_ALONE),
        ),
        (
            Policy(tolerance=Tolerance(limit=0)),
            (FinalResponse.FAIL, DecisionReason.TOLERANCE_EXCEEDED),
        ),
        (
            Policy(tolerance=Tolerance(rate_limit=0)),
            (FinalResponse.FAIL, DecisionReason.RATE_EXCEEDED),
        ),
        (HANDLED, (FinalResponse.CONTINUE, DecisionReason.HANDLER)),
        (
            Policy(handled=True, tolerance=Tolerance(limit=0)),
            (FinalResponse.FAIL, DecisionReason.TOLERANCE_EXCEEDED),
        ),
    ],
)
def test_handlers_and_limits_decide_together_and_alone(
    policy: Policy, expected: tuple[FinalResponse, DecisionReason]
) -> None:
    assert decided(outcome_of(failure(), policy, answer=Response.CONTINUE)) == expected


def test_output_without_a_handler_is_only_skipped_for_retriable_failures() -> None:
    limit = Policy(tolerance=Tolerance(limit=-1))
    lost = outcome_of(failure(LATER, stage=StageKind.PRODUCE), limit)
    assert decided(lost) == (FinalResponse.CONTINUE, DecisionReason.LIMIT_ALONE)
    kept = outcome_of(failure(stage=StageKind.PRODUCE), limit)
    assert decided(kept) == (FinalResponse.FAIL, DecisionReason.NOT_TOLERABLE)


def test_a_source_failure_is_of_no_record() -> None:
    policy = Policy(handled=True, tolerance=Tolerance(limit=-1))
    outcome = outcome_of(failure(stage=StageKind.SOURCE), policy, answer=Response.CONTINUE)
    assert decided(outcome) == (FinalResponse.FAIL, DecisionReason.SOURCE)
    again = outcome_of(failure(LATER, stage=StageKind.SOURCE), RETRYING)
    assert again == RetryAfter(300)


def test_a_stage_kind_is_found_by_the_stage_name() -> None:
    assert StageKind.of("process:validate") is StageKind.PROCESS
    assert StageKind.of("produce") is StageKind.PRODUCE


def test_every_log_message_has_a_level() -> None:
    assert set(LEVELS) == set(LogMessage)
