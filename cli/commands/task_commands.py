"""Commands for tasks: resume, skip, pause and restart, one by one or all with one cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from arrester.cli.commands.completion import complete_application, complete_task
from arrester.cli.commands.pipeline_commands import issue_for_pipeline, pipeline_option
from arrester.cli.draining import wait_until_drained
from arrester.cli.exit_codes import InvalidInput
from arrester.cli.issue import IssueOptions, issue, issue_options
from arrester.cli.names import (
    find_group,
    find_task,
    find_task_or_key,
    near_applications,
    task_name,
)
from arrester.cli.session import Session, with_options, with_session
from arrester.cli.values import json_patch, seconds
from arrester.domain.commands.kinds import ROLLOUTS, TASK_KINDS
from arrester.domain.events import CommandKind

_TASK = click.argument("task", required=False, shell_complete=complete_task)
_BULK = with_options(
    click.option(
        "--observe", type=seconds, metavar="TIME",
        help="How long after a wave no task may stop again. [30s]",
    ),
    click.option("--at-once", is_flag=True, help="A rollout without waves."),
    click.option(
        "--all", "application", metavar="APPLICATION", shell_complete=complete_application,
        help="All stopped tasks of an application, as a rollout.",
    ),
    click.option(
        "--error", "fingerprint", metavar="FINGERPRINT",
        help="All tasks that an error group has stopped, as a rollout.",
    ),
)  # fmt: skip


_DRAIN = click.option(
    "--drain", is_flag=True, help="As --wait, then wait until the held records are processed."
)
#: The rollout of a kind of command for a task.
_ROLLOUT_OF = {part: rollout for rollout, part in ROLLOUTS.items()}


@click.command()
@_TASK
@_DRAIN
@_BULK
@pipeline_option("Resume a PAUSED pipeline.")
@issue_options
@with_session
def resume(session: Session, *, pipeline: str | None, **options: Any) -> None:
    """Resume a PAUSED task at its failed record, all tasks with one cause, or a pipeline.

    TASK is APPLICATION/PIPELINE/KEY, or the id of a task.
    """
    if pipeline is None:
        _issue(session, CommandKind.RESUME_TASK, options)
    else:
        issue_for_pipeline(session, CommandKind.RESUME_PIPELINE, pipeline, options)


@click.command()
@_TASK
@_DRAIN
@_BULK
@issue_options
@with_session
def skip(session: Session, **options: Any) -> None:
    """Skip the failed record of a PAUSED task.

    It becomes a dead letter if the pipeline stores dead letters (errors.dlq.enable), else it is
    lost: --dry-run shows which.

    TASK is APPLICATION/PIPELINE/KEY, or the id of a task. It needs --reason.
    """
    _issue(session, CommandKind.SKIP_RECORD, options, question="Skip the failed record of")


@click.command()
@_TASK
@click.option(
    "--patch", required=True, metavar="JSON",
    help="A JSON Patch (RFC 6902) of the record, or @FILE.",
)  # fmt: skip
@_DRAIN
@_BULK
@issue_options
@with_session
def mend(session: Session, *, patch: str, **options: Any) -> None:
    """Change the failed record of a PAUSED task, and resume the task with it.

    The record keeps its place. TASK is APPLICATION/PIPELINE/KEY, or the id of a task. It needs
    --reason.
    """
    more, question = {"patch": json_patch(patch)}, "Change the failed record of"
    _issue(session, CommandKind.MEND_RECORD, options, question=question, more=more)


@click.command()
@_TASK
@_DRAIN
@_BULK
@pipeline_option("Restart the runs of a pipeline in its instances; needs --reason.")
@issue_options
@with_session
def restart(session: Session, *, pipeline: str | None, **options: Any) -> None:
    """Restart a DEAD task at its failed record, all tasks with one cause, or a pipeline.

    TASK is APPLICATION/PIPELINE/KEY, or the id of a task.
    """
    if pipeline is None:
        _issue(session, CommandKind.RESTART_TASK, options, question="Restart")
        return
    kind, question = CommandKind.RESTART_PIPELINE, f"Restart pipeline {pipeline}?"
    issue_for_pipeline(session, kind, pipeline, options, question=question)


@click.command()
@_TASK
@click.option(
    "--for", "duration", type=seconds, metavar="TIME", help="End it after this time: 10m."
)
@click.option("--until", metavar="TIME", help="End it at this time, in ISO 8601.")
@pipeline_option("Pause a pipeline: no micro-batch and no held record begins.")
@issue_options
@with_session
def pause(
    session: Session,
    *,
    task: str | None,
    duration: float | None,
    until: str | None,
    pipeline: str | None,
    **options: Any,
) -> None:
    """Pause a RUNNING task: its records are held from the next micro-batch on; or a pipeline.

    TASK is APPLICATION/PIPELINE/KEY, or the id of a task. The key may be one that has not failed.
    """
    end: dict[str, Any] = {} if duration is None else {"duration_seconds": int(duration)}
    if until is not None:
        end["until"] = until
    if pipeline is not None:
        options["task"] = task
        issue_for_pipeline(session, CommandKind.PAUSE_PIPELINE, pipeline, options, more=end)
        return
    if task is None:
        raise InvalidInput("TASK is missing; allowed: a task, --pipeline APPLICATION/PIPELINE")
    found = find_task_or_key(session.client, task)
    about = {"task": found["id"]} if "id" in found else found
    body = {"kind": CommandKind.PAUSE_TASK.value, **about, **end}
    issue(session, body, IssueOptions.pop(options), subject=task_name(found))


def _issue(
    session: Session,
    kind: CommandKind,
    options: dict[str, Any],
    *,
    question: str | None = None,
    more: dict[str, Any] | None = None,
) -> None:
    """Issue a command for one task, or a rollout for many; `more` has further fields of both."""
    row = TASK_KINDS[kind]
    if row.needs_reason:
        _check_reason(options, row.slug)
    issue_options = IssueOptions.pop(options)
    if options["task"] is None:
        if options["drain"]:
            raise InvalidInput("--drain is not allowed without TASK; allowed: for one task")
        body, subject, about = _many(session, _ROLLOUT_OF[kind], **options)
        ask = f"{question} {subject}{about}?" if question else None
        with near_applications(session.client, options["application"]):
            issue(session, body | (more or {}), issue_options, subject=subject, question=ask)
        return
    names = ("fingerprint", "application", "at_once", "observe")
    if any(options[name] not in (None, False) for name in names):
        raise InvalidInput(
            "TASK is not allowed together with --error, --all, --at-once and --observe"
        )
    task = find_task(session.client, options["task"])
    name = task_name(task)
    ask = f"{question} {name}, {task['status']} at position {task['position']}?"
    if options["drain"]:
        issue_options = replace(issue_options, wait=True)
    body = {"kind": kind.value, "task": task["id"]} | (more or {})
    issued = issue(session, body, issue_options, subject=name, question=ask if question else None)
    if issued and options["drain"]:
        wait_until_drained(session, task["id"], name, issue_options.timeout)


def _many(
    session: Session,
    kind: CommandKind,
    *,
    fingerprint: str | None,
    application: str | None,
    at_once: bool,
    observe: float | None,
    **_others: Any,
) -> tuple[dict[str, Any], str, str]:
    """Return the body of a rollout, its subject, and the cause of its tasks."""
    body: dict[str, Any] = {"kind": kind.value} | ({"waves": False} if at_once else {})
    if observe is not None:
        body["observe_seconds"] = int(observe)
    if fingerprint is not None:
        group = find_group(session.client, fingerprint, application)
        name, cause = group["application"], f" stopped by {group['exception_class']}"
        body |= {"application": name, "fingerprint": group["fingerprint"]}
        return body, f"tasks of {name}", cause
    if application is not None:
        return body | {"application": application}, f"stopped tasks of {application}", ""
    raise InvalidInput("TASK is missing; allowed: a task, --error FINGERPRINT, --all APPLICATION")


def _check_reason(options: dict[str, Any], command: str) -> None:
    if not (options["reason"] or "").strip():
        raise InvalidInput(f"--reason is missing; allowed: a text, which `{command}` needs")
