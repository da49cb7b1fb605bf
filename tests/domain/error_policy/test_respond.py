from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.controlplane.domain.error_policy.classify import describe
from arrester.controlplane.domain.error_policy.exception_identity import Cause
from arrester.controlplane.domain.error_policy.log_levels import LEVELS, Saying
from arrester.controlplane.domain.error_policy.policy import Answer, Policy, StageKind
from arrester.controlplane.domain.error_policy.respond import (
    UNASKED,
    AskHandler,
    Because,
    Decided,
    FailedAttempt,
    HandlerRaised,
    NotOurs,
    Outcome,
    TaskRun,
    as_answer,
    respond,
)
from arrester.controlplane.domain.error_policy.retry import (
    Attempts,
    RetryAfter,
    RetryPolicy,
    Undecided,
)
from arrester.controlplane.domain.error_policy.tolerance import Tally, Tolerance
from arrester.controlplane.domain.events import Response

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
    records: int = 1,
) -> FailedAttempt:
    return FailedAttempt(
        stage=stage,
        cause=cause,
        attempts=Attempts(made=made),
        task=task,
        position=position,
        records=records,
    )


def fate(
    failed: FailedAttempt,
    policy: Policy = HANDLED,
    run: TaskRun = TaskRun(),  # noqa: B008 (frozen)
    *,
    answer: object = UNASKED,
    stopping: bool = False,
) -> Outcome:
    return respond(failed, policy, run, chance=lambda n: 0, answer=answer, stopping=stopping)


def decided(outcome: Outcome) -> tuple[Response, Because]:
    assert isinstance(outcome, Decided)
    return outcome.response, outcome.because


any_policy = st.builds(
    Policy,
    handled=st.booleans(),
    retry=st.builds(RetryPolicy, limit=st.integers(-1, 3), timeout_ms=st.integers(-1, 500)),
    tolerance=st.builds(Tolerance, limit=st.none() | st.integers(-1, 3)),
    by_class=st.dictionaries(
        st.sampled_from(["builtins.ValueError", "builtins.OSError", "builtins.Exception"]),
        st.sampled_from(list(Answer)),
    ),
)
any_failure = st.builds(
    failure,
    st.sampled_from([VALUE, LATER, DENIED, SUPERSEDED]),
    stage=st.sampled_from(list(StageKind)),
    made=st.integers(1, 5),
    task=st.none() | st.just("JFK"),
    position=st.none() | st.integers(),
    records=st.integers(1, 10),
)
any_answer = st.sampled_from([*Answer, *Response, None, "CONTINUE", 3, HandlerRaised("x")])


@given(any_failure, any_policy, st.builds(TaskRun, failed=st.booleans()), any_answer)
def test_every_failure_has_a_fate_and_an_answer_is_asked_for_once(
    failed: FailedAttempt, policy: Policy, run: TaskRun, answer: object
) -> None:
    first = fate(failed, policy, run)
    last = fate(failed, policy, run, answer=answer)
    assert not isinstance(last, AskHandler)
    if not isinstance(first, AskHandler):
        assert first == last
    if isinstance(last, Decided):
        assert last.run.failed is (last.response is Response.FAIL)
        assert 0 <= last.continued <= failed.records
        assert last.continued <= last.decided <= failed.records
        if last.response is Response.PAUSE:
            assert failed.task is not None and failed.position is not None


@given(any_failure, any_policy, any_answer)
def test_only_the_first_failure_decides(
    failed: FailedAttempt, policy: Policy, answer: object
) -> None:
    after = fate(failed, policy, TaskRun(failed=True), answer=answer)
    assert decided(after) == (Response.FAIL, Because.ALREADY_FAILED)
    assert isinstance(after, Decided)
    assert (after.decided, after.continued, after.said) == (0, 0, ())


def test_self_healing_comes_before_everything() -> None:
    assert isinstance(fate(failure(SUPERSEDED)), NotOurs)


def test_fatal_asks_nobody_and_says_so_quietly() -> None:
    outcome = fate(failure(DENIED), RETRYING, answer=Answer.CONTINUE)
    assert decided(outcome) == (Response.FAIL, Because.FATAL)
    assert isinstance(outcome, Decided)
    assert [LEVELS[saying].name for saying in outcome.said] == ["DEBUG", "ERROR"]


@given(any_failure, any_policy, any_answer)
def test_what_was_said_of_a_class_is_as_if_the_handler_had_answered_it(
    failed: FailedAttempt, policy: Policy, answer: object
) -> None:
    said = policy.answer_for(failed.cause)
    outcome = fate(failed, policy, answer=answer)
    if said is None:
        assert outcome == fate(failed, replace(policy, by_class={}), answer=answer)
    else:
        handled = replace(policy, by_class={}, handled=True)
        assert outcome == fate(failed, handled, answer=said)


def test_the_most_specific_name_of_a_class_wins() -> None:
    policy = Policy(by_class={"builtins.Exception": Answer.FAIL, "builtins.OSError": Answer.PAUSE})
    assert policy.answer_for(describe(ConnectionError())) is Answer.PAUSE
    assert policy.answer_for(describe(KeyError())) is Answer.FAIL
    assert policy.answer_for(describe(SystemExit())) is None
    cast = Cause(names=("java.lang.X",), condition="CAST_INVALID_INPUT.SUB")
    assert Policy(by_class={"CAST_INVALID_INPUT": Answer.CONTINUE}).answer_for(cast)


