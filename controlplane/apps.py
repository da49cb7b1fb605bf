"""The one Django app with models, and the application role's rights on Django's own tables."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import post_migrate

APPLICATION_ROLE = "arrester_app"


class ControlPlane(AppConfig):
    name = "controlplane"
    verbose_name = "Arrester"

    def ready(self) -> None:
        post_migrate.connect(grant_frameworks_tables)


def grant_frameworks_tables(*, sender: AppConfig, using: str, **_kwargs: Any) -> None:
    """Let the application role use users, sessions and tokens, whose migrations are not ours.

    The rights on our own tables stand in our migrations.
    """
    if sender.name == ControlPlane.name:
        return
    connection = connections[using]
    tables = [model._meta.db_table for model in sender.get_models(include_auto_created=True)]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_roles WHERE rolname = %s AND rolname <> current_user",
            [APPLICATION_ROLE],
        )
        existing = set(connection.introspection.table_names(cursor)) if cursor.fetchone() else set()
        for table in existing.intersection(tables):
            name = connection.ops.quote_name(table)
            cursor.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO {APPLICATION_ROLE}")
