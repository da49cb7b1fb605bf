"""What is read for a client that has left ends, and so does what takes too long."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection

from arrester.controlplane import embedded
from tests.dashboard.accounts import logged_in, make_user, token
from tests.dashboard.story import Story
from tests.patience import wait_until

#: The sessions that wait for a lock of another one.
_WAITING = """
SELECT pid FROM pg_locks JOIN pg_database ON pg_database.oid = database
WHERE NOT granted AND datname = current_database()
"""


@contextmanager
def locked(urls: embedded.Urls, table: str) -> Iterator[psycopg.Connection]:
    """Let all reads of a table wait."""
    with psycopg.connect(urls.migrate_database) as holder:
        holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield holder
        holder.rollback()


def waiting(database: psycopg.Connection) -> set[int]:
    return {pid for (pid,) in database.execute(_WAITING).fetchall()}


def test_a_read_ends_when_its_client_leaves(server: str, fresh_database: embedded.Urls) -> None:
    story = Story()
    story.starts()
    make_user("ana", "operator")
    headers = {"Authorization": f"Bearer {token('ana')}"}
    clients = [http.client.HTTPConnection(urlsplit(server).netloc) for _ in range(2)]
    with locked(fresh_database, "task") as holder:
        clients[0].request("GET", "/api/v1/tasks", headers=headers)
        wait_until(lambda: len(waiting(holder)) == 1)
        clients[1].request("GET", "/api/v1/tasks", headers=headers)
        wait_until(lambda: len(waiting(holder)) == 2)
        both = waiting(holder)
        clients[1].close()
        wait_until(lambda: waiting(holder) != both)
        # The first one, which began earlier, has not ended by a limit.
        assert len(waiting(holder)) == 1
    assert clients[0].getresponse().status == 200
    clients[0].close()


@pytest.mark.parametrize("path", ["/api/v1/tasks", "/tasks"])
def test_a_read_that_takes_too_long_reports_what_to_narrow(
    fresh_database: embedded.Urls, path: str
) -> None:
    operator = logged_in(make_user("ana", "operator"))
    with locked(fresh_database, "task"), connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '100ms'")
        answer = operator.get(path)
    assert answer.status_code == 503
    assert "takes longer than 30 s" in answer.content.decode()
