"""The schema `confined`: a view of each table with the rows that a confined person may see.

A connection whose search path is this schema reads the views under the names of the tables. A table
without a view does not exist for it, so a forgotten one shows nothing. The views are made of the
present tables after each `migrate`, and removed before a migration that may change a table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from typing import Any, Final

from django.core.management.base import CommandError
from django.db import ProgrammingError, connections, transaction
from psycopg import errors

from arrester.controlplane.access import SCHEMA, SETTING

_VISIBLE: Final = f"current_setting('{SETTING}')::text[]"
_OWN: Final = f"application = ANY ({_VISIBLE})"
_OF_STREAM: Final = (
    "stream = ANY (ARRAY (SELECT own.id FROM public.stream AS own"
    f" WHERE own.application = ANY ({_VISIBLE})))"
)
#: By table: which rows a confined person sees.
ROWS: Final[Mapping[str, str]] = dict.fromkeys(
    (
        "agent_credential", "alert", "application_role", "base", "base_state", "batch_seen",
        "command", "error_group", "failure_total", "flow_hour", "flow_minute", "flow_total",
        "held_change", "held_minute", "hour_count", "hour_stage", "hour_total", "instance",
        "limit_reached", "log_gap", "minute_count", "minute_total", "quarantine",
        "retention_refusal", "snapshot", "stream", "task", "thread",
    ),
    _OWN,
) | {
    "application": f"name = ANY ({_VISIBLE})",
    **dict.fromkeys(
        ("batch", "dead_letter", "dead_letter_total", "event", "record_block", "record_group",
         "record_index"),
        _OF_STREAM,
    ),
    # The text of a message names all its applications.
    "alert_message": f"applications <> '{{}}' AND applications <@ {_VISIBLE}",
    "alert_limits": f"application = '' OR {_OWN}",
    # Acts on agents only: others are about accounts, channels and rules, which have any name.
    "account_change": f"act LIKE 'AGENT\\_%' AND account = ANY ({_VISIBLE})",
    # The name of an application has no character that LIKE treats in another way.
    "owner_rule": f"application = '' OR EXISTS (SELECT FROM unnest({_VISIBLE}) AS own"
    " WHERE own LIKE replace(application, '*', '%'))",
    "alert_channel": "false",
    "audit_check": "false",
    "alert_rule": "false",
    "event_subscription": "false",
    # The name of a shared filter without an application may be about others.
    "saved_filter": f"{_OWN} OR (application = '' AND NOT shared)",
}  # fmt: skip
#: Tables without data of applications: requests read and change them.
SHARED: Final = (
    "auth_group", "auth_group_permissions", "auth_permission", "auth_user", "auth_user_groups",
    "auth_user_user_permissions", "django_content_type", "django_session", "rest_token",
    "sighting", "sign_on_account",
)  # fmt: skip
#: Tables that no page and no endpoint reads for a confined person.
NEVER: Final = (
    "act_request", "django_migrations", "ids_kept", "redrive_selection", "shadow_dead_letter",
    "shadow_dead_letter_total", "shadow_row",
)  # fmt: skip


def drop(*, using: str, plan: Any, **_: Any) -> None:
    """Remove the views before migrations: receives Django's pre_migrate."""
    if plan:
        with connections[using].cursor() as cursor:
            cursor.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def create(*, using: str, **_: Any) -> None:
    """Make the views of the present tables, unless they are: receives Django's post_migrate.

    Raises CommandError if the owner of the tables may not create the schema.
    """
    connection = connections[using]
    try:
        with transaction.atomic(using=using), connection.cursor() as cursor:
            # Several servers may start at the same time.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('arrester_confined_views'))")
            statements = _statements(cursor, set(connection.introspection.table_names(cursor)))
            digest = hashlib.sha256("; ".join(statements).encode()).hexdigest()
            cursor.execute(
                "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s",
                [SCHEMA],
            )
            if cursor.fetchone() == (digest,):
                return
            for statement in statements:
                cursor.execute(statement)
            cursor.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{digest}'")
    except ProgrammingError as error:
        if not isinstance(error.__cause__, errors.InsufficientPrivilege):
            raise
        settings = connection.settings_dict
        raise CommandError(
            f"the role {settings['USER']!r} may not create the schema {SCHEMA!r}: run GRANT CREATE"
            f" ON DATABASE {settings['NAME']} TO {settings['USER']}, then migrate again"
        ) from error


def _statements(cursor: Any, tables: Set[str]) -> list[str]:
    """Return the statements that make the schema anew."""
    statements = [f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}"]
    for table, condition in {**ROWS, **dict.fromkeys(SHARED, "true")}.items():
        if table in tables:
            view = f"CREATE VIEW {SCHEMA}.{table} AS SELECT * FROM public.{table} WHERE {condition}"
            statements.append(view)
    # A server of its own may have no such role: then one role owns and uses the tables.
    cursor.execute("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app')")
    if cursor.fetchone()[0]:
        statements += [
            f"GRANT USAGE ON SCHEMA {SCHEMA} TO arrester_app",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO arrester_app",
            *(
                f"GRANT INSERT, UPDATE, DELETE ON {SCHEMA}.{table} TO arrester_app"
                for table in SHARED
                if table in tables
            ),
        ]
    return statements
