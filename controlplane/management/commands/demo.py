"""Open the demo application after a shutdown."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from arrester.controlplane import actions
from arrester.controlplane.local import demo


class Command(BaseCommand):
    help = "Open the demo application; a running `arrester up` then starts its pipeline."

    def handle(self, *_args: Any, **_options: Any) -> None:
        try:
            actions.open_application(demo.APPLICATION, actor="arrester demo")
        except OperationalError as error:
            raise CommandError(
                f"PostgreSQL request failed: {error}. Start the product first: `arrester up`"
            ) from error
        self.stdout.write(
            f"Application {demo.APPLICATION!r} is OPEN. A running `arrester up` starts its pipeline"
            " within a second, at the position where it stopped."
        )
