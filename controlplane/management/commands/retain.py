"""Drop the days of the log that are over; what they came to is kept, and verified first."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from arrester.controlplane.domain.errors import ArresterError
from arrester.controlplane.history import retention


class Command(BaseCommand):
    help = "Keep the events of the last days; drop the days before, once a base covers them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--days", type=int, help="how many days to keep (ARRESTER_RETENTION_DAYS)"
        )

    def handle(self, *_args: Any, days: int | None, **_options: Any) -> None:
        environment = settings.ENVIRONMENT
        kept = environment.retention_days if days is None else days
        if kept < 1:
            raise CommandError("--days: at least 1; today is never dropped")
        try:
            done = retention.retain(
                days=kept, replay_days=environment.replay_days, say=self.stdout.write
            )
        except ArresterError as exc:
            raise CommandError(str(exc)) from exc
        if done.busy:
            raise CommandError(f"{', '.join(done.busy)}: run it again after the rebuild")
        if not done.bases and not done.dropped.partitions:
            self.stdout.write(f"nothing is older than {kept} days")
