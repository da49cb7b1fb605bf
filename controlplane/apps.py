"""The one Django app with models."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core.management.base import CommandError
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.db.models.signals import pre_migrate

#: The first migration of the versions before 0.2.0, whose databases cannot be upgraded.
FIRST_BEFORE_0_2 = ("controlplane", "0001_log")


class ControlPlane(AppConfig):
    name = "arrester.controlplane"
    verbose_name = "Arrester"

    def ready(self) -> None:
        pre_migrate.connect(refuse_old_database, sender=self)


def refuse_old_database(*, using: str, **_: Any) -> None:
    """Raise CommandError if a version before 0.2.0 created the database."""
    connection = connections[using]
    if FIRST_BEFORE_0_2 in MigrationRecorder(connection).applied_migrations():
        raise CommandError(
            f"database {connection.settings_dict['NAME']!r} was created by a version before 0.2.0"
            " and cannot be upgraded: create a new database and set DATABASE_URL,"
            " or start with a new ARRESTER_HOME"
        )
