"""Verify the chain of the audit."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from arrester.controlplane.history import audit_verification

BROKEN, OTHER_KEY = 1, 2


class Command(BaseCommand):
    help = (
        "Verify that no entry of the audit was changed, removed, inserted or moved, and that the"
        " logs have the events of its acts. Exit code 1: the chain is broken; 2: entries have MACs"
        " of another secret key."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        verify = acts.add_parser("verify", help="Verify the chain.")
        verify.add_argument(
            "--at-least",
            type=int,
            default=0,
            metavar="NUMBER",
            help="an entry that existed before, from the log of a worker: the chain alone does not"
            " show that its newest entries were removed",
        )

    def handle(self, *_args: Any, at_least: int, **_options: Any) -> None:
        result = audit_verification.verify(at_least=at_least)
        if result.problem:
            code = BROKEN if result.fault is not None else OTHER_KEY
            raise CommandError(f"the chain is not whole: {result.problem}", returncode=code)
        self.stdout.write(f"chain whole up to entry {result.number:,}, MAC {result.mac.hex()}")
