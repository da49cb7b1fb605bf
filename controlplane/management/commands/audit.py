"""Verify the chain of the audit, or an exported part of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from arrester.controlplane.history import audit_export, audit_verification
from arrester.domain.errors import InvalidValue
from arrester.domain.wire.signed_messages import SERVER_KEY, parse_keys

BROKEN, OTHER_KEY = 1, 2


class Command(BaseCommand):
    help = (
        "Verify that no entry of the audit was changed, removed, inserted or moved, and that the"
        " logs have the events of its acts. Exit code 1: the chain is broken; 2: entries have MACs"
        " of another secret key."
    )

    # On another machine there is no server.
    requires_system_checks = []  # noqa: RUF012  # Django's own form

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        verify = acts.add_parser("verify", help="Verify the chain, or an exported file.")
        verify.add_argument(
            "file",
            nargs="?",
            type=Path,
            help="an export by GET /api/v1/audit/export; this needs no server, only its public key",
        )
        verify.add_argument(
            "--key",
            default=os.environ.get(SERVER_KEY, ""),
            help=f"with a file: the public key of the server; default: {SERVER_KEY}",
        )
        verify.add_argument(
            "--at-least",
            type=int,
            default=0,
            metavar="NUMBER",
            help="an entry that existed before, from the log of a worker: the chain alone does not"
            " show that its newest entries were removed",
        )

    def handle(
        self, *_args: Any, file: Path | None, key: str, at_least: int, **_options: Any
    ) -> None:
        if file is not None:
            self._verify_file(file, key)
            return
        result = audit_verification.verify(at_least=at_least)
        if result.problem:
            code = BROKEN if result.fault is not None else OTHER_KEY
            raise CommandError(f"the chain is not whole: {result.problem}", returncode=code)
        self.stdout.write(f"chain whole up to entry {result.number:,}, MAC {result.mac.hex()}")

    def _verify_file(self, file: Path, key: str) -> None:
        try:
            keys = parse_keys(key)
            if not keys:
                raise CommandError(
                    f"--key or {SERVER_KEY}: the public key of the server is missing"
                )
            with file.open("rb") as lines:
                seal = audit_export.verify_file(lines, keys)
        except (audit_export.NotAuthentic, InvalidValue, OSError) as exc:
            raise CommandError(f"{file}: {exc}", returncode=BROKEN) from exc
        self.stdout.write(
            f"{file}: {seal.entries:,} entries, {seal.first:,} to {seal.last:,}, unchanged since"
            f" the export at {seal.exported_at:%Y-%m-%d %H:%M} UTC; the chain was whole"
        )
