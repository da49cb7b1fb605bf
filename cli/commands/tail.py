"""The events of all applications, as they come or as a file."""

from __future__ import annotations

import json
from pathlib import Path
from time import sleep
from typing import Any

import click

from arrester.cli import output
from arrester.cli.client import Json
from arrester.cli.commands.lists import APPLICATION
from arrester.cli.exit_codes import Refused, Unreachable
from arrester.cli.names import near_applications
from arrester.cli.session import Session, with_session

_POLL_SECONDS = 1.0
_MOST = 500
_GONE = 410


@click.command()
@APPLICATION
@click.option("--follow", "-f", is_flag=True, help="Print new events until Ctrl-C.")
@click.option(
    "--lines", "-n", type=click.IntRange(0, _MOST), default=20, show_default=True,
    help="The newest events to begin with.",
)  # fmt: skip
@with_session
def tail(session: Session, *, application: str | None, follow: bool, lines: int) -> None:
    """Print the newest events; with -f also later ones. With --json one event a line."""
    with near_applications(session.client, application):
        events, cursor = _newest(session, application, lines)
    for event in events:
        _print(session, event)
    try:
        while follow:
            sleep(_POLL_SECONDS)
            cursor = _print_new(session, application, cursor)
    except KeyboardInterrupt:
        return


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@APPLICATION
@click.option("--since", metavar="TIME", help="Received after this time, in ISO 8601.")
@click.option("--until", metavar="TIME", help="Received up to this time, in ISO 8601.")
@click.option("--type", "type_", metavar="TYPE", help="Of one type, such as RecordFailed.")
@with_session
def export(
    session: Session,
    *,
    file: Path,
    application: str | None,
    since: str | None,
    until: str | None,
    type_: str | None,
) -> None:
    """Write events into FILE as Parquet, with the fields of failures as columns."""
    wanted = {"application": application, "since": since, "until": until, "type": type_}
    with near_applications(session.client, application):
        size = session.client.download("feed/parquet", file, **wanted)
    written = {"file": str(file), "bytes": size}
    session.print(written, lambda found: click.echo(f"events are in {found['file']}"))


def _newest(session: Session, application: str | None, lines: int) -> tuple[list[Json], str]:
    """Return the newest events of all logs in order of receipt, and the cursor after them."""
    page = session.client.post("feed", _body(application, last=lines))
    events = page["results"]
    while page["more"]:
        page = session.client.post("feed", _body(application, cursor=page["next"]))
        events += page["results"]
    events.sort(key=lambda event: output.parsed(event["received_at"]))
    return events[-lines:] if lines else [], page["next"]


def _print_new(session: Session, application: str | None, cursor: str) -> str:
    """Print the events after a cursor; return the next one."""
    more = True
    try:
        while more:
            page = session.client.post("feed", _body(application, cursor=cursor))
            for event in page["results"]:
                _print(session, event)
            cursor, more = page["next"], page["more"]
    except Unreachable as error:
        # A follower outlives a restart of the server: the cursor misses nothing.
        click.echo(f"arrester: {error.message}; trying again", err=True)
    except Refused as refused:
        if refused.status != _GONE:
            raise
        raise Refused(f"{refused.message}; start `arrester tail` again", status=_GONE) from None
    return cursor


def _body(application: str | None, **more: Any) -> dict[str, Any]:
    body = {"limit": _MOST, **more}
    return body if application is None else body | {"application": application}


def _print(session: Session, event: Json) -> None:
    if session.as_json:
        click.echo(json.dumps(event))
        return
    at = f"{output.parsed(event['occurred_at']):%Y-%m-%d %H:%M:%S}"
    run = event["run"] or {}
    where = "/".join(filter(None, [event["application"], run.get("pipeline")]))
    where = f"{where} @{event['sequence']}"
    click.echo(output.plain(f"{at}  {where:<28}  {event['type']:<20}  {_fields(event['data'])}"))


def _fields(data: dict[str, Any]) -> str:
    """Return the fields of an event in short: a failure by its class and message."""
    texts = []
    for name, value in data.items():
        if name == "failure" and isinstance(value, dict):
            exception = str(value.get("exception_class", "")).rpartition(".")[2]
            # The message of counted failures is that of another record.
            message = "" if "first_position" in data else str(value.get("message", ""))
            texts.append(f"{exception}: {output.message(message)}" if message else exception)
        elif isinstance(value, str | int | float):
            texts.append(f"{name}={value}")
    return output.message(" ".join(texts))
