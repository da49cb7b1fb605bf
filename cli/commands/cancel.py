"""Cancel a command; of a redrive or rollout, what has not begun."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import click

from arrester.cli import output
from arrester.cli.client import Json
from arrester.cli.session import Session, with_session
from arrester.domain.identity.uuids import uuid7
from arrester.domain.python_versions import UTC


@click.command()
@click.argument("command", type=click.UUID)
@click.option("--reason", "-r", metavar="TEXT", help="The reason, for the log.")
@with_session
def cancel(session: Session, *, command: UUID, reason: str | None) -> None:
    """Cancel COMMAND, given by its id, which no instance has fetched.

    A redrive or rollout in progress issues no further commands. What the pipeline has already is
    processed.
    """
    body = {"id": str(uuid7(datetime.now(UTC)))} | ({} if reason is None else {"reason": reason})
    session.print(session.client.post(f"commands/{command}/cancel", body), _show)


def _show(command: Json) -> None:
    line = f"{command['application']}: {command['kind']} {command['status']}"
    click.echo(output.plain(f"{line}: {command['outcome']}" if command["outcome"] else line))
