"""Put what was kept aside back into the log, as far as it is understood by now, or let it go."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from arrester.controlplane import actions, store
from arrester.controlplane.domain.errors import ArresterError


class Command(BaseCommand):
    help = "Read the quarantine again; what is understood now is folded and marked as put back."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("applications", nargs="*", help="all of them when none is named")
        parser.add_argument(
            "--batch", type=UUID, action="append", default=[], help="only this batch; as often"
        )
        parser.add_argument(
            "--old",
            action="store_true",
            help="the batches older than the replay horizon, which are passed over else:"
            " what is in the log already would be there twice",
        )
        parser.add_argument(
            "--dismiss", action="store_true", help="put nothing back: let it go, count it no more"
        )
        parser.add_argument("--actor", default="manage.py", help="who wants it")
        parser.add_argument("--reason", help="why it is dismissed")

    def handle(
        self,
        *_args: Any,
        applications: list[str],
        batch: list[UUID],
        old: bool,
        dismiss: bool,
        actor: str,
        reason: str | None,
        **_options: Any,
    ) -> None:
        if dismiss and not (applications or batch):
            raise CommandError("--dismiss: name the applications, or batches")
        which = store.Which(batches=tuple(batch), old=old)
        failed = found = 0
        meant = applications or [stream.application for stream in store.known()]
        for application in meant:
            try:
                if dismiss:
                    gone = actions.dismiss(application, actor=actor, reason=reason, which=which)
                    found += gone
                    said = f"{gone} dismissed"
                else:
                    done = actions.requeue(application, actor=actor, which=which)
                    found += done.put_back + done.waiting
                    said = f"{done.put_back} put back, {done.waiting} still not understood"
            except ArresterError as exc:
                failed += 1
                self.stderr.write(f"{application}: {exc}")
            else:
                self.stdout.write(f"{application}: {said}")
        if failed:
            raise CommandError(f"{failed} of {len(meant)} applications could not be done")
        if batch and not found:
            named = ", ".join(str(each) for each in batch)
            raise CommandError(f"--batch: {named}: nothing of it waits in quarantine")
