"""Run durable PostgreSQL and Redis servers, with a new database for each round."""

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
#: Tables of the yardsticks.
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
    """Run both servers, with fsync, in a temporary folder; child processes find them."""
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
                broker=servers.urls.redis,
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


def reset(urls: embedded.Urls) -> None:
    """Create a new database and empty Redis; then flush all writes."""
    services.clone(urls)
    with Redis.from_url(urls.redis) as redis:
        redis.flushall()
    with psycopg.connect(urls.admin_database, autocommit=True) as connection:
        connection.execute("CHECKPOINT")


def roll_log(urls: embedded.Urls) -> None:
    """Fill WAL files, which the next checkpoint recycles: a commit that needs a new file would
    wait until its 16 MB are written."""
    with psycopg.connect(urls.admin_database, autocommit=True) as connection:
        for _ in range(LOG_FILES):
            connection.execute("SELECT pg_logical_emit_message(false, '', repeat(' ', 16 << 20))")


def count(urls: embedded.Urls, table: str) -> int:
    """Return the number of rows of a table."""
    with psycopg.connect(urls.migrate_database) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return int(row[0])
