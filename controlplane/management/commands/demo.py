"""Open the demo application after a shutdown, and wait until its pipeline runs."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError

from arrester.controlplane import actions, queries
from arrester.controlplane.local import demo
from arrester.domain.state.states import InstanceState, InstanceStatus

WAIT_SECONDS = 60
POLL_SECONDS = 0.5


class Command(BaseCommand):
    help = "Open the demo application, and wait until a running `arrester up` has started it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--wait-seconds", type=int, default=WAIT_SECONDS, help="the longest wait (60)"
        )

    def handle(self, *_args: Any, wait_seconds: int, **_options: Any) -> None:
        try:
            actions.open_application(demo.APPLICATION, actor="arrester demo")
            self.stdout.write(f"Application {demo.APPLICATION!r} is OPEN.")
            instance = _running_instance(wait_seconds)
        except OperationalError as error:
            raise CommandError(
                f"PostgreSQL request failed: {error}. Start the product first: `arrester up`"
            ) from error
        if instance is None:
            raise CommandError(
                f"no instance of {demo.APPLICATION!r} is RUNNING after {wait_seconds} s. Start the"
                " product with `arrester up`, or see logs/demo.log in its data folder"
            )
        self.stdout.write(f"Its pipeline is RUNNING on {instance.host}, pid {instance.pid}.")


def _running_instance(wait_seconds: int) -> InstanceState | None:
    """Wait for a running instance of the demo; return None if the time is over."""
    deadline = time.monotonic() + wait_seconds
    while True:
        for instance in queries.instances(demo.APPLICATION):
            if instance.status is InstanceStatus.RUNNING and not instance.lost:
                return instance
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL_SECONDS)
