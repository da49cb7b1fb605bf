"""Commands of people: each is logged, and is relayed when Redis is reachable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.core.management import call_command
from msgspec import structs
from redis import Redis

from arrester.controlplane import actions, queries, tasks
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.outbound import command_outbox
from arrester.controlplane.redis import redis_client
from arrester.domain.commands.request import CommandRequest
from arrester.domain.errors import CommandForbidden, InvalidValue, NotFound
from arrester.domain.events import (
    CommandApplied,
    CommandDelivered,
    CommandIssued,
    CommandKind,
    InstanceStopped,
    PolicyChanged,
    ResumeHow,
    StageAnswer,
    TaskResumed,
)
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import (
    ApplicationStatus,
    CommandState,
    CommandStatus,
    InstanceStatus,
    TaskStatus,
)
from arrester.domain.wire import command_codec
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, INSTANCE, JFK

pytestmark = pytest.mark.usefixtures("fresh_database")


@pytest.fixture
def paused(redis: Redis) -> Redis:
    """Return Redis, with a log in which the task JFK is PAUSED."""
    streams.send(redis, [*histories.started(), *histories.paused()])
    fold_stream.fold_stream(APPLICATION)
    return redis


@contextmanager
def unreachable_redis() -> Iterator[None]:
    url = settings.REDIS_URL
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    try:
        yield
    finally:
        settings.REDIS_URL = url


def relayed(redis: Redis) -> list[CommandIssued]:
    """Return the commands that are in Redis for the agents."""
    return [
        command_codec.decode_command(fields[b"body"])
        for _, fields in redis_client.entries(redis, redis_keys.commands(APPLICATION))
    ]


def types() -> list[str]:
    return [each.event.type for each in streams.log()]


def answer(redis: Redis, command: CommandState) -> None:
    """Send the events of an agent that fetches and applies the command."""
    resumed = TaskResumed(task="JFK", how=ResumeHow.SKIP, actor=command.actor)
    streams.send(
        redis,
        [
            histories.event(CommandDelivered(command=command.id), run=None),
            histories.event(resumed, caused_by=command.id),
            histories.event(CommandApplied(command=command.id), run=None, caused_by=command.id),
        ],
    )
    fold_stream.fold_stream(APPLICATION)


def test_a_command_reaches_the_instance_and_its_answer_returns(paused: Redis) -> None:
    issued = actions.skip_record(JFK.digest, actor="ana", reason="known bad row")

    assert issued.status is CommandStatus.ISSUED
    (sent,) = relayed(paused)
    assert (sent.command, sent.kind) == (issued.id, CommandKind.SKIP_RECORD)
    assert (sent.task, sent.position, sent.instances) == ("JFK", 7, (INSTANCE,))
    assert queries.task(JFK.digest).open_command == issued

    answer(paused, issued)

    command = queries.command(issued.id)
    assert command.status is CommandStatus.APPLIED
    assert [part.status for part in command.deliveries] == [CommandStatus.APPLIED]
    assert streams.task(JFK.digest).status is TaskStatus.RUNNING
    assert relayed(paused) == []
    streams.assert_exact()


def test_a_running_task_refuses_to_resume(paused: Redis) -> None:
    answer(paused, actions.resume_task(JFK.digest, actor="ana"))
    before = streams.task(JFK.digest)

    with pytest.raises(CommandForbidden) as refused:
        actions.resume_task(JFK.digest, actor="ben")

    assert str(refused.value) == "only a PAUSED task can resume; delays_JFK is RUNNING"
    assert refused.value.state == TaskStatus.RUNNING
    assert refused.value.sequence == len(streams.log())
    assert types()[-2:] == ["CommandIssued", "CommandRefused"]
    assert streams.task(JFK.digest) == before
    assert relayed(paused) == []


def test_a_repeated_command_id_has_the_same_result_and_changes_nothing(paused: Redis) -> None:
    id = uuid4()
    first = actions.resume_task(JFK.digest, actor="ana", command=id)
    assert actions.resume_task(JFK.digest, actor="ana", command=id) == first
    assert types().count("CommandIssued") == 1

    other = uuid4()
    for _ in range(2):
        with pytest.raises(CommandForbidden, match="already in progress") as refused:
            actions.resume_task(JFK.digest, actor="ben", command=other)
        assert refused.value.pending is not None and refused.value.pending.id == id
    assert types().count("CommandRefused") == 1


def test_a_command_id_is_for_one_command(paused: Redis) -> None:
    id = uuid4()
    actions.resume_task(JFK.digest, actor="ana", command=id)
    with pytest.raises(InvalidValue, match="no other command"):
        actions.shut_down_application(APPLICATION, actor="ana", reason="night", command=id)
    actions.open_application("other", actor="up")
    with pytest.raises(InvalidValue, match="no other command"):
        actions.shut_down_application("other", actor="ana", reason="night", command=id)
    assert types().count("CommandIssued") == 1


def test_an_invalid_request_is_not_logged(paused: Redis) -> None:
    before = types()
    with pytest.raises(InvalidValue, match="needs a reason"):
        actions.skip_record(JFK.digest, actor="ana", reason=" ")
    with pytest.raises(InvalidValue, match="needs a reason"):
        actions.shut_down_application(APPLICATION, actor="ana", reason="")
    for unknown in ("0" * 32, "no digest", ""):
        with pytest.raises(NotFound):
            actions.resume_task(unknown, actor="ana")
    with pytest.raises(NotFound):
        actions.shut_down_application("other", actor="ana", reason="night")
    assert types() == before


def test_a_shutdown_latches_cancels_and_is_applied_when_the_instance_ends(paused: Redis) -> None:
    pending = actions.resume_task(JFK.digest, actor="ana")
    command = actions.shut_down_application(APPLICATION, actor="ben", reason="night")

    assert paused.get(redis_keys.state(APPLICATION)) == b"LATCHED"
    assert queries.command(pending.id).status is CommandStatus.CANCELLED
    assert [each.command for each in relayed(paused)] == [command.id]
    with pytest.raises(CommandForbidden, match="still being shut down by ben"):
        actions.start_application(APPLICATION, actor="ana")

    stopped = InstanceStopped(reason="shut down by ben")
    streams.send(
        paused,
        [
            histories.event(CommandApplied(command=command.id), run=None),
            histories.event(stopped, run=None),
        ],
    )
    fold_stream.fold_stream(APPLICATION)

    assert queries.command(command.id).status is CommandStatus.APPLIED
    (instance,) = queries.instances(APPLICATION, ended=True)
    assert instance.status is InstanceStatus.NOT_RUNNING
    with pytest.raises(CommandForbidden, match="start the application first"):
        actions.resume_task(JFK.digest, actor="ana")
    opened = actions.start_application(APPLICATION, actor="ana")
    assert opened.status is CommandStatus.APPLIED
    assert paused.get(redis_keys.state(APPLICATION)) == b"OPEN"
    streams.assert_exact()


def test_shutdown_without_instances_latches(redis: Redis) -> None:
    actions.open_application(APPLICATION, actor="up")
    command = actions.shut_down_application(APPLICATION, actor="ben", reason="night")
    assert command.status is CommandStatus.APPLIED
    assert queries.application(APPLICATION).state.status is ApplicationStatus.LATCHED


def test_opening_is_idempotent_and_starts_a_latched_application(redis: Redis) -> None:
    for _ in range(2):
        state = actions.open_application(APPLICATION, actor="up", reason="demo")
        assert state.status is ApplicationStatus.OPEN
    assert types() == ["ApplicationOpened"]
    actions.shut_down_application(APPLICATION, actor="ben", reason="night")
    out = StringIO()
    call_command("open", APPLICATION, stdout=out)
    assert out.getvalue() == "flights is OPEN\n"
    with pytest.raises(InvalidValue, match="application"):
        actions.open_application("No Name", actor="up")
    streams.assert_exact()


def test_an_unrelayed_command_is_relayed_by_the_sweep(paused: Redis) -> None:
    with unreachable_redis():
        command = actions.resume_task(JFK.digest, actor="ana")
        assert not queries.health().redis.up
    assert relayed(paused) == []

    tasks.sweep()

    assert [each.command for each in relayed(paused)] == [command.id]


def test_a_lost_command_is_relayed_again(paused: Redis) -> None:
    command = actions.resume_task(JFK.digest, actor="ana")
    paused.flushall()
    for _ in range(2):
        command_outbox.relay(APPLICATION)
    (sent,) = relayed(paused)
    assert sent.command == command.id
    assert (sent.actor, sent.expires_at) == ("ana", command.expires_at)
    assert paused.get(redis_keys.state(APPLICATION)) == b"OPEN"


def test_foreign_entries_of_the_command_stream_are_deleted(paused: Redis) -> None:
    paused.xadd(redis_keys.commands(APPLICATION), {"hello": "world"})
    command_outbox.relay(APPLICATION)
    assert relayed(paused) == []


def test_an_answer_to_an_unknown_command_is_logged(redis: Redis) -> None:
    stray = CommandApplied(command=UUID(int=5))
    streams.send(redis, [histories.event(stray, run=None)])
    fold_stream.fold_stream(APPLICATION)
    assert types() == ["CommandApplied"]
    with pytest.raises(NotFound):
        queries.command(UUID(int=5))
    streams.assert_exact()


def test_texts_with_nul_are_logged_unchanged(paused: Redis) -> None:
    command = actions.skip_record(JFK.digest, actor="a\0na", reason="bad \0 row")
    assert queries.command(command.id).reason == "bad \0 row"
    assert queries.command(command.id).actor == "a\0na"


def test_a_policy_is_relayed_as_requested_and_shown_as_applied(redis: Redis) -> None:
    streams.send(redis, [*histories.started(), histories.event(histories.POLICY)])
    fold_stream.fold_stream(APPLICATION)
    issued = set_policy()
    [command] = relayed(redis)
    assert (command.pipeline, command.checkpoint, command.task) == ("delays", None, None)
    assert (command.stage, command.answer, command.instances) == ("produce", "PAUSE", (INSTANCE,))
    assert issued.task is None
    with pytest.raises(InvalidValue, match="an id that no other command has"):
        set_policy(command=issued.id, answer="FAIL")
    assert set_policy(command=issued.id).id == issued.id
    changed = PolicyChanged(stage="produce", answer="PAUSE", actor="ana", reason="a new table")
    streams.send(
        redis,
        [
            histories.event(CommandDelivered(command=issued.id), run=None),
            histories.event(changed, caused_by=issued.id),
            histories.event(CommandApplied(command=issued.id), caused_by=issued.id),
        ],
    )
    fold_stream.fold_stream(APPLICATION)
    assert queries.command(issued.id).status is CommandStatus.APPLIED
    [policy] = queries.policies(APPLICATION, now=histories.NOON)
    assert policy.thread.policy is not None
    [override] = policy.thread.policy.commanded
    assert (override.name, override.answer, override.actor) == ("produce", "PAUSE", "ana")
    assert relayed(redis) == []
    with pytest.raises(CommandForbidden, match="has no stage process:nope"):
        set_policy(stage="process:nope")
    call_command("rebuild", verify=True, stdout=StringIO())


def test_agents_receive_the_end_of_the_pause_of_a_pipeline_and_not_of_a_task(redis: Redis) -> None:
    streams.send(redis, histories.started())
    fold_stream.fold_stream(APPLICATION)
    of_pipeline = CommandRequest(
        command=uuid4(),
        kind=CommandKind.PAUSE_PIPELINE,
        actor="ana",
        pipeline=JFK.pipeline,
        duration=timedelta(hours=1),
    )
    of_task = structs.replace(
        of_pipeline, command=uuid4(), kind=CommandKind.PAUSE_TASK, task=JFK, pipeline=None
    )
    pauses = [actions.issue_command(APPLICATION, each) for each in (of_pipeline, of_task)]
    assert all(each.paused_until == each.issued_at + timedelta(hours=1) for each in pauses)
    received = {each.kind: each.until for each in relayed(redis)}
    assert received == {
        CommandKind.PAUSE_PIPELINE: pauses[0].paused_until,
        CommandKind.PAUSE_TASK: None,
    }


def set_policy(
    *,
    stage: str = "produce",
    answer: StageAnswer | None = "PAUSE",
    command: UUID | None = None,
) -> CommandState:
    requested = CommandRequest(
        command=command or uuid4(),
        kind=CommandKind.SET_POLICY,
        actor="ana",
        reason="a new table",
        pipeline="delays",
        stage=stage,
        answer=answer,
    )
    return actions.issue_command(APPLICATION, requested)
