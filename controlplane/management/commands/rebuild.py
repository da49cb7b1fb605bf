"""Derive the views again from the log, or look whether they are what the log gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from arrester.controlplane import store
from arrester.controlplane.domain.errors import ArresterError
from arrester.controlplane.history import rebuild

#: How many differences are printed; the rest is counted.
SHOWN = 20


class Command(BaseCommand):
    help = "Derive all views again from the log while folds go on; then swap them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("applications", nargs="*", help="all of them when none is named")
        parser.add_argument(
            "--verify", action="store_true", help="change nothing; fail when a row differs"
        )

    def handle(self, *_args: Any, applications: list[str], verify: bool, **_options: Any) -> None:
        streams = [
            stream
            for stream in store.known()
            if not applications or stream.application in applications
        ]
        unknown = set(applications) - {stream.application for stream in streams}
        if unknown:
            raise CommandError(f"there is no application {', '.join(sorted(unknown))}")
        work = self._verify if verify else self._rebuild
        try:
            different = sum(work(stream) for stream in streams)
        except ArresterError as exc:
            raise CommandError(str(exc)) from exc
        if different:
            raise CommandError(f"{different} rows differ from the log")

    def _rebuild(self, stream: store.Stream) -> int:
        sequence = rebuild.rebuild(stream.application, progress=self._progress(stream))
        self._say(f"{stream.application} @ {sequence:,}: derived again")
        return 0

    def _verify(self, stream: store.Stream) -> int:
        found = rebuild.differences(stream.application, progress=self._progress(stream))
        for line in found[:SHOWN]:
            self._say(f"{stream.application} {line}")
        self._say(f"{stream.application}: {len(found)} rows differ")
        return len(found)

    def _progress(self, stream: store.Stream) -> Callable[[int], None]:
        return lambda count: self._say(
            f"{stream.application}: {count:,} of {stream.sequence:,} events"
        )

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
