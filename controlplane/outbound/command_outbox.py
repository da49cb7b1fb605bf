"""The command outbox: publish the application's state and open commands from PostgreSQL to Redis.

It writes what Redis lacks, for any reason, and deletes closed commands. It may run at any time and
any number of times.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import OperationalError

from arrester.controlplane import redis_client
from arrester.controlplane.domain.commands.rollout import TASK_KINDS
from arrester.controlplane.domain.events import CommandIssued
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.domain.state.states import CommandState
from arrester.controlplane.domain.wire import command_codec
from arrester.controlplane.views import row_mapping

log = logging.getLogger(__name__)


def relay(application: str) -> None:
    """Make Redis contain the application's state and exactly its open commands."""
    redis = redis_client.client()
    for state in row_mapping.APPLICATIONS.load("name = %s", [application]):
        redis.set(redis_keys.state(application), state.status.value)
    # Once more after a change: a command may have been closed meanwhile.
    while _relay_commands(redis, application):
        pass


def try_relay(application: str) -> None:
    """Relay now if Redis and PostgreSQL answer; else the sweep does it later."""
    try:
        relay(application)
    except (redis_client.RedisError, OperationalError) as exc:
        log.warning("%s: commands wait for the sweep: %s", application, exc)


def _relay_commands(redis: redis_client.Redis, application: str) -> bool:
    """Add missing commands, delete closed ones; return whether anything changed."""
    stream = redis_keys.commands(application)
    published = redis_client.entries(redis, stream)
    open_commands = {str(each.id).encode(): each for each in _open_commands(application)}
    ids = {fields.get(b"command") for _, fields in published}
    missing = [command for id, command in open_commands.items() if id not in ids]
    closed = [entry for entry, fields in published if fields.get(b"command") not in open_commands]
    for command in missing:
        body = command_codec.encode_command(_as_issued(command))
        redis.xadd(stream, {"command": str(command.id), "body": body})
    if closed:
        redis.xdel(stream, *closed)
    return bool(missing or closed)


def _open_commands(application: str) -> Sequence[CommandState]:
    """Return the commands for agents; the server alone advances a rollout."""
    commands = row_mapping.COMMANDS.load(
        "application = %s AND open AND kind <> ALL(%s)", [application, list(TASK_KINDS)]
    )
    return sorted(commands, key=lambda each: (each.issued_at, str(each.id)))


def _as_issued(state: CommandState) -> CommandIssued:
    """Return the command as it was issued."""
    return CommandIssued(
        command=state.id,
        kind=state.kind,
        actor=state.actor,
        reason=state.reason,
        pipeline=state.pipeline if state.task is None else state.task.pipeline,
        checkpoint=None if state.task is None else state.task.checkpoint,
        task=None if state.task is None else state.task.key,
        position=state.position,
        target=state.target,
        stage=state.stage,
        answer=state.answer,
        error=state.error,
        force=bool(state.force),
        instances=tuple(part.instance for part in state.deliveries),
        expires_at=state.expires_at,
    )
