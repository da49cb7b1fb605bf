"""The lists: applications, tasks, error groups, failures, commands and alerts."""

from __future__ import annotations

from typing import Any

import click

from arrester.cli import output
from arrester.cli.commands.completion import complete_application, complete_task
from arrester.cli.names import find_task, near_applications, task_name, task_state
from arrester.cli.output import Column, Row, age
from arrester.cli.session import Session, with_options, with_session
from arrester.cli.values import rows
from arrester.cli.verdicts import sentence
from arrester.domain.plural import plural

LIMIT = click.option(
    "--limit",
    type=rows,
    default=50,
    metavar="ROWS",
    help="The most rows; more than 500 are several requests. [50]",
)
APPLICATION = click.option(
    "--application", "-a", metavar="NAME", shell_complete=complete_application,
    help="Of one application.",
)  # fmt: skip
PIPELINE = click.option("--pipeline", "-p", metavar="NAME", help="Of one pipeline.")
TASK = click.option(
    "--task", "-t", metavar="TASK", shell_complete=complete_task, help="Of one task: name or id."
)
TIMES = with_options(
    click.option("--until", metavar="TIME", help="Before this time, in ISO 8601."),
    click.option("--since", metavar="TIME", help="At this time or later, in ISO 8601."),
)
#: The columns of tasks.
TASK_COLUMNS: tuple[Column, ...] = (
    ("TASK", task_name),
    ("STATUS", task_state),
    ("SINCE", lambda row: age(row["first_stopped_at"] or row["status_changed_at"])),
    ("POSITION", "position"),
    ("HELD", "held"),
    ("FAILED", "failed"),
    ("CAUSE", lambda row: _cause(row)),
    ("MESSAGE", lambda row: _message(row["failure"])),
)
PIPELINE_COLUMNS: tuple[Column, ...] = (
    ("PIPELINE", lambda row: f"{row['application']}/{row['pipeline']}"),
    ("RUN", lambda row: row["run"] or "unguarded"),
    ("SINCE", lambda row: age(row["status_changed_at"])),
    ("IN/S", lambda row: _rate(row["records_in_per_second"])),
    ("OUT/S", lambda row: _rate(row["records_out_per_second"])),
    ("FAILED", lambda row: _percent(row["failed_share"])),
    ("HELD", "held"),
    ("P95", lambda row: _seconds(row["batch_p95_ms"])),
    ("BACKLOG", "backlog"),
    ("LAST BATCH", lambda row: age(row["last_batch_at"])),
    ("RELEASE", "release"),
)
APPLICATION_COLUMNS: tuple[Column, ...] = (
    ("APPLICATION", "name"),
    ("STATUS", "status"),
    ("ATTENTION", "attention"),
    ("INSTANCES", "instances"),
    ("LOST", "lost"),
    ("PAUSED", "paused"),
    ("DEAD", "dead"),
    ("HELD", "held"),
    ("FAILED", "failed"),
    ("ERRORS", "groups"),
    ("COMMANDS", "open_commands"),
    ("LAST EVENT", lambda row: age(row["last_event_at"])),
)


@click.command()
@with_session
def apps(session: Session) -> None:
    """List applications with their states and counts."""
    session.print(
        session.client.get("applications"),
        lambda page: output.print_table(
            page["results"],
            APPLICATION_COLUMNS,
            empty="no applications: they appear when an agent starts",
        ),
    )


@click.command()
@APPLICATION
@click.option("--run", "-r", metavar="STATE", help="RUNNING, PAUSED, DEAD, LOST or STOPPED.")
@LIMIT
@with_session
def pipelines(session: Session, *, application: str | None, limit: int, run: str | None) -> None:
    """List pipelines with their runs, and what flows through them."""
    empty = "no pipelines that match"
    print_list(session, "pipelines", PIPELINE_COLUMNS, application, limit, empty, run=run)


@click.command()
@APPLICATION
@PIPELINE
@click.option(
    "--status",
    "--state",
    "-s",
    "status",
    metavar="STATUS",
    help="RUNNING, PAUSED, DEAD, DISMISSED, or NO_RUN: RUNNING ones that no run processes.",
)
@click.option("--owner", metavar="NAME", help="Of a person or a team; none: those without one.")
@click.option(
    "--sort", metavar="COLUMN", help="-status_changed_at (default), -held, -failed or urgency."
)
@LIMIT
@with_session
def tasks(session: Session, *, application: str | None, limit: int, **filters: Any) -> None:
    """List tasks of live checkpoints, from their first failure on."""
    print_list(session, "tasks", TASK_COLUMNS, application, limit, "no tasks that match", **filters)


@click.command()
@APPLICATION
@click.option(
    "--status",
    "--state",
    "-s",
    "status",
    metavar="STATUS",
    help="UNRESOLVED (default), RESOLVED, MUTED or all.",
)
@click.option("--text", metavar="TEXT", help="In the class or in the message.")
@click.option("--owner", metavar="NAME", help="Of a person or a team; none: those without one.")
@TIMES
@LIMIT
@with_session
def errors(session: Session, *, application: str | None, limit: int, **filters: Any) -> None:
    """List error groups: failed records and ended runs by cause, the newest failure first."""
    columns: tuple[Column, ...] = (
        ("APPLICATION", "application"),
        ("FINGERPRINT", "fingerprint"),
        ("STATUS", "status"),
        ("COUNT", "count"),
        ("ENDED RUNS", "ended_runs"),
        ("LAST SEEN", lambda row: age(row["last_seen_at"])),
        ("OWNER", lambda row: row.get("owner")),
        ("STAGE", "stage"),
        ("CLASS", lambda row: short(row["exception_class"])),
        ("MESSAGE", lambda row: output.message(row["message"])),
    )
    print_list(session, "errors", columns, application, limit, "no errors that match", **filters)


