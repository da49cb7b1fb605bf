"""The state of everything on one screen."""

from __future__ import annotations

import click
from rich.text import Text

from arrester.cli import output
from arrester.cli.client import Json
from arrester.cli.commands.lists import PIPELINE_COLUMNS, TASK_COLUMNS
from arrester.cli.output import Column, Row
from arrester.cli.session import Session, with_session

_CONDITION_COLUMNS: tuple[Column, ...] = (
    ("NEEDS ATTENTION", "cause"),
    ("APPLICATION", "application"),
    ("WHAT", "name"),
    ("SINCE", lambda row: output.age(row["began_at"])),
    ("WHY", lambda row: output.message(row["line"])),
)


@click.command()
@with_session
def status(session: Session) -> None:
    """Show what needs attention, applications, recent failures and the server's health."""
    url = session.client.connection.url
    session.print(session.client.get("status"), lambda found: _show(url, found))


def _show(url: str, found: Json) -> None:
    output.print_details(
        [
            ("server", f"{url}, Arrester {found['version']}"),
            ("account", f"{found['account']}, {found['role']}"),
            ("failed", f"{sum(found['failed_last_hour'].values()):,} records in the last hour"),
            ("held", f"{sum(each['held'] for each in found['applications']):,} records"),
            ("waiting", _waiting(found)),
            ("quarantine", f"{found['quarantined']:,} entries"),
        ]
    )
    parts = Text("parts       ", style="bold")
    for part in found["parts"]:
        parts.append(f"{part['name']} {_part(part)}  ", style="green" if part["up"] else "bold red")
    output.print_rich(parts)
    click.echo()
    output.print_table(found["conditions"], _CONDITION_COLUMNS, empty="nothing needs attention")
    # An earlier server lists all of them.
    more = found.get("conditions_in_all", 0) - len(found["conditions"])
    if more > 0:
        click.echo(f"{more:,} more: see ATTENTION of each application")
    click.echo()
    output.print_table(
        found["applications"],
        _application_columns(found["failed_last_hour"]),
        empty="no applications: they appear when an agent starts",
    )
    click.echo()
    output.print_table(found["pipelines"], PIPELINE_COLUMNS, empty="no pipelines yet")
    if found["pipelines_in_all"] > len(found["pipelines"]):
        click.echo(f"{found['pipelines_in_all']:,} in all: arrester pipelines")
    click.echo()
    output.print_table(found["stopped"], TASK_COLUMNS, empty="no stopped tasks")
    stopped = sum(each["paused"] + each["dead"] for each in found["applications"])
    if stopped > len(found["stopped"]):
        more = stopped - len(found["stopped"])
        click.echo(f"{more:,} more: arrester tasks --state PAUSED, arrester tasks --state DEAD")


def _waiting(found: Json) -> str:
    waiting = found["waiting"]
    return "unknown: Redis does not answer" if waiting is None else f"{waiting:,} batches in Redis"


def _part(part: Json) -> str:
    if part["up"]:
        return "up"
    return (
        f"down, last seen {output.age(part['last_seen_at'])} ago"
        if part["last_seen_at"]
        else "down"
    )


def _application_columns(failed: dict[str, int]) -> tuple[Column, ...]:
    def failed_last_hour(row: Row) -> int:
        return failed.get(row["name"], 0)

    return (
        ("APPLICATION", "name"),
        ("STATUS", "status"),
        ("ATTENTION", "attention"),
        ("INSTANCES", "instances"),
        ("LOST", "lost"),
        ("PAUSED", "paused"),
        ("DEAD", "dead"),
        ("HELD", "held"),
        ("FAILED 1H", failed_last_hour),
        ("COMMANDS", "open_commands"),
        ("LAST EVENT", lambda row: output.age(row["last_event_at"])),
    )
