"""Open an application by name, so that instances of it may run."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from arrester.controlplane import actions
from arrester.controlplane.domain.errors import ArresterError


class Command(BaseCommand):
    help = "Make sure that an application exists and is OPEN; says so and changes nothing if it is."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("application")
        parser.add_argument("--actor", default="manage.py", help="who does it, for the log")
        parser.add_argument("--reason", help="why, for the log")

    def handle(
        self, *_args: Any, application: str, actor: str, reason: str | None, **_options: Any
    ) -> None:
        try:
            state = actions.open_application(application, actor=actor, reason=reason)
        except ArresterError as exc:
            raise CommandError(str(exc)) from exc
        self.stdout.write(f"{state.name} is {state.status}")
