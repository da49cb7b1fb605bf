"""A PostgreSQL of its own on a TCP port, which JDBC needs; a test may stop and start it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from arrester.controlplane.embedded.home import Credentials, Home, Urls
from arrester.controlplane.embedded.postgres import Postgres
from tests import scratch
from tests.ports import free_port
from tests.services import REPOSITORY

USER = "postgres"


@dataclass(frozen=True, slots=True)
class TcpHome(Home):
    """A data folder whose server has a port."""

    port: int

    def urls(self, credentials: Credentials) -> Urls:
        url = f"postgresql://{USER}:{credentials.postgres}@127.0.0.1:{self.port}/postgres"
        return Urls(database=url, migrate_database=url, admin_database=url, redis="", broker="")


class PostgresServer(Postgres):
    """A server that also listens on a port of 127.0.0.1."""

    home: TcpHome

    def _options(self) -> list[str]:
        port = f"port={self.home.port}"
        return [*super()._options(), "-c", "listen_addresses=127.0.0.1", "-c", port]

    @property
    def url(self) -> str:
        """Return its URL for JDBC."""
        return f"jdbc:postgresql://127.0.0.1:{self.home.port}/postgres"

    @property
    def options(self) -> dict[str, str]:
        """Return the login of a superuser."""
        return {"user": USER, "password": self.credentials.postgres}

    def execute(self, *statements: LiteralString | sql.Composed) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: LiteralString) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(query).fetchall()

    def connect(self) -> psycopg.Connection[Any]:
        url = self.home.urls(self.credentials).admin_database
        return psycopg.connect(url, autocommit=True)


@contextmanager
def running() -> Iterator[PostgresServer]:
    """Run a server until the block ends."""
    with tempfile.TemporaryDirectory(prefix="arrester-postgres-", dir=scratch.FOLDER) as folder:
        Path(folder).chmod(0o711)
        home = TcpHome(Path(folder) / "home", free_port())
        home.make()
        server = PostgresServer(home=home, credentials=home.make_credentials(), durable=False)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            home.remove_socket_folder()


def jdbc_driver() -> list[Path]:
    """Return the archive of the JDBC driver; none if it is not downloaded."""
    return sorted((REPOSITORY / "build/jars/postgresql").glob("*.jar"))
