"""Create a REST token of any account, for programs whose account does not log in."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from arrester.controlplane import actions
from arrester.controlplane.access.roles import TokenScope
from arrester.controlplane.actions.access import tokens
from arrester.domain.errors import ArresterError


class Command(BaseCommand):
    help = "Create a REST token of an account and print it, for example `create_token ben ci`."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("account")
        parser.add_argument("name", help="name of the token")
        parser.add_argument("--scope", choices=list(TokenScope), default=TokenScope.READ)
        parser.add_argument("--days", type=int, default=tokens.DAYS, help="days until it expires")
        parser.add_argument(
            "--application",
            action="append",
            dest="applications",
            help="the token may see and act on this application only; may be repeated",
        )

    def handle(
        self,
        *_args: Any,
        account: str,
        name: str,
        scope: str,
        days: int,
        applications: list[str] | None,
        **_options: Any,
    ) -> None:
        try:
            created = actions.create_token(
                account,
                name,
                actor="arrester create_token",
                scope=TokenScope(scope),
                days=days,
                applications=applications,
            )
        except ArresterError as exc:
            raise CommandError(str(exc)) from exc
        self.stdout.write(created.text)
