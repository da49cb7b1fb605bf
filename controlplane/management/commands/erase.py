"""Erase the record and the stack trace of one event permanently."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import ProgrammingError

from arrester.controlplane.domain.errors import ArresterError
from arrester.controlplane.history import erasure


class Command(BaseCommand):
    help = (
        "Erase the body (record and stack trace) of an event, for example `erase flights 18233`."
        " Connects as the owner of the tables (MIGRATE_DATABASE_URL). The log records the erasure."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("application")
        parser.add_argument("sequence", type=int)
        parser.add_argument("--reason", required=True)
        parser.add_argument("--actor", required=True, help="name to record in the log")

    def handle(
        self, *_args: Any, application: str, sequence: int, reason: str, actor: str, **_options: Any
    ) -> None:
        try:
            with erasure.as_owner():
                event = erasure.erase(application, sequence, actor=actor, reason=reason)
        except ArresterError as exc:
            raise CommandError(str(exc)) from exc
        except ImproperlyConfigured as exc:
            text = "ARRESTER_SECRET_KEY is not set: the audit needs it to record the erasure"
            raise CommandError(text) from exc
        except ProgrammingError as exc:
            first = str(exc).partition("\n")[0]
            raise CommandError(
                f"{first}: MIGRATE_DATABASE_URL must connect as the owner of the tables"
            ) from exc
        self.stdout.write(f"{application} @ {sequence:,}: body erased; recorded as event {event:,}")
