"""Real PostgreSQL and Redis for a test run, and databases cloned from a migrated template."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from arrester.controlplane import embedded
from tests import scratch

REPOSITORY = Path(__file__).resolve().parent.parent
TEMPLATE = "arrester_template"
DATABASE = "arrester_test"


@contextmanager
def running() -> Iterator[embedded.Urls]:
    """Run both servers in a temporary folder; return the URLs of the test database."""
    with tempfile.TemporaryDirectory(prefix="arrester-tests-", dir=scratch.FOLDER) as folder:
        Path(folder).chmod(0o711)
        with embedded.servers(Path(folder) / "home", durable=False) as servers:
            yield embedded.Urls(
                database=with_name(servers.urls.database, DATABASE),
                migrate_database=with_name(servers.urls.migrate_database, DATABASE),
                admin_database=servers.urls.admin_database,
                redis=servers.urls.redis,
                # As with REDIS_URL only: tests empty and read both in one database.
                broker=servers.urls.redis,
            )


def with_name(url: str, name: str) -> str:
    """Return `url` for another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def make_template(urls: embedded.Urls) -> None:
    """Migrate the template as the owner, in a process of its own, as `up` does it."""
    _execute(urls, "CREATE DATABASE {} OWNER arrester_owner", TEMPLATE)
    owner = with_name(urls.migrate_database, TEMPLATE)
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
        cwd=REPOSITORY,
        env=os.environ | {"DATABASE_URL": owner, "MIGRATE_DATABASE_URL": owner},
        check=True,
    )


def clone(urls: embedded.Urls, name: str = DATABASE, *, source: str = TEMPLATE) -> None:
    """Create database `name` again as a copy of `source`; its connections are closed."""
    # A copy of the files costs half of a copy by the log, which is the default.
    template = sql.SQL("TEMPLATE {} STRATEGY file_copy").format(sql.Identifier(source))
    _create_again(urls, name, template)


def create(urls: embedded.Urls, name: str) -> None:
    """Make database `name`, empty."""
    _create_again(urls, name, sql.SQL(""))


def drop(urls: embedded.Urls, name: str) -> None:
    _execute(urls, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def _create_again(urls: embedded.Urls, name: str, template: sql.Composable) -> None:
    with psycopg.connect(urls.admin_database, autocommit=True) as connection:
        for statement in (
            "DROP DATABASE IF EXISTS {name} WITH (FORCE)",
            "CREATE DATABASE {name} OWNER arrester_owner {template}",
            # As the embedded start does it: privileges on a database are not part of its template.
            "REVOKE ALL ON DATABASE {name} FROM PUBLIC",
            "GRANT CONNECT ON DATABASE {name} TO arrester_app",
        ):
            names = {"name": sql.Identifier(name), "template": template}
            connection.execute(sql.SQL(statement).format(**names))


def _execute(urls: embedded.Urls, statement: LiteralString, *names: str) -> None:
    with psycopg.connect(urls.admin_database, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
