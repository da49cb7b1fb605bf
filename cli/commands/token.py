"""The REST tokens of accounts: list, create and revoke them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from arrester.cli import output
from arrester.cli.client import Json
from arrester.cli.exit_codes import InvalidInput, Refused, Unreachable
from arrester.cli.session import Session, with_session

SCOPES = ("read", "operate")
DAYS_MAX = 365


@click.group()
def token() -> None:
    """List, create and revoke REST tokens."""


@token.command(name="list")
@with_session
def list_tokens(session: Session) -> None:
    """List the tokens of the own account; for admins of all accounts."""
    columns: tuple[output.Column, ...] = (
        ("ID", "id"),
        ("ACCOUNT", "account"),
        ("NAME", "name"),
        ("SCOPE", "scope"),
        ("LAST USED", "last_used_at"),
        ("EXPIRES", "expires_at"),
    )
    session.print(
        session.client.get("tokens"),
        lambda page: output.print_table(page["results"], columns, empty="no tokens"),
    )


@token.command()
@click.argument("name")
@click.option(
    "--application",
    "applications",
    multiple=True,
    help="The token may see and act on this application only; may be repeated.",
)
@click.option("--scope", type=click.Choice(SCOPES), default="read", show_default=True)
@click.option(
    "--days", type=click.IntRange(1, DAYS_MAX), default=90, show_default=True, help="Until it ends."
)
@click.option("--never-expires", is_flag=True, help="Without an end; admins only.")
@with_session
def create(
    session: Session,
    *,
    name: str,
    scope: str,
    days: int,
    never_expires: bool,
    applications: Sequence[str],
) -> None:
    """Create a token of the own account, and print it once."""
    body: dict[str, Any] = {
        "name": name,
        "scope": scope,
        "days": None if never_expires else days,
    }
    if applications:
        body["applications"] = list(applications)
    try:
        # Without an id, a repetition could create a second one.
        created = session.client.post("tokens", body, repeat=False)
    except Unreachable as error:
        raise Unreachable(
            f"{error.message} Whether the token was created is unknown: see `arrester token list`,"
            " and revoke it there"
        ) from None
    session.print(created, lambda created: click.echo(created["token"]))


@token.command()
@click.argument("id", type=int)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@with_session
def revoke(session: Session, *, id: int, yes: bool) -> None:
    """Revoke the token with an id of `token list`: an own one, for admins any."""
    confirm(f"Revoke token {id}?", yes)
    session.client.delete(f"tokens/{id}")
    revoked: Json = {"id": id}
    session.print(revoked, lambda _: click.echo(f"token {id} is revoked"))


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation, unless `yes`; raise Refused without it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{question} Without a terminal this needs --yes")
    if not click.confirm(question, err=True):
        raise Refused("not confirmed; nothing was changed")
