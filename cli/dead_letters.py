"""Dead letters: list them one by one, and show one."""

from __future__ import annotations

from typing import Any

import click

from arrester.cli import output
from arrester.cli.client import Json
from arrester.cli.lists import APPLICATION, LIMIT, PIPELINE, TASK, TIMES, print_list, short, task_id
from arrester.cli.names import task_name
from arrester.cli.output import Column, Row, age
from arrester.cli.session import Session, with_session


@click.group(name="dead-letters")
def dead_letters() -> None:
    """List skipped records that were written as dead letters, and show one."""


@dead_letters.command(name="list")
@APPLICATION
@PIPELINE
@TASK
@click.option("--stage", metavar="STAGE", help="Of one stage, such as process:validate.")
@click.option("--class", "exception_class", metavar="NAME", help="Of one class, with its package.")
@click.option("--error", "fingerprint", metavar="FINGERPRINT", help="Of one error group.")
@click.option(
    "--status", metavar="STATUS", help="Of one status, or open: WAITING and FAILED_AGAIN."
)
@TIMES
@LIMIT
@with_session
def list_records(
    session: Session, *, application: str | None, task: str | None, limit: int, **filters: Any
) -> None:
    """List dead letters one by one, newest first."""
    columns: tuple[Column, ...] = (
        ("AGE", lambda row: age(row["occurred_at"])),
        ("TASK", task_name),
        ("POSITION", "position"),
        ("CAUSE", _cause),
        ("STATUS", "status"),
        ("ACTOR", "actor"),
        ("FORMAT", "format"),
        ("ID", "id"),
    )
    filters["task"] = task_id(session, task)
    print_list(session, "dead-letters", columns, application, limit, "no dead letters", **filters)


@dead_letters.command()
@click.argument("application")
@click.argument("id")
@with_session
def show(session: Session, *, application: str, id: str) -> None:
    """Show the dead letter of APPLICATION with this ID."""
    session.print(session.client.get(f"dead-letters/{application}/{id}"), _show)


def _show(found: Json) -> None:
    cause = found["cause"] or {}
    output.print_details(
        [
            ("dead letter", found["id"]),
            ("task", task_name(found)),
            ("status", found["status"]),
            ("redrives", found["redrives"]),
            ("redrive", found["redrive"]),
            ("position", found["position"]),
            ("bytes", found["size"]),
            ("stage", cause.get("stage")),
            ("exception", cause.get("exception_class")),
            ("message", cause.get("message")),
            ("error group", cause.get("fingerprint")),
            ("place", found["place"]),
            ("format", found["format"]),
            ("actor", found["actor"]),
            ("reason", found["reason"]),
            ("time", found["occurred_at"]),
            ("event", f"{found['application']} @ {found['sequence']:,}"),
            ("first event", f"{found['application']} @ {found['first_sequence']:,}"),
        ]
    )


def _cause(row: Row) -> str | None:
    return None if row["cause"] is None else short(row["cause"]["exception_class"])
