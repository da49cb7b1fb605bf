"""Run PostgreSQL and Redis as child processes in a data folder."""

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
    """The running servers, their credentials and URLs."""

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
    report: Callable[[str], None] = lambda line: None,
) -> Iterator[Servers]:
    """Run the servers of the data folder `home` while the block runs, then stop them.

    Raises:
        AlreadyRunning: another process runs them.
        EmbeddedError: a server cannot start.
    """
    folder = Home(home.absolute())
    folder.make()
    with folder.lock(), ExitStack() as stack:
        credentials = folder.make_credentials()
        stack.callback(folder.remove_socket_folder)
        running: list[Postgres | Redis] = []
        if postgres:
            running.append(Postgres(home=folder, credentials=credentials, durable=durable))
        if redis:
            running.append(
                Redis(home=folder, credentials=credentials, durable=durable, report=report)
            )
        for server in running:
            report(f"{server.name} (log: {server.log})")
            stack.callback(server.stop)
            server.start()
        yield Servers(
            home=folder, credentials=credentials, urls=folder.urls(credentials), running=running
        )


def refuse_if_running(home: Path) -> None:
    """Raise AlreadyRunning if another process runs the servers of `home`."""
    folder = Home(home.absolute())
    folder.make()
    with folder.lock():
        pass


def known_urls(home: Path) -> Urls:
    """Return the URLs of the servers of `home`, whether or not they run."""
    folder = Home(home.absolute())
    return folder.urls(folder.known_credentials())


def known_secret_key(home: Path) -> str:
    """Return the secret key of the first start; empty before that."""
    return Home(home.absolute()).known_credentials().secret_key
