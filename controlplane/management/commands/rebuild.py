"""Rebuild the views from the log, or compare them with the log."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from arrester.controlplane import store
from arrester.controlplane.history import rebuild
from arrester.controlplane.management.progress import progress
from arrester.domain.errors import ArresterError

#: Differences printed per application; the total is always printed.
PRINTED_DIFFERENCES = 20


class Command(BaseCommand):
    help = "Rebuild all views from the log while events are folded, then swap them in."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("applications", nargs="*", help="default: all")
        parser.add_argument(
            "--verify", action="store_true", help="change nothing; fail if a row differs"
        )

    def handle(self, *_args: Any, applications: list[str], verify: bool, **_options: Any) -> None:
        streams = [
            stream
            for stream in store.all_streams()
            if not applications or stream.application in applications
        ]
        unknown = set(applications) - {stream.application for stream in streams}
        if unknown:
            raise CommandError(f"unknown application: {', '.join(sorted(unknown))}")
        process = self._verify if verify else self._rebuild
        try:
            different = sum(process(stream) for stream in streams)
        except ArresterError as exc:
            raise CommandError(str(exc)) from exc
        if different:
            raise CommandError(f"{different} rows differ from the log")

    def _rebuild(self, stream: store.LogStream) -> int:
        with progress(self.stdout, stream.application, stream.sequence) as show:
            sequence = rebuild.rebuild(stream.application, progress=show)
        self._print(f"{stream.application} @ {sequence:,}: rebuilt")
        return 0

    def _verify(self, stream: store.LogStream) -> int:
        with progress(self.stdout, stream.application, stream.sequence) as show:
            differences = rebuild.differences(stream.application, progress=show)
        for line in differences[:PRINTED_DIFFERENCES]:
            self._print(f"{stream.application} {line}")
        self._print(f"{stream.application}: {len(differences)} rows differ")
        return len(differences)

    def _print(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
