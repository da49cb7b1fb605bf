"""Requeue quarantined batches that this version can read, or dismiss them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from arrester.controlplane import actions, store
from arrester.domain.errors import ArresterError


class Command(BaseCommand):
    help = "Read the quarantine again; fold and mark the batches that this version can read."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("applications", nargs="*", help="default: all")
        parser.add_argument(
            "--batch",
            type=UUID,
            action="append",
            default=[],
            help="only this batch; may be repeated",
        )
        parser.add_argument(
            "--old",
            action="store_true",
            help="also batches older than the replay horizon, whose duplicates are not detected",
        )
        parser.add_argument(
            "--dismiss", action="store_true", help="do not requeue; stop counting the batches"
        )
        parser.add_argument("--actor", default="arrester", help="name to record in the log")
        parser.add_argument("--reason", help="reason to record in the log")

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
            raise CommandError("--dismiss needs applications or --batch")
        selection = store.EntrySelection(batches=tuple(batch), old=old)
        failed = entry_count = 0
        selected = applications or [stream.application for stream in store.all_streams()]
        for application in selected:
            try:
                if dismiss:
                    dismissed = actions.dismiss(
                        application, actor=actor, reason=reason, which=selection
                    )
                    entry_count += dismissed
                    result = f"{dismissed} dismissed"
                else:
                    done = actions.requeue(application, actor=actor, which=selection)
                    entry_count += done.requeued + done.invalid
                    result = f"{done.requeued} requeued, {done.invalid} still invalid"
            except ArresterError as exc:
                failed += 1
                self.stderr.write(f"{application}: {exc}")
            else:
                self.stdout.write(f"{application}: {result}")
        if failed:
            raise CommandError(f"{failed} of {len(selected)} applications failed")
        if batch and not entry_count:
            batches = ", ".join(str(each) for each in batch)
            raise CommandError(f"--batch {batches}: no quarantined entries")
