"""The REST tokens of accounts: list, create and revoke them."""

from __future__ import annotations

import sys

import click

from arrester.cli import output, profiles
from arrester.cli.client import Json, segment
from arrester.cli.exit_codes import InvalidInput, Refused, Unreachable
from arrester.cli.session import Session, with_session


@click.group()
def token() -> None:
    """List, create and revoke REST tokens."""


@token.command(name="list")
@with_session
def list_tokens(session: Session) -> None:
    """List the own account and when its token was created; for admins all accounts."""
    columns: tuple[output.Column, ...] = (
        ("ACCOUNT", "account"),
        ("ROLE", "role"),
        ("TOKEN CREATED", "created_at"),
    )
    session.print(
        session.client.get("tokens"),
        lambda rows: output.print_table(rows, columns, empty="no accounts"),
    )


@token.command()
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@with_session
def create(session: Session, *, yes: bool) -> None:
    """Create the token of the own account, which replaces the one before.

    A profile that has the token before is updated. Otherwise the new token is printed once.
    """
    _confirm("Replace the token of this account?", yes)
    connection = session.client.connection
    try:
        # A repetition with a token that has ended would be refused.
        created = session.client.post("tokens", {}, repeat=False)
    except Unreachable as error:
        raise Unreachable(
            f"{error.message} Whether the token was replaced is unknown: if it is not valid any"
            f" more, create one at {connection.url}/settings"
        ) from None
    # First, so that it is not lost with the disk.
    session.print(created, _show_token)
    if connection.profile is not None:
        profile = profiles.Profile(url=connection.url, token=created["token"])
        path = profiles.save(connection.profile, profile)
        message = f"arrester: profile {connection.profile!r} in {path} has the new token"
        click.echo(message, err=True)


@token.command()
@click.argument("account")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@with_session
def revoke(session: Session, *, account: str, yes: bool) -> None:
    """End the token of an account: the own one, for admins any."""
    _confirm(f"Revoke the token of {account}?", yes)
    session.client.delete(f"tokens/{segment(account)}")
    session.print({"account": account}, lambda _: click.echo(f"{account} has no token"))


def _show_token(created: Json) -> None:
    click.echo(created["token"])


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{question} Without a terminal this needs --yes")
    if not click.confirm(question, err=True):
        raise Refused("not confirmed; nothing was changed")
