"""Drop old days of the log after verifying the base that replaces them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from arrester.controlplane.history import retention
from arrester.controlplane.history.rebuild import Progress
from arrester.controlplane.management.progress import progress
from arrester.domain.errors import ArresterError


class Command(BaseCommand):
    help = "Keep the events of the last days; drop older days once a verified base covers them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--days",
            type=int,
            help="days to keep; default: ARRESTER_RETENTION_DAYS, ARRESTER_RETENTION_GB",
        )

    def handle(self, *_args: Any, days: int | None, **_options: Any) -> None:
        environment = settings.ENVIRONMENT
        if days is None:
            days = retention.days_to_keep(
                days=environment.retention_days,
                gigabytes=environment.retention_gigabytes,
                today=datetime.now(UTC).date(),
            )
        if days < 1:
            raise CommandError("--days must be at least 1: today is never dropped")
        try:
            done = retention.retain(
                days=days,
                replay_days=environment.replay_days,
                report=self.stdout.write,
                progress=self._progress,
            )
        except ArresterError as exc:
            raise CommandError(str(exc)) from exc
        if done.busy:
            raise CommandError(
                f"{', '.join(done.busy)}: a rebuild or a slow fold is running; retry when it has"
                " finished"
            )
        if not done.bases and not done.dropped.partitions:
            self.stdout.write(f"no events are older than {days} days")

    def _progress(self, application: str, position: int) -> AbstractContextManager[Progress]:
        # The log of a service has a line for each result only.
        if not self.stdout.isatty():
            return retention.show_nothing(application, position)
        return progress(self.stdout, application, position)
