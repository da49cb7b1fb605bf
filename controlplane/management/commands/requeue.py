"""Put what was kept aside back into the log, as far as it is understood by now."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from controlplane import ingest, store


class Command(BaseCommand):
    help = "Read the quarantine again; what is understood now is folded and marked as put back."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("applications", nargs="*", help="all of them when none is named")

    def handle(self, *_args: Any, applications: list[str], **_options: Any) -> None:
        for application in applications or [stream.application for stream in store.known()]:
            done = ingest.requeue(application)
            self.stdout.write(
                f"{application}: {done.put_back} put back, {done.waiting} still not understood"
            )
