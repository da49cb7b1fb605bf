"""Erase the record and the stack trace of one event for good."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import ProgrammingError

from arrester.controlplane.domain.errors import ArresterError
from arrester.controlplane.history import erasure


class Command(BaseCommand):
    help = (
        "Erase the body (record, stack trace) of an event, `flights 18233`, as the owner of the"
        " database (MIGRATE_DATABASE_URL). That it was erased, by whom and why, stays in the log."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("application")
        parser.add_argument("sequence", type=int)
        parser.add_argument("--reason", required=True)
        parser.add_argument("--actor", required=True, help="who wants it")

    def handle(
        self, *_args: Any, application: str, sequence: int, reason: str, actor: str, **_options: Any
    ) -> None:
        try:
            with erasure.as_owner():
                said = erasure.erase(application, sequence, actor=actor, reason=reason)
        except ArresterError as exc:
            raise CommandError(str(exc)) from exc
        except ProgrammingError as exc:
            first = str(exc).partition("\n")[0]
            raise CommandError(
                f"{first}: MIGRATE_DATABASE_URL has to be of the owner of the tables"
            ) from exc
        self.stdout.write(f"{application} @ {sequence:,}: body erased, which is event {said:,}")
