"""Commands for pipelines, which commands for tasks issue with `--pipeline`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from arrester.cli.exit_codes import InvalidInput
from arrester.cli.issue import IssueOptions, issue, require_reason
from arrester.cli.names import near_applications
from arrester.cli.session import Session
from arrester.domain.commands.kinds import KINDS
from arrester.domain.events import CommandKind

Function = TypeVar("Function", bound=Callable[..., Any])


def pipeline_option(text: str) -> Callable[[Function], Function]:
    """Return the option that names a pipeline in place of a task."""
    return click.option("--pipeline", metavar="APPLICATION/PIPELINE", help=text)


def issue_for_pipeline(
    session: Session,
    kind: CommandKind,
    pipeline: str,
    options: dict[str, Any],
    *,
    question: str | None = None,
    more: dict[str, Any] | None = None,
) -> None:
    """Issue a command for a pipeline; `more` has further fields, and no option names tasks."""
    names = ("task", "fingerprint", "application", "at_once", "observe", "drain")
    if any(options.get(name) not in (None, False) for name in names):
        raise InvalidInput("--pipeline is not allowed together with a task or with tasks")
    application, slash, name = pipeline.partition("/")
    if not slash or not name:
        raise InvalidInput(f"--pipeline {pipeline!r} is not allowed; allowed: APPLICATION/PIPELINE")
    if KINDS[kind].needs_reason:
        require_reason(options["reason"], "restart --pipeline")
    body = {"kind": kind.value, "application": application, "pipeline": name} | (more or {})
    with near_applications(session.client, application):
        issue(session, body, IssueOptions.pop(options), subject=pipeline, question=question)
