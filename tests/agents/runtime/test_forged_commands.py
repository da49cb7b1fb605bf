"""Attacks on the commands and the state of an application whose agent has the server's key."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from arrester.agents.runtime.instance import Ending
from arrester.agents.runtime.runtime import Runtime
from arrester.controlplane import signing
from arrester.domain.events import (
    CommandApplied,
    CommandKind,
    CommandRefused,
)
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import InstanceStatus
from arrester.domain.wire import command_codec
from tests.agents.redis_server import FoldingSide, Server
from tests.agents.runtime.test_command_dispatch import Operator, begin, connected
from tests.patience import PATIENCE_SECONDS

encode = command_codec.encode_command


@pytest.fixture
def operator(redis_server: Server, folding: FoldingSide) -> Operator:
    return Operator(redis_server, folding)


@pytest.fixture
def runtime(redis_server: Server, tmp_path: Path) -> Iterator[Runtime]:
    runtime = connected(redis_server, tmp_path, key=signing.public_key())
    yield runtime
    runtime.end(Ending.STOPPED, "the test is over")


def test_forged_shutdowns_change_nothing(
    runtime: Runtime, operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    thread = begin(runtime)
    genuine = operator.requested()
    kind = CommandKind.SHUT_DOWN_APPLICATION
    forged = encode(replace(genuine, kind=kind, actor="admin", instances=(runtime.id,)))
    signatures = {
        "unsigned": b"",
        "signed by another": bytes(64),
        "of another application": signing.sign_command("trains", forged),
        "altered": signing.sign_command("flights", encode(genuine)),
    }
    for signature in signatures.values():
        operator.put(forged, signature=signature)
    operator.answered(genuine)
    operator.answered(operator.requested(task="EWR"))
    assert runtime.instance.status is InstanceStatus.RUNNING
    assert thread.alive
    assert len(thread.resumes) == 2
    assert runtime.metrics()["commands-malformed"] == len(signatures)
    assert "is invalid: it has no valid signature of the server" in caplog.text


def test_a_replay_of_an_applied_or_an_expired_command_changes_nothing(
    runtime: Runtime, operator: Operator
) -> None:
    thread = begin(runtime)
    applied = operator.requested()
    assert isinstance(operator.answered(applied)[1], CommandApplied)
    operator.relay(applied)
    expired = operator.requested(CommandKind.SKIP_RECORD, expires_in=-timedelta(hours=1))
    assert operator.answered(expired)[1] == CommandRefused(
        command=expired.command, reason="expired before it was fetched"
    )
    operator.answered(operator.requested(task="EWR"))
    assert len(thread.resumes) == 2
    assert len(operator.answers(applied)) == 2


def test_a_shutdown_that_the_server_signed_ends_the_instance(
    runtime: Runtime, operator: Operator
) -> None:
    begin(runtime)
    operator.requested(CommandKind.SHUT_DOWN_APPLICATION, to=runtime)
    assert runtime.termination.wait(PATIENCE_SECONDS) is Ending.SHUT_DOWN


def test_a_forged_latched_state_does_not_keep_an_instance_from_starting(
    runtime: Runtime, redis_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    redis_server.client.set(redis_keys.state("flights"), "LATCHED")
    assert begin(runtime).alive
    assert runtime.metrics()["signatures-refused"] == 1
    assert "its state in Redis has no valid signature of the server" in caplog.text
