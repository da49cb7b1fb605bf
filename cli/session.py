"""What each command by REST has: the options of the connection, and `--json`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from arrester.cli import output
from arrester.cli.client import Client, Json
from arrester.cli.connection import connection

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Session:
    """The client of a command, and the form of its output."""

    client: Client
    as_json: bool

    def print_list(
        self,
        path: str,
        columns: Sequence[output.Column],
        *,
        limit: int,
        empty: str,
        **filters: Any,
    ) -> Json:
        """Print the rows of a list, page by page up to `limit`; return the list."""
        found = self.client.pages(path, limit=limit, **filters)
        if self.as_json:
            output.print_json(found)
            return found
        rows = found["results"]
        output.print_table(rows, columns, empty=empty)
        if found["next"] is not None:
            click.echo(f"{len(rows)} rows; there are more: --limit {limit * 10}", err=True)
        return found

    def print(self, value: Json, show: Callable[[Json], None]) -> None:
        """Print a value of REST as JSON, or by a function for people."""
        if self.as_json:
            output.print_json(value)
        else:
            show(value)


_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="Print the JSON of REST."),
    click.option("--profile", metavar="NAME", help="The profile of `login`. [ARRESTER_PROFILE]"),
    click.option("--token", metavar="TOKEN", help="The token of an account. [ARRESTER_TOKEN]"),
    click.option("--url", metavar="URL", help="The server. [ARRESTER_URL]"),
)


def with_session(function: Callable[..., Result]) -> Callable[..., Result]:
    """Add the options of the connection to a command, and pass its session."""

    @wraps(function)
    def command(
        *args: Any,
        as_json: bool,
        url: str | None,
        token: str | None,
        profile: str | None,
        **options: Any,
    ) -> Result:
        found = connection(url=url, token=token, profile=profile)
        return function(Session(Client(found), as_json), *args, **options)

    return with_options(*_OPTIONS)(command)


def with_options(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Return a decorator that adds several options."""

    def decorate(function: Function) -> Function:
        for option in options:
            function = option(function)
        return function

    return decorate
