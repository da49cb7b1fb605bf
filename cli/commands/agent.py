"""The credentials of agents: list, add and remove them; and the public key of the server."""

from __future__ import annotations

import click

from arrester.cli import output
from arrester.cli.client import Json
from arrester.cli.commands.token import confirm
from arrester.cli.exit_codes import ExitCode, Unreachable
from arrester.cli.session import Session, with_session
from arrester.domain.wire.signed_messages import SERVER_KEY


@click.group()
def agent() -> None:
    """List, add and remove credentials of agents, for admins; show the key of the server."""


@agent.command(name="list")
@with_session
def list_credentials(session: Session) -> None:
    """List the credentials of agents; nothing shows their passwords."""
    columns: tuple[output.Column, ...] = (
        ("ID", "id"),
        ("APPLICATION", "application"),
        ("REDIS USER", "user"),
        ("CREATED", "created_at"),
        ("BY", "actor"),
    )
    session.print(
        session.client.get("agents"),
        lambda page: output.print_table(page["results"], columns, empty="no credentials of agents"),
    )


@agent.command()
@click.argument("application")
@with_session
def add(session: Session, *, application: str) -> ExitCode:
    """Add a credential for the agents of APPLICATION; earlier ones stay valid.

    The variables for the environment of the drivers are printed once.
    """
    try:
        # Not repeated: each request adds a credential.
        added = session.client.post("agents", {"application": application}, repeat=False)
    except Unreachable as error:
        raise Unreachable(
            f"{error.message} Whether a credential was added is unknown: see `arrester agent list`,"
            " and remove the one that you have no URL of"
        ) from None
    session.print(added, _show)
    return _report(added)


@agent.command()
@click.argument("id", type=int)
@click.option(
    "--delete-keys", is_flag=True,
    help="Also delete the events and heartbeats of its agents in Redis; only with the last"
    " credential of the application.",
)  # fmt: skip
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@with_session
def remove(session: Session, *, id: int, delete_keys: bool, yes: bool) -> ExitCode:
    """Remove the credential ID, and end the connections of agents that use it."""
    more = " Their events that are not processed are deleted." if delete_keys else ""
    confirm(f"Remove credential {id}? Agents that use it lose their connection.{more}", yes)
    query = "?delete_keys=true" if delete_keys else ""
    removed = session.client.delete(f"agents/{id}{query}")
    session.print(removed, lambda shown: click.echo(f"credential {shown['id']} is removed"))
    return _report(removed)


@agent.command()
@with_session
def key(session: Session) -> None:
    """Print the public key of the server for the environment of the drivers.

    Agents that have it accept only what the server signed.
    """
    session.print(
        session.client.get("agents/key"),
        lambda found: click.echo(f"{SERVER_KEY}={found['key']}"),
    )


def _show(added: Json) -> None:
    click.echo(f"REDIS_URL={added['redis_url']}\nARRESTER_SERVER_KEY={added['server_key']}")


def _report(answer: Json) -> ExitCode:
    """Print why Redis does not follow yet, and return the exit code."""
    if not answer["problem"]:
        return ExitCode.DONE
    click.echo(f"arrester: {answer['problem']}", err=True)
    return ExitCode.REFUSED
