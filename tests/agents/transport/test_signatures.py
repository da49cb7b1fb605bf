"""What an agent with the server's key accepts from Redis: states and confirmations."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.conf import settings

from arrester.agents.config import AgentConfig
from arrester.agents.transport import confirmations
from arrester.agents.transport.connection import Connection
from arrester.agents.transport.redis_client import RedisClient
from arrester.agents.transport.sender import Sender
from arrester.agents.transport.server_keys import STATE_VALID, ServerKeys
from arrester.agents.transport.spool import Spool
from arrester.controlplane import signing
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import ApplicationStatus
from arrester.domain.wire.signed_messages import parse_keys
from tests.agents.pipeline_bench import levels_of
from tests.agents.redis_server import FoldingSide, Server
from tests.agents.sample_events import INSTANCE, NOW, batch_id, some_events
from tests.patience import wait_until

LATCHED, OPEN = ApplicationStatus.LATCHED, ApplicationStatus.OPEN
SPOOL = UUID(int=1)
ATTACKED = 100


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool.sqlite", id=SPOOL, limit_bytes=2**30)
    yield spool
    spool.close()


def server_keys(*keys: str) -> ServerKeys:
    return ServerKeys(parse_keys(",".join(keys or [signing.public_key()])), application="flights")


@contextmanager
def sending(spool: Spool, server: Server) -> Iterator[Sender]:
    keys = server_keys()
    transport = RedisClient(server.url, application="flights", instance=INSTANCE, keys=keys)
    sender = Sender(spool, transport, heartbeat=lambda: b"alive")
    sender.start()
    yield sender
    sender.stop(flush_seconds=1)
    transport.close()


def refused(sender: Sender) -> int:
    keys = sender._redis.keys
    assert keys is not None
    return keys.refused


def put(spool: Spool, numbers: range) -> None:
    for number in numbers:
        spool.put(batch_id(number), some_events(number))


def all_sent(spool: Spool) -> bool:
    return not spool.unsent(most=1, most_bytes=1)


def forge(server: Server, *records: bytes) -> None:
    """Confirm all attacked batches, as an attacker who can write the keys of the application."""
    names = [str(batch_id(number)) for number in range(ATTACKED)]
    server.client.sadd(redis_keys.confirmed("flights", SPOOL), *names)
    server.client.sadd(redis_keys.signed_confirmations("flights", SPOOL), *records)


def test_no_event_vanishes_by_forged_confirmations(
    spool: Spool, redis_server: Server, folding: FoldingSide, caplog: pytest.LogCaptureFixture
) -> None:
    put(spool, range(ATTACKED))
    ids = [batch_id(number) for number in range(ATTACKED)]
    genuine = signing.sign_confirmation("flights", SPOOL, ids)
    with sending(spool, redis_server) as sender:
        wait_until(lambda: all_sent(spool))
        # An attacker also removes the entries, so that the server never gets them.
        redis_server.client.delete(redis_keys.events("flights"))
        forge(
            redis_server,
            b"",
            b"signature",
            bytes(64) + genuine[64:],
            genuine[:-1] + b"x",
            signing.sign_confirmation("trains", SPOOL, ids),
            signing.sign_confirmation("flights", UUID(int=2), ids),
        )
        sender._confirmations._next_removal = 0.0
        wait_until(lambda: refused(sender) == ATTACKED + 6)
        assert spool.events == 2 * ATTACKED
        assert not redis_server.client.exists(redis_keys.signed_confirmations("flights", SPOOL))
        sender._next_beat = 0
        spool.wake.set()
        wait_until(lambda: len(folding.entries()) == ATTACKED)
        folding.confirm()
        wait_until(lambda: spool.events == 0)
    assert len(folding.folded) == ATTACKED
    assert levels_of("confirmations have no valid signature", caplog) == ["WARNING"]


def test_a_confirmation_of_a_server_without_signatures_is_repeated_by_one_with_them(
    spool: Spool, redis_server: Server, folding: FoldingSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmations, "REMOVAL_SECONDS", 0.0)
    put(spool, range(3))
    with sending(spool, redis_server) as sender:
        wait_until(lambda: len(folding.entries()) == 3)
        folding.signs = False
        folding.confirm()
        wait_until(lambda: refused(sender) == 3)
        assert spool.events == 6
        folding.signs = True
        sender._next_beat = 0
        spool.wake.set()
        wait_until(lambda: len(folding.entries()) == 3)
        folding.confirm()
        wait_until(lambda: spool.events == 0)
        wait_until(lambda: not redis_server.client.keys("arrester:flights:confirmed:*"))
    assert len(folding.folded) == 3


def signed(status: ApplicationStatus, at: datetime, application: str = "flights") -> bytes:
    return signing.sign_state(application, status, at=at)


def test_only_a_recent_state_that_the_server_signed_can_latch() -> None:
    keys = server_keys()
    genuine = signed(LATCHED, NOW)
    forged = [
        None,
        b"LATCHED",
        genuine.replace(b"LATCHED", b"OPEN"),
        signed(OPEN, NOW).replace(b"OPEN", b"LATCHED"),
        signed(LATCHED, NOW, "trains"),
        signed(LATCHED, NOW - STATE_VALID - timedelta(seconds=1)),
        signed(LATCHED, NOW + STATE_VALID + timedelta(seconds=1)),
    ]
    assert not any(keys.is_latched(b"LATCHED", each, now=NOW) for each in forged)
    assert keys.refused == 1
    assert keys.is_latched(b"OPEN", genuine, now=NOW)


def test_a_replayed_older_state_does_not_replace_the_newest_one() -> None:
    keys, second = server_keys(), timedelta(seconds=1)
    older = {status: signed(status, NOW) for status in (LATCHED, OPEN)}
    assert not keys.is_latched(b"OPEN", signed(OPEN, NOW + second), now=NOW + second)
    assert not keys.is_latched(b"LATCHED", older[LATCHED], now=NOW + second)
    assert keys.is_latched(b"LATCHED", signed(LATCHED, NOW + 2 * second), now=NOW + 2 * second)
    assert keys.is_latched(b"OPEN", older[OPEN], now=NOW + 2 * second)
    # The server is down: a latch ends after an hour.
    assert keys.is_latched(b"LATCHED", None, now=NOW + STATE_VALID)
    assert not keys.is_latched(b"LATCHED", None, now=NOW + STATE_VALID + 3 * second)


def test_states_are_accepted_after_the_clock_of_redis_went_back() -> None:
    keys = server_keys()
    days = timedelta(days=40)
    assert keys.is_latched(b"LATCHED", signed(LATCHED, NOW + days), now=NOW + days)
    assert not keys.is_latched(b"OPEN", signed(OPEN, NOW), now=NOW)


def test_each_of_several_keys_is_accepted_and_the_key_depends_on_the_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "SECRET_KEY", "the secret key of before the rotation")
    before, state = signing.public_key(), signed(LATCHED, NOW)
    monkeypatch.setattr(settings, "SECRET_KEY", "the secret key of after the rotation")
    after = signing.public_key()
    assert before != after
    assert not server_keys(after).is_latched(b"LATCHED", state, now=NOW)
    assert server_keys(after, before).is_latched(b"LATCHED", state, now=NOW)


@pytest.mark.parametrize("key", [True, False])
def test_an_agent_without_the_key_logs_that_it_accepts_everything(
    key: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    environment = {
        "ARRESTER_SPOOL": str(tmp_path),
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "ARRESTER_SERVER_KEY": signing.public_key() if key else "",
    }
    Connection(AgentConfig.read("flights", {}, environment=environment), INSTANCE).close()
    expected = [] if key else ["INFO"]
    assert levels_of("ARRESTER_SERVER_KEY is not set: commands, states", caplog) == expected
