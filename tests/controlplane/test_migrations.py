"""What `migrate` does with a database that it did not create."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psycopg

from arrester.controlplane import embedded
from arrester.domain import durations
from tests import services


def migrate(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "migrate", *arguments],
        cwd=services.REPOSITORY,
        env=os.environ | {"DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_database_of_before_0_2_is_refused(fresh_database: embedded.Urls) -> None:
    name = "before_0_2"
    services.create(fresh_database, name)
    url = services.with_name(fresh_database.migrate_database, name)
    with psycopg.connect(url) as owner:
        owner.execute(
            "CREATE TABLE django_migrations (id bigint GENERATED ALWAYS AS IDENTITY,"
            " app text, name text, applied timestamptz DEFAULT now())"
        )
        owner.execute(
            "INSERT INTO django_migrations (app, name) VALUES ('controlplane', '0001_log')"
        )
    done = migrate(url)
    assert done.returncode != 0
    assert done.stderr == (
        "CommandError: database 'before_0_2' was created by a version before 0.2.0 and cannot be"
        " upgraded: create a new database and set DATABASE_URL, or start with a new ARRESTER_HOME\n"
    )
    with psycopg.connect(url) as owner:
        tables = owner.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = 'public'::regnamespace"
        ).fetchall()
    assert tables == [("django_migrations",)]
    services.drop(fresh_database, name)


def test_durations_of_flow_are_packed(fresh_database: embedded.Urls) -> None:
    name = "objects_of_durations"
    services.create(fresh_database, name)
    url = services.with_name(fresh_database.migrate_database, name)
    assert migrate(url, "controlplane", "0024").returncode == 0
    histogram = {"total:0": 1, "write:126": 2**62, "store:45": 3, "total:127": 1, "sleep:1": 9}
    with psycopg.connect(url) as owner:
        owner.execute(
            "INSERT INTO flow_total VALUES ('flights', 'delays', 'cp-1', 1, 1, 1, 0, 0, 0, 0, %s,"
            " NULL, NULL, NULL, NULL, false, 1)",
            [json.dumps(histogram)],
        )
    assert migrate(url).returncode == 0
    with psycopg.connect(url) as owner:
        (found,) = owner.execute("SELECT durations FROM flow_total").fetchone() or ([],)
    assert sorted(found) == sorted(durations.packed(histogram))
    services.drop(fresh_database, name)
