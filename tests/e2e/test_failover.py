"""PostgreSQL and Redis fail over while events come: nothing is counted twice, and what is lost is
known."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection, connections
from pytest_django.plugin import DjangoDbBlocker
from redis import Redis

from arrester.agents.transport.redis_client import RedisClient
from arrester.agents.transport.spool import SpooledBatch
from arrester.controlplane import actions, embedded, models, signing
from arrester.controlplane.queries.operation.installation import redis_checks
from arrester.controlplane.redis import redis_client
from arrester.controlplane.settings import database_settings
from arrester.domain.errors import RedisUnavailable
from arrester.domain.events import RecordFailed
from arrester.domain.identity import redis_keys
from tests import postgres_pair, redis_sentinels
from tests.chaos.redis_proxy import RedisProxy
from tests.controlplane import streams
from tests.dashboard.accounts import make_user, token
from tests.e2e.stack import Stack, eventually
from tests.histories import APPLICATION, INSTANCE
from tests.ports import free_port
from tests.simulated_agent import SimulatedAgent

pytestmark = [pytest.mark.e2e, pytest.mark.chaos, pytest.mark.timeout(1800)]
long = pytest.mark.long
APPLICATIONS = ("flights", "trains")
PAUSED = "T000"
OPERATOR = "ana"


class Feed:
    """Agents that report failures all the time, until they are stopped."""

    def __init__(self, agents: list[SimulatedAgent]) -> None:
        self.agents = agents
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        for agent in self.agents:
            agent.start()
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def close(self) -> None:
        self._ended.set()
        for agent in self.agents:
            agent.close()

    def _run(self) -> None:
        while not self._ended.wait(0.02):
            for agent in self.agents:
                agent.fail(3)

    def has_sent(self, more: int) -> bool:
        """Wait for so many more failures of each agent."""
        goal = [len(agent.failed) + more for agent in self.agents]
        eventually(
            lambda: all(len(a.failed) >= n for a, n in zip(self.agents, goal, strict=True)),
            what="more failures",
        )
        return True

    def is_confirmed(self) -> bool:
        """Whether no batch waits in a spool."""
        return all(not agent.connection.spool.events for agent in self.agents)


@contextmanager
def fed(stack: Stack, urls: dict[str, str]) -> Iterator[Feed]:
    """Run web, wake, a worker, and agents with a paused task each."""
    with ExitStack() as closed:
        closed.callback(stack.stop)
        stack.start()
        agents = [
            SimulatedAgent(
                name,
                redis_url=url,
                server_key=signing.public_key(),
                spool=stack.folder / "spool",
            )
            for name, url in urls.items()
        ]
        feed = Feed(agents)
        closed.callback(feed.close)
        feed.start()
        for agent in agents:
            agent.pause(PAUSED)
        feed.has_sent(200)
        eventually(lambda: paused(stack) == [*APPLICATIONS], what="the tasks are PAUSED")
        yield feed


def paused(stack: Stack) -> list[str]:
    rows = stack.all_of("/api/v1/tasks")
    return sorted(row["application"] for row in rows if row["status"] == "PAUSED")


def check_commands(stack: Stack, feed: Feed) -> None:
    """Resume the paused tasks: the commands reach the agents, and their answers the log."""
    for row in stack.all_of("/api/v1/tasks"):
        if row["status"] == "PAUSED":
            about = {"kind": "RESUME_TASK", "task": row["id"], "reason": "repaired"}
            assert stack.command(**about)["status"] == "APPLIED"
    assert [len({*agent.received}) for agent in feed.agents] == [1, 1]


def logged(agent: SimulatedAgent) -> list[int]:
    """Return the positions of the failed records in the log, in its order."""
    log = (each.event.data for each in streams.log(agent.application))
    return [each.position or 0 for each in log if isinstance(each, RecordFailed)]


@pytest.fixture
def pair(
    services: embedded.Urls,
    redis: Redis,
    django_db_blocker: DjangoDbBlocker,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[postgres_pair.Pair]:
    """Run a PostgreSQL with a standby, and use it in this process and its children."""
    with postgres_pair.running() as pair:
        url = pair.url("app")
        monkeypatch.setenv("DATABASE_URL", url)
        monkeypatch.setattr(settings, "DATABASE_URL", url)
        ours = connections["default"]
        ours.close()
        found = database_settings("DATABASE_URL", url) | {"CONN_MAX_AGE": 0}
        monkeypatch.setattr(ours, "settings_dict", ours.settings_dict | found)
        with django_db_blocker.unblock():
            yield pair
            connection.close()


@long
def test_a_promoted_standby_continues_without_a_lost_or_doubled_event(
    pair: postgres_pair.Pair, tmp_path: Path
) -> None:
    pair.wait_for_standby()
    make_user(OPERATOR, "operator")
    stack = Stack(folder=tmp_path, token=token(OPERATOR))
    with fed(stack, dict.fromkeys(APPLICATIONS, settings.REDIS_URL)) as feed:
        pair.fail_over()
        connection.close()
        feed.has_sent(200)
        check_commands(stack, feed)
        feed.stop()
        eventually(feed.is_confirmed, what="all batches are confirmed")
    for agent in feed.agents:
        assert logged(agent) == agent.failed
        streams.assert_exact(agent.application)
    assert not models.LogGap.objects.exists()


@long
def test_what_an_asynchronous_standby_has_not_received_is_lost_and_reported(
    pair: postgres_pair.Pair, tmp_path: Path
) -> None:
    make_user(OPERATOR, "operator")
    stack = Stack(folder=tmp_path, token=token(OPERATOR))
    with fed(stack, dict.fromkeys(APPLICATIONS, settings.REDIS_URL)) as feed:
        feed.stop()
        eventually(feed.is_confirmed, what="all batches are confirmed")
        pair.disconnect_standby()
        before = [list(agent.failed) for agent in feed.agents]
        for agent in feed.agents:
            agent.fail(10)
        eventually(feed.is_confirmed, what="the agents delete what the standby lacks")
        pair.fail_over()
        connection.close()
        for agent in feed.agents:
            agent.fail(5)
        eventually(lambda: models.LogGap.objects.count() == 2, what="the gap is noticed")
        eventually(feed.is_confirmed, what="later events are folded")
    for agent, kept in zip(feed.agents, before, strict=True):
        assert logged(agent) == [*kept, *agent.failed[-5:]]
        streams.assert_exact(agent.application)
        gap = models.LogGap.objects.get(application=agent.application)
        assert gap.last - gap.first + 1 == 10


@pytest.fixture
def sentinels(monkeypatch: pytest.MonkeyPatch) -> Iterator[redis_sentinels.Sentinels]:
    """Run a Redis with a replica and Sentinels, and use its endpoint."""
    with redis_sentinels.running() as found:
        for name in ("REDIS_URL", "BROKER_URL"):
            monkeypatch.setattr(settings, name, found.url)
        monkeypatch.setenv("REDIS_URL", found.url)
        yield found


@long
def test_agents_and_server_follow_a_promoted_replica_of_redis(
    fresh_database: embedded.Urls, sentinels: redis_sentinels.Sentinels, tmp_path: Path
) -> None:
    make_user(OPERATOR, "operator")
    stack = Stack(folder=tmp_path, token=token(OPERATOR))
    # The users of agents are not replicated: the server makes them again.
    urls = {
        name: actions.add_agent_credential(name, actor=OPERATOR).redis_url for name in APPLICATIONS
    }
    with fed(stack, urls) as feed:
        sentinels.disconnect_replica()
        # Sent, folded, confirmed, and unknown to the replica.
        confirmed = [each.connection.metrics()["batches-confirmed"] for each in feed.agents]
        eventually(
            lambda: all(
                each.connection.metrics()["batches-confirmed"] > before + 20
                for each, before in zip(feed.agents, confirmed, strict=True)
            ),
            what="more is confirmed",
        )
        sentinels.fail_over()
        feed.has_sent(200)
        check_commands(stack, feed)
        feed.stop()
        eventually(feed.is_confirmed, what="all batches are confirmed")
        with sentinels.client(1) as redis:
            lengths = [redis.xlen(redis_keys.events(each)) for each in APPLICATIONS]
        assert lengths == [0, 0]
    for agent in feed.agents:
        assert logged(agent) == agent.failed
        streams.assert_exact(agent.application)


def test_a_connection_to_a_former_master_is_replaced(tmp_path: Path) -> None:
    """An endpoint that leads to another server closes no connection of itself."""
    with ExitStack() as stopped:
        first, second = ports = free_port(), free_port()
        for port in ports:
            redis_sentinels.started(tmp_path, port, redis_sentinels.LOGIN, stopped)
        endpoint = RedisProxy(("127.0.0.1", first))
        stopped.callback(endpoint.close)
        url = redis_sentinels.url_of(endpoint.port)
        agent = RedisClient(url, application=APPLICATION, instance=INSTANCE)
        stopped.callback(agent.close)
        server = redis_client._client(url)
        stopped.callback(server.close)
        batch = SpooledBatch(number=1, id=INSTANCE, events=b"events")
        agent.append(INSTANCE, [batch], last=None)
        server.set("key", "before")
        with Redis.from_url(redis_sentinels.url_of(first)) as former:
            former.replicaof("127.0.0.1", second)
        endpoint.target = ("127.0.0.1", second)
        server.set("key", "after")
        with pytest.raises(RedisUnavailable, match="read only replica"):
            agent.append(INSTANCE, [batch], last=None)
        agent.append(INSTANCE, [batch], last=None)
        with Redis.from_url(redis_sentinels.url_of(second)) as present:
            assert present.get("key") == b"after"
            assert present.xlen(redis_keys.events(APPLICATION)) == 1


def test_redis_cluster_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stopped:
        port = free_port()
        lines = [*redis_sentinels.LOGIN, "cluster-enabled yes"]
        redis_sentinels.started(tmp_path, port, lines, stopped)
        monkeypatch.setattr(settings, "REDIS_URL", redis_sentinels.url_of(port))
        stopped.callback(redis_client.client().close)
        [finding] = redis_checks.version()
    assert (finding.level, finding.check) == ("error", "redis version")
    assert finding.value.endswith(", Redis Cluster")
