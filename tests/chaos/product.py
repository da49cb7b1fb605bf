"""`arrester up`, a driver behind a proxy, and an operator, as processes that may be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import psutil

from arrester.controlplane.embedded.home import Home
from tests.chaos import clocks
from tests.chaos.clocks import Clock
from tests.chaos.redis_proxy import RedisProxy
from tests.e2e.stack import Stack, eventually
from tests.ports import free_port

#: The names of the processes of `arrester up`.
PARTS = {
    "web": ("web",),
    "wake": ("wake",),
    "worker": ("worker", "housekeeper"),
    "PostgreSQL": ("postgres",),
    "Redis": ("valkey-server",),
}
_CREDENTIALS = """
from arrester.controlplane import actions
from arrester.controlplane.access.roles import TokenScope
created = actions.create_token("operator", "chaos", actor="operator", scope=TokenScope.OPERATE)
agent = actions.add_agent_credential("chaos", actor="operator")
print(created.text, agent.redis_url)
"""


@dataclass(slots=True)
class Product(Stack):
    """The product in one folder, with a driver."""

    proxy: RedisProxy = field(init=False)
    home: Home = field(init=False)
    #: Whether clocks may be changed: each look at the time then reads a file.
    has_clocks: bool = True
    #: User and password of the agents in Redis.
    login: str = ""

    def start(self) -> None:
        """Start it, and create a token for the operator."""
        self.port, self.home = free_port(), Home(self.folder / "home")
        os.environ |= {"ARRESTER_HOME": str(self.home.path), "ARRESTER_PORT": str(self.port)}
        command = [sys.executable, "manage.py", "up", "--no-demo"]
        self.run("up", command, **self._clock_variables("server"))
        eventually(self._answers, what="the web process answers")
        urls = self.home.urls(self.home.known_credentials())
        os.environ |= {"DATABASE_URL": urls.database, "REDIS_URL": urls.redis}
        printed = self.manage("shell", "-v", "0", "-c", _CREDENTIALS)
        self.token, redis_url = printed.split()[-2:]
        self.login = urlsplit(redis_url).netloc.rpartition("@")[0]
        self.proxy = RedisProxy(str(self.home.sockets / "redis.sock"))

    def start_driver(self, *, hostname: str | None = None) -> subprocess.Popen[bytes]:
        """Start the driver, whose Redis is behind the proxy."""
        url = f"redis://{self.login}@127.0.0.1:{self.proxy.port}/0"
        command = [sys.executable, "-m", "tests.chaos.driver", str(self.folder)]
        return self.run("driver", command, REDIS_URL=url, **self._clock_variables("driver"))

    def clock(self, name: str) -> Clock:
        """Return the clock of the driver, or of the Python processes of the server."""
        return Clock(self.folder / f"{name}.clock")

    def _clock_variables(self, name: str) -> dict[str, str]:
        return self.clock(name).variables() if self.has_clocks else {}

    def stop(self) -> None:
        """End what still runs."""
        Stack.stop(self)
        clocks.clean()

    @property
    def driver_is_running(self) -> bool:
        return "driver" in self._processes and self._processes["driver"].poll() is None

    def processes(self, part: str) -> list[psutil.Process]:
        """Return the processes of a part of `arrester up`, parents first."""
        up = psutil.Process(self._processes["up"].pid)
        return [each for each in up.children(recursive=True) if _name(each) in PARTS[part]]

    def python_workers(self) -> list[psutil.Process]:
        """Return the Python processes of the driver's executor."""
        driver = psutil.Process(self._processes["driver"].pid)
        found = driver.children(recursive=True)
        return [each for each in found if "pyspark.daemon" in _command(each)]

    def signal_driver(self, number: signal.Signals) -> None:
        """Send a signal to the driver with its JVM and Python workers."""
        os.killpg(self._processes["driver"].pid, number)

    @contextmanager
    def suspended(self, part: str) -> Iterator[None]:
        """Suspend a part of the product, or the driver, while the block runs."""
        if part == "driver":
            self.signal_driver(signal.SIGSTOP)
        stopped = [] if part == "driver" else self.processes(part)
        for each in stopped:
            with suppress(psutil.NoSuchProcess):
                each.suspend()
        try:
            yield
        finally:
            if part == "driver":
                self.signal_driver(signal.SIGCONT)
            for each in stopped:
                with suppress(psutil.NoSuchProcess):
                    each.resume()


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
