"""Several processes of each kind on one PostgreSQL and one Redis, one of each kind killed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from redis import Redis

from arrester.controlplane import embedded, models, signing, store
from arrester.controlplane.alerts import configuration, subscriptions
from arrester.controlplane.alerts.subscriptions import SubscriptionForm
from arrester.controlplane.celery_workers import FOLDS, HOUSEKEEPING, WORKER_OPTIONS
from arrester.domain.events import CommandApplied, RecordFailed
from arrester.domain.identity import redis_keys
from tests.controlplane import streams
from tests.controlplane.alerts.receivers import Receiver, http_receiver
from tests.dashboard.accounts import token
from tests.e2e.stack import Stack, eventually
from tests.ports import free_port
from tests.simulated_agent import SimulatedAgent

pytestmark = [pytest.mark.e2e, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1800)]
APPLICATIONS = [f"application-{number}" for number in range(8)]
PAUSED = "T000"
WEB, WAKE, WORKERS, HOUSEKEEPERS = (
    [f"{name}-{number}" for number in range(most)]
    for name, most in (("web", 2), ("wake", 2), ("worker", 4), ("housekeeper", 2))
)
OPERATOR = "ana"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """Two web, two wake, four workers and two housekeepers, and the agents of many applications."""

    stack: Stack
    ports: tuple[int, int]
    agents: list[SimulatedAgent]

    def start(self) -> None:
        for name, port in zip(WEB, self.ports, strict=True):
            web = ["uvicorn", "arrester.controlplane.web.asgi:application", "--port", str(port)]
            self._run(name, *web, "--lifespan", "off", "--no-access-log")
        for name in WAKE:
            self._run(name, "arrester", "wake")
        for name in WORKERS:
            self._run_worker(name, FOLDS)
        for name in HOUSEKEEPERS:
            self._run_worker(name, HOUSEKEEPING)
        for port in self.ports:
            eventually(lambda port=port: self.through(port).is_ready(), what="web answers")  # type: ignore[misc]  # the type of a default

    def _run_worker(self, name: str, queue: str) -> None:
        celery = ("celery", "-A", "arrester.controlplane", "worker", "--queues", queue)
        self._run(name, *celery, "--concurrency", "1", "--loglevel", "INFO", *WORKER_OPTIONS)

    def _run(self, name: str, *words: str) -> None:
        self.stack.run(name, [sys.executable, "-m", *words])

    def through(self, port: int) -> _Web:
        """Return the REST API of one of the web processes."""
        return _Web(replace(self.stack, port=port))

    def kill_one_of_each(self) -> None:
        for names in (WEB, WAKE, WORKERS, HOUSEKEEPERS):
            self.stack.kill(names[0])

    def fail(self, batches: int) -> None:
        """Report failures of all applications at the same time."""
        for _ in range(batches):
            for agent in self.agents:
                agent.fail(5)

    def is_folded(self, redis: Redis) -> bool:
        """Whether everything is confirmed, and gone from Redis and the spools."""
        return all(
            not agent.connection.spool.events
            and not redis.xlen(redis_keys.events(agent.application))
            for agent in self.agents
        )


@dataclass(frozen=True)
class _Web:
    stack: Stack

    def is_ready(self) -> bool:
        try:
            return bool(self.stack.get("/readyz")["ready"])
        except OSError:
            return False

    @property
    def failed(self) -> dict[str, int]:
        """The failed records by application."""
        rows = self.stack.get("/api/v1/applications")["results"]
        return {row["name"]: row["failed"] for row in rows}

    def resume(self, application: str) -> str:
        """Issue a command to resume the paused task; return its id."""
        tasks = self.stack.all_of("/api/v1/tasks")
        [digest] = [
            each["id"]
            for each in tasks
            if (each["application"], each["status"]) == (application, "PAUSED")
        ]
        request = {"kind": "RESUME_TASK", "task": digest, "reason": "repaired"}
        status, command = self.stack.post("/api/v1/commands", request)
        assert status in (201, 202), command
        return str(command["id"])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def installation(
    fresh_database: embedded.Urls, redis: Redis, tmp_path: Path
) -> Iterator[Installation]:
    user = User.objects.create_user(OPERATOR, password="a password for tests")
    user.groups.add(Group.objects.get_or_create(name="operator")[0])
    stack = Stack(folder=tmp_path, token=token(OPERATOR))
    with ExitStack() as closed:
        closed.callback(stack.stop)
        agents = [
            SimulatedAgent(
                name,
                redis_url=settings.REDIS_URL,
                server_key=signing.public_key(),
                spool=tmp_path / "spool",
            )
            for name in APPLICATIONS
        ]
        for agent in agents:
            closed.callback(agent.close)
        found = Installation(stack=stack, ports=(free_port(), free_port()), agents=agents)
        found.start()
        for agent in agents:
            agent.start()
        yield found


def test_several_processes_of_each_kind_of_which_one_is_killed(
    installation: Installation, redis: Redis, receiver: Receiver
) -> None:
    configuration.add_channel(receiver.url, actor=OPERATOR)
    with http_receiver() as events:
        form = SubscriptionForm(address=events.url, event_types=("RecordFailed",))
        subscriptions.add(form, actor=OPERATOR)
        first, second = map(installation.through, installation.ports)
        installation.fail(20)
        for agent in installation.agents:
            agent.pause(PAUSED)
        eventually(lambda: first.failed == sent(installation), what="all events are folded")
        assert second.failed == first.failed
        eventually(lambda: {*fired(receiver)} == {*APPLICATIONS}, what="all alerts are sent")
        commands = {each: first.resume(each) for each in APPLICATIONS[:4]}

        # Work of each kind is in progress.
        installation.fail(20)
        installation.kill_one_of_each()
        installation.fail(20)
        commands |= {each: second.resume(each) for each in APPLICATIONS[4:]}
        eventually(lambda: second.failed == sent(installation), what="the others fold the rest")
        eventually(lambda: installation.is_folded(redis), what="everything is confirmed")
        for command in commands.values():
            assert second.stack.answer(command)["status"] == "APPLIED"
        eventually(is_indexed, what="the other housekeeper indexes the records")
        eventually(lambda: delivered(events) == positions(installation), what="events delivered")

    for agent in installation.agents:
        check_log(agent, commands[agent.application])
    # One alert of each application, in one message: it is not sent again.
    assert {*fired(receiver).values()} == {1}
    opened = models.Alert.objects.filter(cause="TASKS_PAUSED").values_list("application", flat=True)
    assert sorted(opened) == APPLICATIONS


def sent(installation: Installation) -> dict[str, int]:
    """Return the failed records that the agents have reported."""
    return {agent.application: len(agent.failed) for agent in installation.agents}


def positions(installation: Installation) -> dict[str, list[int]]:
    return {agent.application: agent.failed for agent in installation.agents}


def messages(receiver: Receiver) -> list[dict[str, Any]]:
    """Return the messages in order, each once: one with a known id is a repetition."""
    found: dict[str, dict[str, Any]] = {}
    for each in receiver.requests:
        found.setdefault(each.headers["webhook-id"], json.loads(each.content))
    return [*found.values()]


def fired(receiver: Receiver) -> Counter[str]:
    """Return in how many messages a paused task of each application is."""
    return Counter(
        alert["application"]
        for message in messages(receiver)
        if message["type"] == "alerts.fired"
        for alert in message["data"]["alerts"]
        if alert["cause"] == "TASKS_PAUSED"
    )


def delivered(receiver: Receiver) -> dict[str, list[int]]:
    """Return the positions of the failed records of each application, as they were delivered."""
    found: dict[str, list[int]] = {}
    for message in messages(receiver):
        for each in message["data"]["events"]:
            found.setdefault(each["application"], []).append(each["data"]["position"])
    return found


def is_indexed() -> bool:
    """Whether the index of failed records has come to the end of all logs."""
    return all(
        models.RecordIndex.objects.filter(stream=each.id, position=each.sequence).exists()
        for each in store.all_streams()
    )


def check_log(agent: SimulatedAgent, command: str) -> None:
    """Check that each event and each command is in the log once, and the views follow from it."""
    log = [each.event.data for each in streams.log(agent.application)]
    assert [each.position for each in log if isinstance(each, RecordFailed)] == agent.failed
    applied = [str(each.command) for each in log if isinstance(each, CommandApplied)]
    assert applied == [command]
    assert {str(each) for each in agent.received} == {command}
    streams.assert_exact(agent.application)
