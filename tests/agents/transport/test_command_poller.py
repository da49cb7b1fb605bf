"""How an instance that has just started reacts to a LATCHED application."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import pytest

from arrester.agents.transport import command_poller
from arrester.agents.transport.command_poller import CommandPoller
from arrester.agents.transport.redis_client import CommandEntry, RedisClient
from arrester.domain.events import CommandIssued, CommandKind
from arrester.domain.wire import command_codec
from tests.histories import INSTANCE, NOON, OTHER_INSTANCE
from tests.patience import PATIENCE_SECONDS, wait_until


class FakeRedis:
    """A Redis whose application is LATCHED, with a shutdown command for some instances."""

    def __init__(
        self, *addressed: UUID, latched: bool = True, ahead: timedelta = timedelta(0)
    ) -> None:
        self.latched = latched
        self.ahead = ahead
        self.reads: list[float] = []
        self._addressed = addressed

    def is_latched(self) -> bool:
        return self.latched

    def server_time(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def commands(self, *, after: str, seconds: float) -> list[CommandEntry]:
        self.reads.append(seconds)
        if after == command_poller.FROM_THE_BEGINNING and self._addressed:
            return [CommandEntry("1-0", command_codec.encode_command(shutdown(self._addressed)))]
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


class Polled:
    """The results of a poller that has just started."""

    def __init__(self, redis: FakeRedis) -> None:
        self.redis = redis
        self.taken: list[CommandIssued] = []
        self.latched = threading.Event()
        self.poller = CommandPoller(
            cast("RedisClient", redis),
            instance=INSTANCE,
            receive=lambda command, _: self.taken.append(command),
            on_latched=self.latched.set,
        )
        self.poller.start()

    def several_rounds(self) -> None:
        wait_until(lambda: len(self.redis.reads) > 5)


@pytest.fixture
def poll() -> Iterator[Callable[..., Polled]]:
    polling: list[Polled] = []

    def begin(*addressed: UUID, latched: bool = True) -> Polled:
        polling.append(Polled(FakeRedis(*addressed, latched=latched)))
        return polling[-1]

    yield begin
    for each in polling:
        each.poller.stop()


def test_an_instance_started_while_latched_stops_at_once(
    poll: Callable[..., Polled],
) -> None:
    polled = poll()
    assert polled.latched.wait(PATIENCE_SECONDS)
    assert polled.redis.reads[0] == command_poller.LATCH_MOMENT_SECONDS


def test_a_shutdown_of_another_instance_does_not_delay_the_stop(
    poll: Callable[..., Polled],
) -> None:
    polled = poll(OTHER_INSTANCE)
    assert polled.latched.wait(PATIENCE_SECONDS)
    assert len(polled.taken) == 1


def test_its_own_shutdown_command_has_precedence(poll: Callable[..., Polled]) -> None:
    polled = poll(INSTANCE)
    polled.several_rounds()
    assert len(polled.taken) == 1
    assert not polled.latched.is_set()


def test_an_instance_that_ran_before_waits_for_a_shutdown_command(
    poll: Callable[..., Polled], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_poller, "LATCH_GRACE_SECONDS", 0.2)
    polled = poll(latched=False)
    time.sleep(0.3)
    polled.redis.latched = True
    assert polled.latched.wait(PATIENCE_SECONDS)
    assert command_poller.LATCH_MOMENT_SECONDS not in polled.redis.reads


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (timedelta(days=-40), ["3456000 s ahead of that of Redis"]),
        (timedelta(days=40), ["3456000 s behind that of Redis"]),
        (timedelta(seconds=1), []),
    ],
)
def test_a_wrong_clock_is_logged_by_the_agent(
    ahead: timedelta, words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    redis = FakeRedis(latched=False, ahead=ahead)
    polled = Polled(redis)
    wait_until(lambda: len(redis.reads) > 3, what="the poller has read some times")
    polled.poller.stop()
    warnings = [each for each in caplog.messages if "clock" in each]
    assert len(warnings) == len(words)
    assert all(word in warning for word, warning in zip(words, warnings, strict=True))
