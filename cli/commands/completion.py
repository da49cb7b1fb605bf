"""Completion in shells: the script of a shell, and names of applications and tasks."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from arrester.cli.connection import connection

_SHELLS = ("bash", "zsh", "fish")
#: Names that a completion requests at most.
_OFFERED = 200


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    For bash, for example: eval "$(arrester completion bash)"
    """
    from arrester.cli.main import arrester

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(arrester, {}, "arrester", "_ARRESTER_COMPLETE").source())


def complete_application(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the applications that begin with a text."""
    page = _request(ctx, "applications") or {"results": []}
    names = [each["name"] for each in page["results"]]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_task(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the tasks that begin with a text, with their status."""
    from arrester.cli.names import task_name

    application = ctx.params.get("application")
    page = _request(ctx, "tasks", limit=_OFFERED, application=application) or {"results": []}
    tasks = [(task_name(each), each["status"]) for each in page["results"]]
    return [
        CompletionItem(name, help=status) for name, status in tasks if name.startswith(incomplete)
    ]


def _request(ctx: click.Context, path: str, **parameters: Any) -> Any:
    """Return the JSON of an endpoint; None if it fails: a completion prints no errors."""
    from arrester.cli.client import Client

    try:
        options = {name: ctx.params.get(name) for name in ("url", "token", "profile")}
        return Client(connection(**options)).get(path, **parameters)
    except click.ClickException:
        return None
