"""Erase the record and the stack trace of one event permanently."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import ProgrammingError

from arrester.controlplane.history import dead_letter_erasure, erasure
from arrester.domain.errors import ArresterError


class Command(BaseCommand):
    help = (
        "Erase the body (record and stack trace) of an event, for example `erase flights 18233`,"
        " or of all failures of a dead letter's record, `erase flights --dead-letter ID`."
        " Connects as the owner of the tables (MIGRATE_DATABASE_URL). The log records the erasure."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("application")
        parser.add_argument("sequence", type=int, nargs="?")
        parser.add_argument("--dead-letter", metavar="ID", help="in place of an event")
        parser.add_argument("--reason", required=True)
        parser.add_argument("--actor", required=True, help="name to record in the log")

    def handle(
        self,
        *_args: Any,
        application: str,
        sequence: int | None,
        dead_letter: str | None,
        reason: str,
        actor: str,
        **_options: Any,
    ) -> None:
        if (sequence is None) == (dead_letter is None):
            raise CommandError("either the number of an event or --dead-letter is required")
        by = {"actor": actor, "reason": reason}
        try:
            with erasure.as_owner():
                if dead_letter is not None:
                    erased = dead_letter_erasure.erase(application, dead_letter, **by)
                    self._report(application, dead_letter, erased)
                elif sequence is not None:
                    event = erasure.erase(application, sequence, **by)
                    self._erased(application, sequence, f"recorded as event {event:,}")
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

    def _report(
        self, application: str, dead_letter: str, erased: dead_letter_erasure.Erased
    ) -> None:
        for sequence in erased.sequences:
            self._erased(application, sequence, "recorded in the log")
        if not erased.sequences:
            self.stdout.write(f"{application}: the log has no body of this record")
        for copy in erased.copies:
            self.stdout.write(f"not erased: {dead_letter} in {copy.place} ({copy.format})")
        self.stdout.write("how to remove copies: docs/how-to/keep-the-log.md#erase-a-dead-letter")

    def _erased(self, application: str, sequence: int, recorded: str) -> None:
        self.stdout.write(f"{application} @ {sequence:,}: body erased; {recorded}")
