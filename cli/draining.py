"""Wait until a task has processed its held records, with a progress bar on a terminal."""

from __future__ import annotations

import sys
from time import monotonic, sleep

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from arrester.cli import output
from arrester.cli.client import Json
from arrester.cli.exit_codes import NotApplied, Refused
from arrester.cli.session import Session

_POLL_SECONDS = 1.0


def wait_until_drained(session: Session, digest: str, subject: str, timeout: float) -> None:
    """Wait until a RUNNING task holds no records; print how many it has processed.

    Raises:
        Refused: the task stopped again, or is not processed any more.
        NotApplied: it still holds records after the timeout.
    """
    deadline = monotonic() + timeout
    task = session.client.get(f"tasks/{digest}")
    total = task["held"]
    with _bar() as progress:
        bar = progress.add_task(output.plain(subject), total=total, rate="")
        while task["held"] and task["status"] == "RUNNING" and monotonic() < deadline:
            progress.update(bar, completed=total - task["held"], rate=_rate(task))
            sleep(min(_POLL_SECONDS, max(0.0, deadline - monotonic())))
            task = session.client.get(f"tasks/{digest}")
            total = max(total, task["held"])
    if task["status"] != "RUNNING":
        raise Refused(
            f"{subject} is {task['status']} at position {task['position']} again;"
            f" {task['held']:,} records held"
        )
    if task["held"]:
        waited = output.duration(timeout)
        raise NotApplied(f"{subject} still holds {task['held']:,} records after {waited}")
    if not session.as_json:
        click.echo(output.plain(f"{subject}: no held records"))


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} held records {task.fields[rate]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def _rate(task: Json) -> str:
    drain = task["drain"]
    return f"{drain['records_per_second']:,.0f}/s" if drain else ""
