"""Agents and server of different versions: an older agent, and what an older server stored.

`tests/data/0.2.0/README.md` has how the samples were made.
"""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.agents.transport.spool_ownership import open_spool
from arrester.controlplane import actions, embedded, queries
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.redis import redis_client
from arrester.domain.commands.request import CommandRequest
from arrester.domain.events import CommandKind, Rollout
from arrester.domain.identity import redis_keys
from arrester.domain.wire import received_batch
from tests import histories
from tests.agents.sample_events import NOW
from tests.controlplane import streams
from tests.upgrade.sample import APPLICATION
from tests.upgrade.test_samples import VERSIONS, each_version, restore

#: What agents of 0.2.0 read of a command; another field would make it unreadable for them.
FIELDS = {
    *("type", "command", "kind", "actor", "reason", "pipeline", "checkpoint", "task", "position"),
    *("target", "stage", "answer", "error", "instances", "expires_at"),
}
#: The commands that 0.2.0 has, and what they are for.
REQUESTS: dict[CommandKind, dict[str, Any]] = {
    CommandKind.RESUME_TASK: {"task": histories.JFK},
    CommandKind.SKIP_RECORD: {"task": histories.JFK},
    CommandKind.RESUME_AT: {"task": histories.JFK, "target": 8},
    CommandKind.PAUSE_TASK: {
        "task": replace(histories.JFK, key="LGA"),
        "duration": timedelta(hours=1),
    },
    CommandKind.SET_POLICY: {"pipeline": "delays", "stage": "produce", "answer": "PAUSE"},
    CommandKind.SHUT_DOWN_APPLICATION: {},
}


@each_version
def test_the_batches_of_an_older_agent_are_folded(
    version: Path, tmp_path: Path, redis: Redis, fresh_database: embedded.Urls
) -> None:
    shutil.copytree(version / "spool", tmp_path / "spool")
    own = open_spool(tmp_path / "spool", APPLICATION, limit_bytes=2**30, now=NOW)
    own.spool.mark_lost()
    batches = own.spool.unsent(most=10, most_bytes=2**30)
    for batch in batches:
        streams.put(redis, streams.fields(batch.id, batch.events))
    own.close()

    fold_stream.fold_stream(APPLICATION)

    assert batches and streams.confirmed(redis) == {batch.id for batch in batches}
    assert not queries.quarantine(APPLICATION).rows
    sent = sum(len(received_batch.decode_batch(batch.events)) for batch in batches)
    assert len(streams.log()) == sent > 0
    streams.assert_exact()


def test_events_of_newer_agents_wait_for_the_upgrade_of_an_older_server(
    redis: Redis, fresh_database: embedded.Urls
) -> None:
    [version] = [each for each in VERSIONS if each.name == "0.2.0"]
    restore(version / "newer-agents", fresh_database)
    before = len(streams.log())
    waiting = queries.lag(APPLICATION).quarantined
    reasons = " ".join(each.reason for each in queries.quarantine(APPLICATION).rows)
    assert "unknown field `inner_class`" in reasons and "'FlowMeasured'" in reasons

    assert actions.requeue(APPLICATION, actor="ana") == actions.Requeued(
        requeued=waiting, invalid=0
    )

    log = streams.log()
    assert len(log) == before + waiting + 1
    assert {"FlowMeasured", "PipelinePaused", "RecordsRedriven"} <= {
        each.event.type for each in log
    }
    streams.assert_exact()


@pytest.mark.parametrize("kind", REQUESTS)
def test_an_older_agent_receives_no_field_that_it_does_not_know(
    kind: CommandKind, redis: Redis, fresh_database: embedded.Urls
) -> None:
    policy = histories.event(histories.POLICY)
    streams.send(redis, [*histories.started(), policy, *histories.paused()])
    fold_stream.fold_stream(APPLICATION)

    requested = CommandRequest(
        command=uuid4(), kind=kind, actor="ana", reason="a test", **REQUESTS[kind]
    )
    actions.issue_command(APPLICATION, requested)

    assert received(redis) == [(kind, set())]


def test_an_older_agent_receives_the_commands_of_a_rollout(
    redis: Redis, fresh_database: embedded.Urls
) -> None:
    streams.send(redis, [*histories.started(), *histories.paused()])
    fold_stream.fold_stream(APPLICATION)

    requested = CommandRequest(
        command=uuid4(),
        kind=CommandKind.RESUME_TASKS,
        actor="ana",
        reason="a test",
        rollout=Rollout(tasks=0),
    )
    actions.start_rollout(APPLICATION, requested)

    assert received(redis) == [(CommandKind.RESUME_TASK, set())]


def received(redis: Redis) -> list[tuple[str, set[str]]]:
    """Return the kinds of the commands in Redis, each with the fields that 0.2.0 does not know."""
    entries = redis_client.entries(redis, redis_keys.commands(APPLICATION))
    commands = [json.loads(fields[b"body"]) for _, fields in entries]
    return [(command["kind"], set(command) - FIELDS) for command in commands]
