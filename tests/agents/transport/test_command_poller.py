"""What an instance that has just started makes of a LATCHED application."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import pytest

from arrester.agents.transport import command_poller
from arrester.agents.transport.command_poller import Poller
from arrester.agents.transport.messages import CommandEntry
from arrester.agents.transport.redis_client import Transport
from arrester.controlplane.domain.events import CommandIssued, CommandKind
from arrester.controlplane.domain.wire import codec
from tests.agents.redis_server import eventually
from tests.histories import INSTANCE, NOON, OTHER_INSTANCE


class Latched:
    """Stands for a Redis that says LATCHED, and soon after, who is to stop."""

    def __init__(self, *addressed: UUID, latched: bool = True) -> None:
        self.latched = latched
        self.reads: list[float] = []
        self._addressed = addressed

    def is_latched(self) -> bool:
        return self.latched

    def server_time(self) -> datetime:
        return datetime.now(UTC)

    def commands(self, *, after: str, seconds: float) -> list[CommandEntry]:
        self.reads.append(seconds)
        if after == command_poller.FROM_THE_BEGINNING and self._addressed:
            return [CommandEntry(id="1-0", body=codec.encode_command(shutdown(self._addressed)))]
        time.sleep(0.01)
        return []


def shutdown(addressed: tuple[UUID, ...]) -> CommandIssued:
    return CommandIssued(
        command=UUID(int=1),
        kind=CommandKind.SHUT_DOWN_APPLICATION,
        actor="ana",
        reason="because",
        instances=addressed,
        expires_at=NOON,
    )


class Heard:
    """What came out of a poller that has just started."""

    def __init__(self, redis: Latched) -> None:
        self.redis = redis
        self.taken: list[CommandIssued] = []
        self.latched = threading.Event()
        self.poller = Poller(
            cast("Transport", redis),
            instance=INSTANCE,
            take=lambda command, _: self.taken.append(command),
            on_latched=self.latched.set,
        )
        self.poller.start()

    def several_rounds(self) -> None:
        eventually(lambda: len(self.redis.reads) > 5)


@pytest.fixture
def listen() -> Iterator[Callable[..., Heard]]:
    listening: list[Heard] = []

    def begin(*addressed: UUID, latched: bool = True) -> Heard:
        listening.append(Heard(Latched(*addressed, latched=latched)))
        return listening[-1]

    yield begin
    for each in listening:
        each.poller.stop()


def test_an_instance_that_started_into_the_latch_goes_at_once(
    listen: Callable[..., Heard],
) -> None:
    heard = listen()
    assert heard.latched.wait(5)
    assert heard.redis.reads[0] == command_poller.LATCH_MOMENT_SECONDS


def test_a_shutdown_of_others_does_not_keep_it(listen: Callable[..., Heard]) -> None:
    heard = listen(OTHER_INSTANCE)
    assert heard.latched.wait(5)
    assert len(heard.taken) == 1


def test_a_shutdown_that_is_for_it_has_precedence(listen: Callable[..., Heard]) -> None:
    heard = listen(INSTANCE)
    heard.several_rounds()
    assert len(heard.taken) == 1
    assert not heard.latched.is_set()


def test_an_instance_that_ran_before_is_given_time_to_be_told(
    listen: Callable[..., Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_poller, "LATCH_GRACE_SECONDS", 0.2)
    heard = listen(latched=False)
    time.sleep(0.3)
    heard.redis.latched = True
    assert heard.latched.wait(5)
    assert command_poller.LATCH_MOMENT_SECONDS not in heard.redis.reads
