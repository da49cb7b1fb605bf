"""Dead letters: list them one by one, show one, and redrive or discard some."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import click

from arrester.cli import output
from arrester.cli.client import Json
from arrester.cli.commands.completion import complete_application
from arrester.cli.commands.lists import (
    APPLICATION,
    LIMIT,
    PIPELINE,
    TASK,
    TIMES,
    print_list,
    short,
    task_id,
)
from arrester.cli.commands.token import confirm
from arrester.cli.exit_codes import InvalidInput
from arrester.cli.issue import REDRIVE, IssueOptions, issue, issue_options
from arrester.cli.names import near_applications, task_name
from arrester.cli.output import Column, Row, age
from arrester.cli.session import Session, with_options, with_session
from arrester.cli.values import json_patch
from arrester.domain.identity.uuids import uuid7
from arrester.domain.plural import plural
from arrester.domain.python_versions import UTC


@click.group(name="dead-letters")
def dead_letters() -> None:
    """List dead letters, show one, and redrive or discard some."""


_FILTERS = with_options(
    TIMES,
    click.option(
        "--status", metavar="STATUS", help="Of one status, or open: WAITING and FAILED_AGAIN."
    ),
    click.option("--error", "fingerprint", metavar="FINGERPRINT", help="Of one error group."),
    click.option(
        "--class", "exception_class", metavar="NAME", help="Of one class, with its package."
    ),
    click.option("--stage", metavar="STAGE", help="Of one stage, such as process:validate."),
    TASK,
    PIPELINE,
)


@dead_letters.command(name="list")
@APPLICATION
@_FILTERS
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
        ("MESSAGE", lambda row: output.message(row["message"]) if row["message"] else None),
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
            ("message", found["message"]),
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


@dead_letters.command()
@click.argument("application", shell_complete=complete_application)
@click.argument("ids", nargs=-1)
@_FILTERS
@click.option("--reason", metavar="TEXT", required=True, help="Why; it is in the audit.")
@click.option("--dry-run", is_flag=True, help="Show what it would discard; discard nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@with_session
def discard(
    session: Session,
    *,
    application: str,
    ids: tuple[str, ...],
    reason: str,
    dry_run: bool,
    yes: bool,
    task: str | None,
    **filters: Any,
) -> None:
    """Discard dead letters of APPLICATION that wait: IDS, or all that match the filters.

    The server does not redrive them. This cannot be undone.
    """
    wanted = filters | {"task": task_id(session, task), "ids": list(ids) or None}
    body = {name: value for name, value in wanted.items() if value is not None}
    if not body:
        raise InvalidInput("discard needs IDS or a filter, such as --pipeline or --error")
    what = plural(len(ids), "dead letter") if ids else "all dead letters of the filter that wait"
    body |= {"application": application, "reason": reason}
    with near_applications(session.client, application):
        if dry_run or not yes:
            plan = session.client.post("dead-letters/discard", body | {"dry_run": True})
            if dry_run:
                session.print(plan, _show_plan)
                return
            afterwards = output.plain(plan["afterwards"] or "")
            confirm(f"Discard {what} of {application}? {afterwards}".rstrip(), yes)
        body["id"] = str(uuid7(datetime.now(UTC)))
        done = session.client.post("dead-letters/discard", body)
    session.print(done, _show_discarded)


@dead_letters.command()
@click.argument("application", shell_complete=complete_application)
@click.argument("ids", nargs=-1)
@_FILTERS
@click.option("--patch", metavar="JSON", help="A JSON Patch (RFC 6902) of each record, or @FILE.")
@click.option(
    "--test",
    is_flag=True,
    help="The pipeline runs its steps on the one record; nothing else happens.",
)
@click.option("--at-once", is_flag=True, help="Without waves.")
@click.option(
    "--records-per-minute", type=click.IntRange(min=1), help="The most records in a minute."
)
@issue_options
@with_session
def redrive(
    session: Session,
    *,
    application: str,
    ids: tuple[str, ...],
    task: str | None,
    patch: str | None,
    test: bool,
    at_once: bool,
    records_per_minute: int | None,
    **options: Any,
) -> None:
    """Process dead letters of APPLICATION that wait once more: IDS, or all that match the filters.

    They are of one pipeline. It needs --reason, unless with --test.
    """
    settings = IssueOptions.pop(options)
    if test:
        _test(session, application, ids, patch, settings)
        return
    wanted = options | {"task": task_id(session, task), "ids": list(ids) or None}
    body = {name: value for name, value in wanted.items() if value is not None}
    if not body:
        raise InvalidInput("redrive needs IDS or a filter, such as --pipeline or --error")
    if settings.reason is None and not settings.dry_run:
        raise InvalidInput("redrive needs --reason")
    if patch is not None:
        body["patch"] = json_patch(patch)
    if records_per_minute is not None:
        body["records_per_minute"] = records_per_minute
    body |= {"application": application, "waves": not at_once}
    what = plural(len(ids), "dead letter") if ids else "all dead letters of the filter that wait"
    with near_applications(session.client, application):
        issue(
            session,
            body,
            settings,
            subject=application,
            question=f"Redrive {what} of {application}?",
            path=REDRIVE,
        )


def _test(
    session: Session,
    application: str,
    ids: tuple[str, ...],
    patch: str | None,
    settings: IssueOptions,
) -> None:
    if len(ids) != 1 or settings.dry_run:
        raise InvalidInput("--test is allowed with one ID, and without --dry-run")
    body = {} if patch is None else {"patch": json_patch(patch)}
    settings = replace(settings, wait=True, reason=None)
    path = f"dead-letters/{application}/{ids[0]}/test"
    issue(session, body, settings, subject=application, path=path)


def _show_plan(plan: Json) -> None:
    output.print_details(
        [
            ("dry run", "nothing was discarded"),
            ("dead letters", plan["discarded"]),
            ("unchanged", plan["unchanged"]),
            ("afterwards", plan["afterwards"]),
        ]
    )


def _show_discarded(done: Json) -> None:
    click.echo(f"{done['discarded']:,} discarded, {done['unchanged']:,} unchanged")
    if done["more"]:
        click.echo("there are more: repeat the command", err=True)


def _cause(row: Row) -> str | None:
    return None if row["cause"] is None else short(row["cause"]["exception_class"])
