"""Rollouts, against PostgreSQL and Redis; agents are played by their events."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from io import StringIO
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.db import connection
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, queries
from arrester.controlplane.actions import rollouts
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.redis import redis_client
from arrester.domain.commands.request import CommandRequest
from arrester.domain.commands.rollout import Progress
from arrester.domain.errors import CommandForbidden, InvalidValue
from arrester.domain.events import (
    CommandApplied,
    CommandIssued,
    CommandKind,
    CommandRefused,
    Event,
    ResumeHow,
    Rollout,
    TaskResumed,
)
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import CommandState, CommandStatus
from arrester.domain.wire import command_codec
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE

pytestmark = pytest.mark.usefixtures("fresh_database")
KEYS = [f"K{number:02}" for number in range(30)]
ROLLOUT = Rollout(fingerprint=FAILURE.fingerprint, tasks=0, tasks_per_minute=6_000)


@pytest.fixture
def paused(redis: Redis) -> Redis:
    """Return Redis, with a log in which one error has paused thirty tasks."""
    stops = [
        replace(each, occurred_at=histories.NOON + timedelta(minutes=minute))
        for minute, key in enumerate(KEYS)
        for each in histories.paused(key=key)
    ]
    send(redis, [*histories.started(), *stops])
    return redis


def send(redis: Redis, events: list[Event]) -> None:
    streams.send(redis, events)
    fold_stream.fold_stream(APPLICATION)


def start(
    kind: CommandKind = CommandKind.RESUME_TASKS,
    rollout: Rollout = ROLLOUT,
    *,
    id: UUID | None = None,
    reason: str | None = "a new release",
    patch: str | None = None,
) -> CommandState:
    requested = CommandRequest(
        command=id or uuid4(), kind=kind, actor="ana", reason=reason, rollout=rollout, patch=patch
    )
    return actions.start_rollout(APPLICATION, requested)


def relayed(redis: Redis) -> list[CommandIssued]:
    """Return the commands that are in Redis for the agents."""
    entries = redis_client.entries(redis, redis_keys.commands(APPLICATION))
    return [command_codec.decode_command(fields[b"body"]) for _, fields in entries]


def apply(redis: Redis, *, stop_again: str = "") -> list[str]:
    """Apply all commands in Redis, as an agent does; the task `stop_again` fails again."""
    commands = relayed(redis)
    for command in commands:
        resumed = TaskResumed(task=command.task, how=ResumeHow.RETRY, actor=command.actor)
        done = CommandApplied(command=command.command)
        events = [histories.event(data, caused_by=command.command) for data in (resumed, done)]
        again = histories.paused(key=command.task) if command.task == stop_again else []
        send(redis, [*events, *again])
    return sorted(str(command.task) for command in commands)


def observed(command: CommandState, *, waves: int = 1) -> CommandState:
    """Advance the rollout when the observation of so many waves is over."""
    actions.watch(now=datetime.now(UTC) + waves * timedelta(seconds=31))
    return queries.command(command.id)


def progress(command: CommandState) -> Progress:
    found = queries.progress(queries.command(command.id))
    assert found is not None
    return found


def test_tasks_of_a_cause_are_resumed_in_waves(paused: Redis) -> None:
    command = start()
    assert [each.task for each in relayed(paused)] == ["K00"]
    assert observed(command).status is CommandStatus.ISSUED  # The first task has not answered.
    assert apply(paused) == ["K00"]
    actions.watch()
    assert relayed(paused) == []  # The first wave is observed.
    observed(command)
    assert apply(paused) == ["K01", "K02", "K03"]
    observed(command, waves=2)
    assert apply(paused) == KEYS[4:]
    done = observed(command, waves=3)
    assert (done.status, done.outcome) == (
        CommandStatus.APPLIED,
        "30 of 30 tasks applied the command; none stopped again within 30 s",
    )
    found = progress(command)
    assert (found.issued, found.applied, found.open, found.waiting) == (30, 30, 0, 0)
    issued = queries.commands(APPLICATION, part_of=command.id, limit=500).rows
    assert {each.actor for each in issued} == {"ana"}
    assert {each.reason for each in issued} == {"a new release"}
    [act] = queries.audit(queries.AuditFilter(), limit=50).rows  # One act of one person.
    assert act.event is not None
    assert act.event.event.data == CommandIssued(
        command=command.id,
        kind=CommandKind.RESUME_TASKS,
        actor="ana",
        reason="a new release",
        rollout=replace(ROLLOUT, tasks=30),
        expires_at=command.expires_at,
    )
    streams.assert_exact()
    call_command("rebuild", verify=True, stdout=StringIO())


def test_a_rollout_ends_when_its_cause_recurs(paused: Redis) -> None:
    command = start()
    apply(paused)
    observed(command)
    apply(paused, stop_again="K02")
    stopped = observed(command, waves=2)
    assert (stopped.status, stopped.outcome) == (
        CommandStatus.CANCELLED,
        "1 of 4 tasks stopped again; 26 tasks got no command",
    )
    assert progress(command).stopped_again == 1
    observed(command)
    assert relayed(paused) == []


def test_records_are_skipped_at_once(paused: Redis) -> None:
    with pytest.raises(InvalidValue, match="reason"):
        start(CommandKind.SKIP_RECORDS, reason=None)
    at_once = Rollout(fingerprint=FAILURE.fingerprint, tasks=0, waves=False)
    start(CommandKind.SKIP_RECORDS, at_once)
    kinds = {each.kind for each in relayed(paused)}
    assert (kinds, len(relayed(paused))) == ({CommandKind.SKIP_RECORD}, 30)


def test_each_command_of_a_rollout_has_its_patch(paused: Redis) -> None:
    with pytest.raises(InvalidValue, match="patch"):
        start(CommandKind.EDIT_RECORDS)
    patch = '[{"op":"replace","path":"/dep_delay","value":null}]'
    command = start(CommandKind.EDIT_RECORDS, patch=patch)
    assert command.patch == patch
    [first] = relayed(paused)
    assert (first.kind, first.patch) == (CommandKind.EDIT_RECORD, patch)


def test_a_rollout_whose_commands_are_not_applied_ends(paused: Redis) -> None:
    command = start()
    [first] = relayed(paused)
    refused = CommandRefused(command=first.command, reason="not now")
    send(paused, [histories.event(refused, caused_by=first.command)])
    stopped = observed(command)
    assert (stopped.status, stopped.outcome) == (
        CommandStatus.CANCELLED,
        "1 of 1 task did not apply the command",
    )


def test_a_cancelled_rollout_issues_no_further_command(paused: Redis) -> None:
    command = start()
    actions.cancel_command(command.id, actor="ben")
    assert apply(paused) == ["K00"]  # Already issued.
    assert observed(command).status is CommandStatus.CANCELLED
    assert relayed(paused) == []


def test_a_repeated_request_and_step_change_nothing(paused: Redis) -> None:
    """A worker that is killed repeats its step, maybe beside another worker."""
    id = uuid4()
    command = start(id=id)
    assert start(id=id) == command
    with pytest.raises(CommandForbidden, match="already in progress for these tasks"):
        start()
    with pytest.raises(InvalidValue, match="id that no other command has"):
        start(id=id, rollout=Rollout(fingerprint=None, tasks=0))
    apply(paused)
    later = datetime.now(UTC) + timedelta(seconds=31)

    def step(_: int) -> None:
        try:
            rollouts.advance_rollout(queries.command(id), now=later)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(step, range(4)))
    assert sorted(str(each.task) for each in relayed(paused)) == ["K01", "K02", "K03"]


def test_a_rollout_without_a_task_is_refused(redis: Redis) -> None:
    send(redis, histories.started())
    with pytest.raises(CommandForbidden, match="no stopped task of a live checkpoint"):
        start()


def test_a_dry_run_changes_nothing(paused: Redis) -> None:
    before = len(streams.log())
    requested = CommandRequest(
        command=uuid4(), kind=CommandKind.RESUME_TASKS, actor="ana", rollout=ROLLOUT
    )
    found = actions.dry_run(APPLICATION, requested)
    assert [task.key for task in found.tasks] == KEYS
    assert (found.total, found.refused) == (30, None)
    one = CommandRequest(
        command=uuid4(), kind=CommandKind.RESTART_TASK, actor="ana", task=found.tasks[0]
    )
    refused = actions.dry_run(APPLICATION, one)
    assert refused.refused is not None and "only a DEAD task can be restarted" in refused.refused
    whole = CommandRequest(
        command=uuid4(), kind=CommandKind.SHUT_DOWN_APPLICATION, actor="ana", reason="so it is"
    )
    found = actions.dry_run(APPLICATION, whole)
    assert (found.instances, found.total) == ((histories.INSTANCE,), 30)
    elsewhere = CommandRequest(
        command=uuid4(),
        kind=CommandKind.SHUT_DOWN_INSTANCE,
        actor="ana",
        reason="so it is",
        instance=histories.OTHER_INSTANCE,
    )
    assert actions.dry_run(APPLICATION, elsewhere).total == 0
    assert len(streams.log()) == before