def test_retries_come_before_the_handler() -> None:
    assert fate(failure(LATER), RETRYING, answer=Answer.CONTINUE) == RetryAfter(300)
    assert fate(failure(LATER, made=3), RETRYING) == AskHandler()
    assert fate(failure(LATER), RETRYING, stopping=True) == Undecided()


def test_native_expressions_are_not_retried_unless_the_handler_says_so() -> None:
    native = failure(LATER, stage=StageKind.DESERIALIZE)
    assert fate(native, RETRYING) == AskHandler()
    assert fate(native, RETRYING, answer=Answer.RETRY) == RetryAfter(300)


@pytest.mark.parametrize(
    ("failed", "because"),
    [
        (failure(), Because.NOT_RETRIABLE),
        (failure(LATER, made=3), Because.RETRIES_SPENT),
    ],
)
def test_retry_is_fail_with_a_warning_where_it_is_not_valid(
    failed: FailedAttempt, because: Because
) -> None:
    outcome = fate(failed, RETRYING, answer=Answer.RETRY)
    assert decided(outcome) == (Response.FAIL, because)
    assert isinstance(outcome, Decided)
    assert LEVELS[outcome.said[0]].name == "WARN"


@pytest.mark.parametrize(
    ("task", "position", "response", "because"),
    [
        ("JFK", 7, Response.PAUSE, Because.HANDLER),
        (None, 7, Response.FAIL, Because.GLOBAL_TASK),
        ("JFK", None, Response.FAIL, Because.NO_POSITION),
    ],
)
def test_pause_needs_a_task_and_a_position(
    task: str | None, position: int | None, response: Response, because: Because
) -> None:
    outcome = fate(failure(task=task, position=position), answer=Answer.PAUSE)
    assert decided(outcome) == (response, because)


@pytest.mark.parametrize("answer", [None, "CONTINUE", 0, True, HandlerRaised("boom"), object()])
def test_no_answer_is_fail(answer: object) -> None:
    outcome = fate(failure(), answer=answer)
    assert decided(outcome) == (Response.FAIL, Because.HANDLER_BROKEN)


def test_resume_is_another_word_for_continue() -> None:
    assert Answer["RESUME"] is Answer.CONTINUE
    assert as_answer(Response.CONTINUE) is Answer.CONTINUE


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(), (Response.FAIL, Because.NO_POLICY)),
        (Policy(tolerance=Tolerance(limit=-1)), (Response.CONTINUE, Because.LIMIT_ALONE)),
        (Policy(tolerance=Tolerance(limit=0)), (Response.FAIL, Because.TOLERANCE_EXCEEDED)),
        (Policy(tolerance=Tolerance(rate_limit=0)), (Response.FAIL, Because.RATE_EXCEEDED)),
        (HANDLED, (Response.CONTINUE, Because.HANDLER)),
        (
            Policy(handled=True, tolerance=Tolerance(limit=0)),
            (Response.FAIL, Because.TOLERANCE_EXCEEDED),
        ),
    ],
)
def test_handlers_and_limits_together_and_alone(
    policy: Policy, expected: tuple[Response, Because]
) -> None:
    assert decided(fate(failure(), policy, answer=Answer.CONTINUE)) == expected


def test_output_without_a_handler_is_only_given_up_for_retriable_failures() -> None:
    limit = Policy(tolerance=Tolerance(limit=-1))
    lost = fate(failure(LATER, stage=StageKind.PRODUCE), limit)
    assert decided(lost) == (Response.CONTINUE, Because.LIMIT_ALONE)
    kept = fate(failure(stage=StageKind.PRODUCE), limit)
    assert decided(kept) == (Response.FAIL, Because.NOT_TOLERABLE)


def test_a_source_blames_no_record() -> None:
    policy = Policy(handled=True, tolerance=Tolerance(limit=-1))
    outcome = fate(failure(stage=StageKind.SOURCE), policy, answer=Answer.CONTINUE)
    assert decided(outcome) == (Response.FAIL, Because.SOURCE)
    assert isinstance(outcome, Decided)
    assert outcome.continued == 0
    again = fate(failure(LATER, stage=StageKind.SOURCE), RETRYING)
    assert again == RetryAfter(300)


def test_a_million_records_are_one_decision() -> None:
    policy = Policy(handled=True, tolerance=Tolerance(limit=100))
    outcome = fate(failure(records=1_000_000), policy, answer=Answer.CONTINUE)
    assert isinstance(outcome, Decided)
    assert (outcome.response, outcome.continued, outcome.decided) == (Response.FAIL, 100, 101)
    assert outcome.run == TaskRun(tally=Tally(total=101, in_window=101), failed=True)


def test_failing_while_stopping_is_said_less_loudly() -> None:
    outcome = fate(failure(), Policy(), stopping=True)
    assert isinstance(outcome, Decided)
    assert outcome.said == (Saying.KILLED_WHILE_STOPPING,)


def test_a_stage_is_known_by_its_name() -> None:
    assert StageKind.of("process:validate") is StageKind.PROCESS
    assert StageKind.of("produce") is StageKind.PRODUCE


def test_everything_said_has_a_level() -> None:
    assert set(LEVELS) == set(Saying)
