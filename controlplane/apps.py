"""The one Django app with models."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core.management.base import CommandError
from django.core.signals import request_finished, request_started
from django.db import connections
from django.db.backends.signals import connection_created
from django.db.migrations.recorder import MigrationRecorder
from django.db.models.signals import post_migrate, pre_migrate

from arrester.controlplane import access
from arrester.controlplane.access import confined_views

#: The first migration of the versions before 0.2.0, whose databases cannot be upgraded.
FIRST_BEFORE_0_2 = ("controlplane", "0001_log")


class ControlPlane(AppConfig):
    name = "arrester.controlplane"
    verbose_name = "Arrester"

    def ready(self) -> None:
        pre_migrate.connect(refuse_old_database, sender=self)
        pre_migrate.connect(confined_views.drop, sender=self)
        post_migrate.connect(confined_views.create, sender=self)
        connection_created.connect(access.on_connect)
        request_started.connect(access.leave)
        request_finished.connect(access.leave)


def refuse_old_database(*, using: str, **_: Any) -> None:
    """Raise CommandError if a version before 0.2.0 created the database."""
    connection = connections[using]
    if FIRST_BEFORE_0_2 in MigrationRecorder(connection).applied_migrations():
        raise CommandError(
            f"database {connection.settings_dict['NAME']!r} was created by a version before 0.2.0"
            " and cannot be upgraded: create a new database and set DATABASE_URL,"
            " or start with a new ARRESTER_HOME"
        )
