"""The command outbox: publish the application's state and open commands from PostgreSQL to Redis.

It writes what Redis lacks, for any reason, and deletes closed commands. It may run at any time and
any number of times.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import OperationalError
from msgspec import UNSET

from arrester.controlplane import signing
from arrester.controlplane.redis import redis_client
from arrester.controlplane.views import redrive_progress, row_mapping
from arrester.domain.commands.kinds import IN_PARTS
from arrester.domain.events import CommandIssued
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import ApplicationStatus, CommandState, if_set
from arrester.domain.wire import command_codec

log = logging.getLogger(__name__)
#: More rounds with a change mean that another program writes into the stream of commands.
ROUNDS = 10


def relay(application: str) -> None:
    """Make Redis contain the application's state and exactly its open commands."""
    redis = redis_client.client()
    _relay_state(redis, application)
    # Once more after a change: a command may have been closed meanwhile. The sweep goes on later.
    for _ in range(ROUNDS):
        if not _relay_commands(redis, application):
            break


def try_relay(application: str) -> None:
    """Relay now if Redis and PostgreSQL answer; else the sweep does it later."""
    try:
        relay(application)
    except (redis_client.RedisError, OperationalError) as exc:
        log.warning("%s: commands wait for the sweep: %s", application, exc)


def _relay_state(redis: redis_client.Redis, application: str) -> None:
    """Publish the state, signed with the present time: agents refuse an old one."""
    # The time is read before the state, so that a later time has no earlier state.
    seconds, microseconds = redis.time()
    at = datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)
    for state in row_mapping.APPLICATIONS.load("name = %s", [application]):
        by = ""
        if state.status is ApplicationStatus.LATCHED and state.actor is not None:
            by = f"{state.actor} ({state.reason})" if state.reason else state.actor
        signed = signing.sign_state(application, state.status, at=at, by=by)
        redis.mset(
            {
                redis_keys.state(application): state.status.value,
                redis_keys.signed_state(application): signed,
            }
        )


def _relay_commands(redis: redis_client.Redis, application: str) -> bool:
    """Add missing commands, delete all other entries; return whether anything changed.

    An entry that differs from the command with its id is forged, or of another version.
    """
    stream = redis_keys.commands(application)
    missing = {str(each.id): _entry(application, each) for each in _open_commands(application)}
    wrong = []
    for id, fields in redis_client.entries(redis, stream):
        command = fields.get(b"command", b"").decode(errors="replace")
        if fields == missing.get(command):
            del missing[command]
        else:
            wrong.append(id)
    for entry in missing.values():
        redis.xadd(stream, entry)
    if wrong:
        redis.xdel(stream, *wrong)
    return bool(missing or wrong)


def _entry(application: str, command: CommandState) -> dict[Any, Any]:
    """Return a command as an entry of the stream. Agents of 0.2.0 read its body only."""
    body = command_codec.encode_command(_as_received(command))
    signature = signing.sign_command(application, body)
    return {b"command": str(command.id).encode(), b"body": body, b"signature": signature}


def _open_commands(application: str) -> Sequence[CommandState]:
    """Return the commands for agents.

    The server alone carries out a rollout or redrive. Commands of one that has ended may have no
    dead letters any more: they expire.
    """
    commands = row_mapping.COMMANDS.load(
        "application = %s AND open AND kind <> ALL(%s)", [application, list(IN_PARTS)]
    )
    return sorted(commands, key=lambda each: (each.issued_at, str(each.id)))


def _as_received(state: CommandState) -> CommandIssued:
    """Return the command as it was issued, with its dead letters."""
    return CommandIssued(
        command=state.id,
        kind=state.kind,
        actor=state.actor,
        reason=state.reason,
        pipeline=state.pipeline if state.task is None else state.task.pipeline,
        checkpoint=if_set(state.checkpoint) if state.task is None else state.task.checkpoint,
        task=None if state.task is None else state.task.key,
        position=state.position,
        target=state.target,
        patch=if_set(state.patch),
        stage=state.stage,
        answer=state.answer,
        # The server ends the pause of a task; older agents do not know the field.
        until=if_set(state.until) if state.task is None else None,
        error=state.error,
        force=bool(state.force),
        slice=if_set(state.slice),
        dead_letters=redrive_progress.chosen(state),
        part_of=None if state.slice is UNSET else if_set(state.part_of),
        instances=tuple(part.instance for part in state.deliveries),
        expires_at=state.expires_at,
    )
