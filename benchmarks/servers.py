"""Durable PostgreSQL and Redis of their own for one run, and a fresh database for each round."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from redis import Redis

from arrester.controlplane import embedded
from tests import services

LOG_FILES = 24
#: Tables of the yardsticks, beside ours.
_YARDSTICKS = """
CREATE TABLE jsonb_event (
    application text, sequence bigint, payload jsonb, PRIMARY KEY (application, sequence)
);
CREATE TABLE toy_event (id bigserial PRIMARY KEY, task text NOT NULL, payload jsonb NOT NULL);
CREATE TABLE toy_task (key text PRIMARY KEY, failed bigint NOT NULL, last jsonb);
GRANT ALL ON ALL TABLES IN SCHEMA public TO arrester_app;
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO arrester_app;
"""


@contextmanager
def running() -> Iterator[embedded.Urls]:
    """Run both servers in a temporary folder, fsync and all; child processes find them."""
    with tempfile.TemporaryDirectory(prefix="arrester-bench-", dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        with embedded.servers(Path(folder) / "home", durable=True) as servers:
            urls = embedded.Urls(
                database=services.with_name(servers.urls.database, services.DATABASE),
                migrate_database=services.with_name(
                    servers.urls.migrate_database, services.DATABASE
                ),
                admin_database=servers.urls.admin_database,
                redis=servers.urls.redis,
            )
            os.environ |= {
                "DATABASE_URL": urls.database,
                "MIGRATE_DATABASE_URL": urls.migrate_database,
                "REDIS_URL": urls.redis,
                "ARRESTER_SECRET_KEY": "only for benchmarks " * 3,
                "ARRESTER_SPOOL": f"{folder}/spool",
                "DJANGO_SETTINGS_MODULE": "arrester.controlplane.settings",
            }
            services.make_template(urls)
            template = services.with_name(urls.migrate_database, services.TEMPLATE)
            with psycopg.connect(template) as connection:
                connection.execute(_YARDSTICKS)
            yield urls


def freshen(urls: embedded.Urls) -> None:
    """Make the database anew and empty Redis; what is still to be written is written now."""
    services.clone(urls)
    with Redis.from_url(urls.redis) as redis:
        redis.flushall()
    with psycopg.connect(urls.admin_database, autocommit=True) as connection:
        connection.execute("CHECKPOINT")


def roll_log(urls: embedded.Urls) -> None:
    """Have PostgreSQL fill so many files of its log as a minute of work does. The next checkpoint
    keeps them for later: a commit that needs a new one waits until it is written, 16 MB of it."""
    with psycopg.connect(urls.admin_database, autocommit=True) as connection:
        for _ in range(LOG_FILES):
            connection.execute("SELECT pg_logical_emit_message(false, '', repeat(' ', 16 << 20))")


def count(urls: embedded.Urls, table: str) -> int:
    """Return how many rows a table of the fresh database has."""
    with psycopg.connect(urls.migrate_database) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return int(row[0])
