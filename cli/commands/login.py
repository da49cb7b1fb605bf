"""Log in: check the URL and the token of a server, and store them as a profile."""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit

import click

from arrester.cli import profiles
from arrester.cli.client import Client
from arrester.cli.connection import Connection, checked_token, checked_url, profile_name
from arrester.cli.exit_codes import InvalidInput

_LOCAL = ("127.0.0.1", "localhost", "::1")


@click.command()
@click.option("--url", metavar="URL", help="The server. [ARRESTER_URL]")
@click.option("--token", metavar="TOKEN", help="The token of an account. [ARRESTER_TOKEN]")
@click.option("--profile", metavar="NAME", help="The name of the profile. [ARRESTER_PROFILE]")
def login(url: str | None, token: str | None, profile: str | None) -> None:
    """Check a URL and a token, and store them as a profile.

    The page Settings of the dashboard creates the token. Without options it asks for both.
    """
    name = profile_name(profile)
    profiles.load()  # a file that is not valid is an error before any question
    url = checked_url(url or os.environ.get("ARRESTER_URL") or _ask("URL of the server"))
    token = token or os.environ.get("ARRESTER_TOKEN")
    token = checked_token(token or _ask(f"Token (from {url}/settings)", hide=True))
    found = Client(Connection(url=url, token=token)).get("status")
    path = profiles.save(name, profiles.Profile(url=url, token=token))
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in _LOCAL:
        click.echo(f"arrester: {url} is not HTTPS: the token is readable on the network", err=True)
    click.echo(f"{found['account']} ({found['role']}) at {url}: profile {name!r} in {path}")


def _ask(question: str, *, hide: bool = False) -> str:
    if not sys.stdin.isatty():
        raise InvalidInput(f"{question} is missing; allowed: --url and --token without a terminal")
    return str(click.prompt(question, hide_input=hide, err=True))
