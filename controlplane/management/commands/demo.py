"""Open the demo application again; `manage.py up` starts its pipeline where it was."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from arrester.controlplane.local import demo


class Command(BaseCommand):
    help = "Open the demo application again; `manage.py up` then starts its pipeline."

    def handle(self, *_args: Any, **_options: Any) -> None:
        try:
            demo.open_again(actor="make demo")
        except OperationalError as error:
            raise CommandError(
                f"PostgreSQL does not answer ({error}): start everything with `make up` first"
            ) from error
        self.stdout.write(
            f"The application {demo.APPLICATION} is open: `make up` starts its pipeline"
            " within a second, where it was"
        )
