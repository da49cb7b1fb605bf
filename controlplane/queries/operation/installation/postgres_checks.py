"""Checks of PostgreSQL: version, migrations, role, clock, disk."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.conf import settings
from django.db import connection

from arrester.controlplane.embedded import Home
from arrester.controlplane.queries import sql
from arrester.controlplane.queries.operation.installation import clock as clocks
from arrester.controlplane.queries.operation.installation import disk as disks
from arrester.controlplane.queries.operation.installation.finding import (
    Finding,
    error,
    ok,
    warning,
)
from arrester.controlplane.queries.operation.readiness import missing_migrations

MINIMUM = 150_000


def version() -> Iterator[Finding]:
    """Compare the version with the oldest one that works."""
    ((number, text),) = sql.rows(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version')"
    )
    if number < MINIMUM:
        yield error("postgres version", text, "Upgrade PostgreSQL to 15 or newer.")
    else:
        yield ok("postgres version", text)


def migrations() -> Iterator[Finding]:
    """Report migrations that are not applied."""
    names = missing_migrations()
    if names:
        advice = "Run `arrester migrate` as the owner of the tables."
        yield error("postgres migrations", f"not applied: {', '.join(names)}", advice)
    else:
        yield ok("postgres migrations", "all applied")


def role() -> Iterator[Finding]:
    """Warn if the server's role may change the log."""
    ((name, superuser, owner),) = sql.rows(
        "SELECT current_user, rolsuper, pg_has_role(tableowner, 'MEMBER')"
        " FROM pg_roles, pg_tables"
        " WHERE rolname = current_user AND schemaname = current_schema() AND tablename = 'event'"
    )
    if superuser or owner:
        value = f"{name}, {'a superuser' if superuser else 'the owner of the tables'}"
        advice = "Use a role with the granted rights only, such as arrester_app, in DATABASE_URL."
        yield warning("postgres role", value, advice)
    else:
        yield ok("postgres role", f"{name}, with the granted rights only")


def clock() -> Iterator[Finding]:
    """Compare the clock with that of the web process."""
    yield from clocks.compared("postgres clock", _now)


def _now() -> datetime:
    ((now,),) = sql.rows("SELECT clock_timestamp()")
    moment: datetime = now
    return moment


def disk() -> Iterator[Finding]:
    """Report the free space of the data folder; only a privileged role knows where it is."""
    found = sql.rows("SELECT setting FROM pg_settings WHERE name = 'data_directory'")
    host = connection.settings_dict["HOST"]
    folder = found[0][0] if found and disks.is_local(host) else _embedded_folder()
    yield from disks.space("postgres disk", folder)
    ((size,),) = sql.rows("SELECT pg_database_size(current_database())")
    yield ok("postgres size", f"{size / 10**9:,.1f} GB")


def _embedded_folder() -> str | None:
    """Return the data folder of the embedded server, if this one is on its socket."""
    home = Home(settings.ENVIRONMENT.home)
    is_embedded = connection.settings_dict["HOST"] == str(home.sockets)
    return str(home.postgres_data) if is_embedded else None