@click.command()
@APPLICATION
@PIPELINE
@TASK
@click.option("--stage", metavar="STAGE", help="Of one stage, such as deserialize.")
@click.option("--error", "fingerprint", metavar="FINGERPRINT", help="Of one error group.")
@TIMES
@LIMIT
@with_session
def failures(
    session: Session, *, application: str | None, task: str | None, limit: int, **filters: Any
) -> None:
    """List failed records, newest first; a row may count several."""
    columns: tuple[Column, ...] = (
        ("AGE", lambda row: age(row["occurred_at"])),
        ("TASK", task_name),
        ("POSITION", "first_position"),
        ("COUNT", "count"),
        ("RESPONSE", "response"),
        ("STAGE", lambda row: row["failure"]["stage"]),
        ("CLASS", lambda row: short(row["failure"]["exception_class"])),
        ("MESSAGE", lambda row: _message(row["failure"])),
    )
    filters["task"] = task_id(session, task)
    print_list(
        session, "failures", columns, application, limit, "no failures that match", **filters
    )


@click.command()
@click.argument("text", metavar="TEXT")
@APPLICATION
@LIMIT
@with_session
def find(session: Session, *, text: str, application: str | None, limit: int) -> None:
    """Find failed records by field:value, key:K, position:N, or words; newest first.

    \b
    arrester find invoice:INV-001-0017
    arrester find 'dest:JFK "minutes late"'
    """
    columns: tuple[Column, ...] = (
        ("AGE", lambda row: age(row["event"]["received_at"])),
        ("TASK", lambda row: task_name(row["event"])),
        ("POSITION", lambda row: row["event"]["first_position"]),
        ("OUTCOME", "outcome"),
        ("MATCHES", lambda row: ", ".join(row["matches"])),
        ("STAGE", lambda row: row["event"]["failure"]["stage"]),
        ("CLASS", lambda row: short(row["event"]["failure"]["exception_class"])),
        ("MESSAGE", lambda row: _message(row["event"]["failure"])),
    )
    empty = "no record that matches"
    found = print_list(session, "records", columns, application, limit, empty, q=text)
    if session.as_json:
        return
    # Beyond the records: the dead letters of those that were only counted.
    for each in found["dead_letters"]:
        name = f"{task_name(each)} at {each['position']:,}"
        click.echo(f"{name}: dead letter {each['id']} {each['status']}, counted only")
    for name, events in found["not_indexed"].items():
        new = plural(events, "new event")
        click.echo(f"{new} of {name} cannot be searched yet; try again in some seconds", err=True)


@click.command()
@APPLICATION
@TASK
@click.option("--rollout", "part_of", metavar="ID", help="The commands that a rollout has issued.")
@LIMIT
@with_session
def commands(
    session: Session, *, application: str | None, task: str | None, limit: int, **filters: Any
) -> None:
    """List commands, newest first. A redrive is one; --rollout lists those that it has issued."""
    columns: tuple[Column, ...] = (
        ("ID", "id"),
        ("KIND", "kind"),
        ("APPLICATION", "application"),
        ("TASK", "task"),
        ("STATUS", "status"),
        ("ISSUED", lambda row: age(row["issued_at"])),
        ("ACTOR", "actor"),
        ("VERDICT", lambda row: sentence(row["verdict"]) if row["verdict"] else None),
        ("REASON", lambda row: output.message(row["reason"]) if row["reason"] else None),
    )
    filters["task"] = task_id(session, task)
    if filters["part_of"] is None:
        filters["parts"] = "false"
    print_list(session, "commands", columns, application, limit, "no commands yet", **filters)


@click.command()
@APPLICATION
@click.option("--all", "resolved", is_flag=True, help="Resolved alerts too, newest first.")
@LIMIT
@with_session
def alerts(session: Session, *, application: str | None, resolved: bool, limit: int) -> None:
    """List open alerts, the critical ones first."""
    columns: tuple[Column, ...] = (
        ("ID", "id"),
        ("SEVERITY", lambda row: "critical" if row["critical"] else "warning"),
        ("SINCE", lambda row: age(row["began_at"])),
        ("RESOLVED", lambda row: age(row["resolved_at"]) if row["resolved_at"] else None),
        ("ALERT", lambda row: output.message(row["title"])),
        ("MESSAGES", _messages),
    )
    filters = {"open": "false" if resolved else "true"}
    print_list(session, "alerts", columns, application, limit, "no open alerts", **filters)


def _messages(row: Row) -> str | None:
    """Return where the messages about an alert went, and their states."""
    found = [f"{each['channel']} {each['status'].lower()}" for each in row["messages"]]
    return ", ".join(found) or None


def print_list(
    session: Session,
    path: str,
    columns: tuple[Column, ...],
    application: str | None,
    limit: int,
    empty: str,
    **filters: Any,
) -> Any:
    """Print a list, and return it."""
    with near_applications(session.client, application):
        return session.print_list(
            path, columns, limit=limit, empty=empty, application=application, **filters
        )


def task_id(session: Session, name: str | None) -> str | None:
    return None if name is None else str(find_task(session.client, name)["id"])


def _rate(number: float | None) -> str | None:
    return None if number is None else f"{number:,.{0 if number >= 10 else 2}f}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.2f} %"


def _seconds(milliseconds: float | None) -> str | None:
    return None if milliseconds is None else f"{milliseconds / 1000:,.1f}s"


def _cause(row: Row) -> str | None:
    return None if row["failure"] is None else short(row["failure"]["exception_class"])


def _message(failure: Row | None) -> str | None:
    return output.message(failure["message"]) if failure and failure["message"] else None


def short(exception_class: str) -> str:
    """Return the name of a class without its package."""
    return exception_class.rpartition(".")[2]
