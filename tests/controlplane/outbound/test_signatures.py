"""The server signs what it sends to agents, and replaces what others have written."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from msgspec.structs import replace
from redis import Redis

from arrester.agents.transport.redis_client import RedisClient
from arrester.agents.transport.server_keys import ServerKeys
from arrester.controlplane import actions, signing
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.outbound import command_outbox
from arrester.controlplane.redis import redis_client
from arrester.domain.events import CommandKind
from arrester.domain.identity import redis_keys
from arrester.domain.wire import codec, command_codec
from arrester.domain.wire.signed_messages import parse_keys
from tests import histories
from tests.controlplane import streams
from tests.controlplane.streams import SPOOL
from tests.histories import APPLICATION, INSTANCE

pytestmark = pytest.mark.usefixtures("fresh_database")
COMMANDS = redis_keys.commands(APPLICATION)


@pytest.fixture
def agent(redis: Redis) -> RedisClient:
    """Return the connection of an agent with the server's key."""
    keys = ServerKeys(parse_keys(signing.public_key()), application=APPLICATION)
    url = settings.REDIS_URL
    return RedisClient(url, application=APPLICATION, instance=INSTANCE, keys=keys)


@pytest.fixture
def shut_down(redis: Redis) -> Redis:
    """Return a Redis with the state LATCHED, and a command for an instance."""
    actions.open_application(APPLICATION, actor="ana")
    streams.send(redis, [replace(histories.started()[0], instance=INSTANCE)])
    fold_stream.fold_stream(APPLICATION)
    actions.shut_down_application(APPLICATION, actor="ana", reason="because")
    return redis


def test_an_agent_accepts_a_command_and_the_state(shut_down: Redis, agent: RedisClient) -> None:
    [(_, body, authentic)] = agent.commands(after="0")
    assert authentic
    assert command_codec.decode_command(body).kind is CommandKind.SHUT_DOWN_APPLICATION
    assert agent.is_latched()
    assert agent.latched_by() == "ana (because)"


def test_a_forged_entry_with_the_id_of_an_open_command_is_replaced(
    shut_down: Redis, agent: RedisClient
) -> None:
    [(_, genuine)] = redis_client.entries(shut_down, COMMANDS)
    shut_down.delete(COMMANDS)
    for change in ({b"body": b"{}"}, {b"signature": b""}, {b"more": b""}, {b"command": b"\xff"}):
        forged: dict[Any, Any] = {**genuine, **change}
        shut_down.xadd(COMMANDS, forged)
    command_outbox.relay(APPLICATION)
    assert [fields for _, fields in redis_client.entries(shut_down, COMMANDS)] == [genuine]
    assert [entry.authentic for entry in agent.commands(after="0")] == [True]


def test_a_forged_state_is_replaced(shut_down: Redis, agent: RedisClient) -> None:
    signed = redis_keys.signed_state(APPLICATION)
    shut_down.mset({redis_keys.state(APPLICATION): "OPEN", signed: "OPEN"})
    command_outbox.relay(APPLICATION)
    assert shut_down.get(redis_keys.state(APPLICATION)) == b"LATCHED"
    assert agent.is_latched()


def test_a_confirmation_is_signed_for_senders_that_require_it(
    redis: Redis, agent: RedisClient
) -> None:
    plain = streams.send(redis, histories.started())
    packed = codec.encode_batch(histories.started())
    batches = [uuid4(), uuid4()]
    for batch in batches:
        streams.put(redis, streams.fields(batch, packed) | {"confirmation": "signed"})
    fold_stream.fold_stream(APPLICATION)
    [record] = agent.signed_confirmations(SPOOL)
    assert agent.keys is not None
    assert agent.keys.confirmed(SPOOL, record) == batches
    assert streams.confirmed(redis) == {plain, *batches}
    assert redis.ttl(redis_keys.signed_confirmations(APPLICATION, SPOOL)) > 24 * 3600
