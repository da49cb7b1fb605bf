"""Commands for applications: shutdown and start."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click

from arrester.cli.commands.completion import complete_application
from arrester.cli.issue import IssueOptions, issue, issue_options, require_reason
from arrester.cli.names import near_applications
from arrester.cli.session import Session, with_session
from arrester.domain.events import CommandKind

_APPLICATION = click.argument("application", shell_complete=complete_application)


@click.command()
@_APPLICATION
@click.option("--instance", type=click.UUID, help="Only this instance; the others go on.")
@click.option("--force", is_flag=True, help="Cancel Spark jobs in progress.")
@issue_options
@with_session
def shutdown(
    session: Session, *, application: str, instance: UUID | None, force: bool, **options: Any
) -> None:
    """Stop all instances of an application, or one of them. It needs --reason.

    The application is LATCHED then, and runs again only after `arrester start`.
    """
    require_reason(options["reason"], "shutdown")
    body: dict[str, Any] = {
        "kind": CommandKind.SHUT_DOWN_APPLICATION.value,
        "application": application,
    }
    subject = f"all instances of {application}"
    if instance is not None:
        body |= {"kind": CommandKind.SHUT_DOWN_INSTANCE.value, "instance": str(instance)}
        subject = f"instance {instance} of {application}"
    if force:
        body["force"] = True
        subject += " and cancel their Spark jobs"
    question = f"Shut down {subject}?"
    with near_applications(session.client, application):
        issue(session, body, IssueOptions.pop(options), subject=application, question=question)


@click.command()
@_APPLICATION
@issue_options
@with_session
def start(session: Session, *, application: str, **options: Any) -> None:
    """Let a LATCHED application run again; its driver is started by its own scheduler."""
    body = {"kind": CommandKind.START_APPLICATION.value, "application": application}
    with near_applications(session.client, application):
        issue(session, body, IssueOptions.pop(options), subject=application)
