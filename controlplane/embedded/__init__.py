"""PostgreSQL and Redis as child processes in a data folder: real servers, no set-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from arrester.controlplane.embedded.errors import AlreadyRunning, EmbeddedError
from arrester.controlplane.embedded.home import Credentials, Home, Urls
from arrester.controlplane.embedded.postgres import Postgres
from arrester.controlplane.embedded.redis import Redis

__all__ = [
    "AlreadyRunning", "Credentials", "EmbeddedError", "Home", "Servers", "Urls",
    "known_secret_key", "known_urls", "refuse_if_running", "servers",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The servers that run now, and where they answer."""

    home: Home
    credentials: Credentials
    urls: Urls
    running: list[Postgres | Redis]


@contextmanager
def servers(
    home: Path,
    *,
    postgres: bool = True,
    redis: bool = True,
    durable: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Servers]:
    """Run the servers of the data folder `home` while the block runs; stop them cleanly.

    Raise AlreadyRunning when another process runs them, EmbeddedError when one cannot start.
    """
    folder = Home(home.absolute())
    folder.make()
    with folder.lock(), ExitStack() as stack:
        credentials = folder.make_credentials()
        stack.callback(folder.leave)
        wanted: list[Postgres | Redis] = []
        if postgres:
            wanted.append(Postgres(home=folder, credentials=credentials, durable=durable))
        if redis:
            wanted.append(Redis(home=folder, credentials=credentials, durable=durable))
        for server in wanted:
            say(f"{server.name} (log: {server.log})")
            stack.callback(server.stop)
            server.start()
        yield Servers(
            home=folder, credentials=credentials, urls=folder.urls(credentials), running=wanted
        )


def refuse_if_running(home: Path) -> None:
    """Raise AlreadyRunning when a process runs the servers of `home` now."""
    folder = Home(home.absolute())
    folder.make()
    with folder.lock():
        pass


def known_urls(home: Path) -> Urls:
    """Return where the servers of `home` answer when they run; starts nothing."""
    folder = Home(home.absolute())
    return folder.urls(folder.known_credentials())


def known_secret_key(home: Path) -> str:
    """Return the secret key made at the first start; empty before that."""
    return Home(home.absolute()).known_credentials().secret_key
