"""A Redis, its replica and three Sentinels, and the stable endpoint that follows the master."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis, RedisError
from redis.sentinel import Sentinel

from arrester.controlplane.embedded import process
from arrester.controlplane.embedded.redis import binary
from tests import scratch
from tests.chaos.redis_proxy import RedisProxy
from tests.patience import wait_until
from tests.ports import free_port

MASTER, PASSWORD = "arrester", "only-for-tests"
LOGIN = [f"requirepass {PASSWORD}", f"masterauth {PASSWORD}", 'save ""']
_SENTINELS, _QUORUM = 3, 2
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Sentinels:
    """The servers; `endpoint` has the port that clients use."""

    endpoint: RedisProxy
    master: subprocess.Popen[bytes]
    ports: tuple[int, int]

    @property
    def url(self) -> str:
        return url_of(self.endpoint.port)

    def client(self, number: int) -> Redis:
        """Return a client of one of the two servers."""
        return Redis.from_url(url_of(self.ports[number]))

    def disconnect_replica(self) -> None:
        """End the replication: later writes are on the master only."""
        with self.client(0) as master, self.client(1) as replica:
            replica.config_set("masterauth", "wrong")
            master.client_kill_filter(_type="replica")
            wait_until(lambda: not master.info("replication")["connected_slaves"])

    def fail_over(self) -> None:
        """Kill the master; return when the endpoint follows the promoted replica."""
        self.master.kill()
        self.master.wait()
        wait_until(lambda: self.endpoint.target == ("127.0.0.1", self.ports[1]))


def url_of(port: int) -> str:
    """Return the URL of the server at a port."""
    return f"redis://:{PASSWORD}@127.0.0.1:{port}/0"


@contextmanager
def running() -> Iterator[Sentinels]:
    """Run the servers until the block ends."""
    with (
        tempfile.TemporaryDirectory(prefix="arrester-redis-", dir=scratch.FOLDER) as folder,
        ExitStack() as stopped,
    ):
        first, second = ports = free_port(), free_port()
        master = started(folder, first, LOGIN, stopped)
        started(folder, second, [*LOGIN, f"replicaof 127.0.0.1 {first}"], stopped)
        with Redis(port=first, password=PASSWORD) as client:
            wait_until(lambda: _is_replicated(client), what="the replica")
        monitor = [
            f"sentinel monitor {MASTER} 127.0.0.1 {first} {_QUORUM}",
            f"sentinel auth-pass {MASTER} {PASSWORD}",
            f"sentinel down-after-milliseconds {MASTER} 1000",
        ]
        places = [("127.0.0.1", free_port()) for _ in range(_SENTINELS)]
        for _, port in places:
            started(folder, port, monitor, stopped, "--sentinel")
        found = Sentinel(places, socket_timeout=1)  # type: ignore[no-untyped-call]
        for each in found.sentinels:
            stopped.callback(each.close)
            wait_until(lambda each=each: _knows_all(each), what="the Sentinels")  # type: ignore[misc]  # the type of a default
        endpoint = RedisProxy(("127.0.0.1", first))
        stopped.callback(endpoint.close)
        ended = threading.Event()
        follower = threading.Thread(target=_follow, args=(endpoint, found, ended))
        follower.start()
        stopped.callback(follower.join)
        stopped.callback(ended.set)
        yield Sentinels(endpoint, master, ports)


def started(
    folder: str | Path, port: int, lines: list[str], stopped: ExitStack, *options: str
) -> subprocess.Popen[bytes]:
    """Start a server with a configuration, until the stack is closed."""
    place = Path(folder) / str(port)
    place.mkdir()
    file = place / "server.conf"
    file.write_text("\n".join([f"port {port}", "bind 127.0.0.1", f"dir {place}", *lines, ""]))
    child = process.start([binary(), file, *options], log=place / "log")
    stopped.callback(child.wait)
    stopped.callback(child.terminate)
    with Redis(port=port, password=None if options else PASSWORD) as client:
        wait_until(lambda: _answers(client), what=f"Redis at {port}")
    return child


def _answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False


def _is_replicated(client: Redis) -> bool:
    replica = client.info("replication").get("slave0")
    return isinstance(replica, dict) and replica["state"] == "online"


def _knows_all(sentinel: Redis) -> bool:
    master: Any = sentinel.sentinel_master(MASTER)
    return (master["num-other-sentinels"], master["num-slaves"]) == (_SENTINELS - 1, 1)


def _follow(endpoint: RedisProxy, found: Sentinel, ended: threading.Event) -> None:
    """Lead new connections to the master, and end those to another server."""
    while not ended.wait(_LOOK_SECONDS):
        with suppress(RedisError):
            place = found.discover_master(MASTER)  # type: ignore[no-untyped-call]
            if place != endpoint.target:
                endpoint.lead_to(place)
