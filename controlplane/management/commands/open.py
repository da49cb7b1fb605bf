"""Open an application, so that its instances can run."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from arrester.controlplane import actions
from arrester.domain.errors import ArresterError


class Command(BaseCommand):
    help = "Create an application with status OPEN, or open it. Prints its status."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("application")
        parser.add_argument("--actor", default="arrester", help="name to record in the log")
        parser.add_argument("--reason", help="reason to record in the log")

    def handle(
        self, *_args: Any, application: str, actor: str, reason: str | None, **_options: Any
    ) -> None:
        try:
            state = actions.open_application(application, actor=actor, reason=reason)
        except ArresterError as exc:
            raise CommandError(str(exc)) from exc
        self.stdout.write(f"{state.name} is {state.status}")
