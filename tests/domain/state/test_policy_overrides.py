"""Policies set by command: refusals, answering instances, and the resulting state."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from arrester.domain.commands.decide import COMMAND_EXPIRY, decide
from arrester.domain.commands.request import CommandRequest
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    ApplicationLatched,
    CommandApplied,
    CommandDelivered,
    CommandIssued,
    CommandKind,
    CommandRefused,
    Event,
    InstanceStarted,
    PipelineDescribed,
    PolicyChanged,
    Run,
    StageAnswer,
    StageCommanded,
    StageDescribed,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.state.states import CommandStatus
from arrester.domain.state.stream_state import StreamState, empty
from tests import histories
from tests.histories import APPLICATION, INSTANCE, NOON, OTHER_INSTANCE, POLICY

ID = UUID(int=1)
STAGES = ("source", "deserialize", "process:check", "produce")
DESCRIBED = replace(
    POLICY,
    stages=tuple(
        StageDescribed(name=name, kind="Step", answer="FAIL", origin="default") for name in STAGES
    ),
    retries_limit=3,
)


def running(policy: PipelineDescribed | None = DESCRIBED, *more: Event) -> StreamState:
    described = [] if policy is None else [histories.event(policy)]
    return state([*histories.started(), *described, *more])


def state(events: list[Event]) -> StreamState:
    return empty(APPLICATION).fold(histories.stored(events))


def request(
    *,
    stage: str | None = "process:check",
    answer: StageAnswer | None = "CONTINUE",
    pipeline: str | None = "delays",
    reason: str = "because",
) -> CommandRequest:
    return CommandRequest(
        command=ID,
        kind=CommandKind.SET_POLICY,
        actor="ana",
        reason=reason,
        pipeline=pipeline,
        stage=stage,
        answer=answer,
    )


def refused(known: StreamState, requested: CommandRequest) -> str:
    _, answer = decide(requested, known, now=NOON)
    assert isinstance(answer, CommandRefused)
    return answer.reason


def changed(answer: StageAnswer | None = "CONTINUE", **envelope: object) -> Event:
    data = PolicyChanged(stage="process:check", answer=answer, actor="ana", reason="because")
    return histories.event(data, minute=5, **envelope)  # type: ignore[arg-type]  # by name


def test_every_instance_that_runs_the_pipeline_has_to_answer() -> None:
    other = Run(pipeline="delays", checkpoint="cp-2", epoch=1)
    elsewhere = Run(pipeline="gains", checkpoint="cp-3", epoch=1)
    begun = InstanceStarted(host="b", pid=8, versions={})
    second = [
        histories.event(begun, run=None, instance=OTHER_INSTANCE),
        histories.event(ThreadStarted(), run=other, instance=OTHER_INSTANCE),
        histories.event(DESCRIBED, run=other, instance=OTHER_INSTANCE),
        histories.event(ThreadStarted(), run=elsewhere, instance=OTHER_INSTANCE),
    ]
    known = running(DESCRIBED, *second)
    (issued,) = decide(request(), known, now=NOON)
    assert isinstance(issued, CommandIssued)
    assert set(issued.instances) == {INSTANCE, OTHER_INSTANCE}
    assert (issued.pipeline, issued.checkpoint, issued.task) == ("delays", None, None)
    assert (issued.stage, issued.answer) == ("process:check", "CONTINUE")
    answers = [
        histories.event(issued, run=None, instance=None),
        *[
            histories.event(data, instance=instance)
            for instance in (INSTANCE, OTHER_INSTANCE)
            for data in (CommandDelivered(command=ID), CommandApplied(command=ID))
        ],
    ]
    known = running(DESCRIBED, *second, *answers[:3])
    assert known.commands[ID].status is CommandStatus.DELIVERED
    known = running(DESCRIBED, *second, *answers)
    command = known.commands[ID]
    assert (command.status, command.task) == (CommandStatus.APPLIED, None)
    assert (command.pipeline, command.stage) == ("delays", "process:check")


def test_an_invalid_override_is_refused_by_the_server() -> None:
    assert "delays does not run" in refused(state([]), request())
    ended = running(DESCRIBED, histories.event(ThreadDied(reason="stopped")))
    assert "delays does not run" in refused(ended, request())
    assert "has not reported its policy" in refused(running(None), request())
    unknown = refused(running(), request(stage="process:nope"))
    assert unknown == f"delays has no stage process:nope; it has {', '.join(STAGES)}"
    at_python = refused(running(), request(answer="RETRY"))
    assert at_python.startswith("process:check has used its retries")
    assert len(decide(request(stage="deserialize", answer="RETRY"), running(), now=NOON)) == 1
    poor = running(replace(DESCRIBED, retries_limit=0))
    assert "no budget" in refused(poor, request(stage="deserialize", answer="RETRY"))
    assert "as in the code already" in refused(running(), request(answer=None))
    latched = histories.event(ApplicationLatched(reason="night"), run=None)
    assert "LATCHED" in refused(running(DESCRIBED, latched), request())


def test_one_command_at_a_time_for_a_stage() -> None:
    (issued,) = decide(request(), running(), now=NOON)
    known = running(DESCRIBED, histories.event(issued, run=None, instance=None))
    again = replace(request(answer="FAIL"), command=UUID(int=2))
    assert "already in progress for this stage" in refused(known, again)
    assert len(decide(replace(again, stage="source"), known, now=NOON)) == 1
    assert known.commands[ID].expires_at == NOON + COMMAND_EXPIRY


@pytest.mark.parametrize(
    "requested",
    [request(reason=" "), request(pipeline=None), request(stage=""), request(stage="\ud800")],
    ids=["no reason", "no pipeline", "no stage", "no text"],
)
def test_an_invalid_request_is_not_logged(requested: CommandRequest) -> None:
    with pytest.raises(InvalidValue):
        decide(requested, running(), now=NOON)


def commanded(known: StreamState) -> tuple[StageCommanded, ...]:
    (thread,) = known.threads.values()
    return () if thread.policy is None else thread.policy.commanded


def test_the_thread_has_the_override_with_actor_and_time() -> None:
    override = StageCommanded(
        name="process:check",
        answer="CONTINUE",
        actor="ana",
        reason="because",
        since=NOON + timedelta(minutes=5),
    )
    known = running(DESCRIBED, changed())
    assert commanded(known) == (override,)
    (thread,) = known.threads.values()
    assert thread.since == NOON
    assert [each.answer for each in commanded(running(DESCRIBED, changed(), changed("FAIL")))] == [
        "FAIL"
    ]
    assert commanded(running(DESCRIBED, changed(), changed(None))) == ()
    assert commanded(running(None, changed())) == ()


def test_a_new_run_reports_its_overrides() -> None:
    later = Run(pipeline="delays", checkpoint="cp-1", epoch=2)
    begun = [
        histories.event(ThreadStarted(), run=later),
        histories.event(DESCRIBED, run=later),
    ]
    assert commanded(running(DESCRIBED, changed(), *begun)) == ()
    late = changed()
    assert commanded(running(DESCRIBED, *begun, late)) == ()
    keeps = replace(
        DESCRIBED, commanded=(StageCommanded(name="process:check", answer="PAUSE", since=NOON),)
    )
    kept = [begun[0], histories.event(keeps, run=later)]
    assert commanded(running(DESCRIBED, changed(), *kept)) == keeps.commanded
