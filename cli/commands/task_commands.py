"""Commands for tasks, one by one or all with one cause: resume, skip, edit, restart and pause.

Some are for pipelines, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from arrester.cli.commands.completion import complete_application, complete_task
from arrester.cli.commands.pipeline_commands import issue_for_pipeline, pipeline_option
from arrester.cli.draining import wait_until_drained
from arrester.cli.exit_codes import InvalidInput
from arrester.cli.issue import IssueOptions, issue, issue_options, require_reason
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
    _issue(session, CommandKind.SKIP_RECORD, options, act="Skip the failed record of")


@click.command()
@_TASK
@click.option(
    "--patch", required=True, metavar="JSON",
    help="A JSON Patch (RFC 6902) of the record, or @FILE.",
)  # fmt: skip
@click.option(
    "--test", is_flag=True,
    help="The pipeline runs its steps on the changed record; nothing else happens.",
)  # fmt: skip
@_DRAIN
@_BULK
@issue_options
@with_session
def edit(session: Session, *, patch: str, test: bool, **options: Any) -> None:
    """Change the failed record of a PAUSED task, and resume the task with it.

    The record keeps its place. TASK is APPLICATION/PIPELINE/KEY, or the id of a task. It needs
    --reason, unless with --test.
    """
    act, more = "Change the failed record of", {"patch": json_patch(patch)}
    if test:
        if options["task"] is None or options["drain"]:
            raise InvalidInput("--test is allowed with TASK, and without --drain")
        _issue(session, CommandKind.TEST_RECORD, options | {"wait": True}, more=more)
        return
    _issue(session, CommandKind.EDIT_RECORD, options, act=act, more=more)


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
        _issue(session, CommandKind.RESTART_TASK, options, act="Restart")
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
        end["pause_ends_at"] = until
    if pipeline is not None:
        options["task"] = task
        issue_for_pipeline(session, CommandKind.PAUSE_PIPELINE, pipeline, options, more=end)
        return
    if task is None:
        raise InvalidInput("TASK is missing; allowed: a task, --pipeline APPLICATION/PIPELINE")
    found = find_task_or_key(session.client, task)
    of_task = {"task": found["id"]} if "id" in found else found
    body = {"kind": CommandKind.PAUSE_TASK.value, **of_task, **end}
    issue(session, body, IssueOptions.pop(options), subject=task_name(found))


def _issue(
    session: Session,
    kind: CommandKind,
    options: dict[str, Any],
    *,
    act: str | None = None,
    more: dict[str, Any] | None = None,
) -> None:
    """Issue a command for one task, or a rollout for many.

    Without `act`, no confirmation is required. `more` has further fields of the command.
    """
    if TASK_KINDS[kind].needs_reason:
        require_reason(options["reason"], TASK_KINDS[kind].slug)
    chosen, task = IssueOptions.pop(options), options.pop("task")
    if task is None:
        _issue_rollout(session, _ROLLOUT_OF[kind], chosen, act=act, more=more or {}, **options)
    else:
        _issue_for_task(session, kind, task, chosen, act=act, more=more or {}, **options)


def _issue_for_task(
    session: Session,
    kind: CommandKind,
    task: str,
    chosen: IssueOptions,
    *,
    act: str | None,
    more: dict[str, Any],
    drain: bool,
    **of_rollouts: Any,
) -> None:
    if any(value not in (None, False) for value in of_rollouts.values()):
        raise InvalidInput(
            "TASK is not allowed together with --error, --all, --at-once and --observe"
        )
    found = find_task(session.client, task)
    name = task_name(found)
    question = f"{act} {name}, {found['status']} at position {found['position']}?" if act else None
    if drain:
        chosen = replace(chosen, wait=True)
    body = {"kind": kind.value, "task": found["id"]} | more
    issued = issue(session, body, chosen, subject=name, question=question)
    if issued and drain:
        wait_until_drained(session, found["id"], name, chosen.timeout)


def _issue_rollout(
    session: Session,
    kind: CommandKind,
    chosen: IssueOptions,
    *,
    act: str | None,
    more: dict[str, Any],
    drain: bool,
    fingerprint: str | None,
    application: str | None,
    at_once: bool,
    observe: float | None,
) -> None:
    if drain:
        raise InvalidInput("--drain is not allowed without TASK; allowed: for one task")
    body: dict[str, Any] = {"kind": kind.value} | ({"waves": False} if at_once else {})
    if observe is not None:
        body["observe_seconds"] = int(observe)
    if fingerprint is not None:
        group = find_group(session.client, fingerprint, application)
        name, cause = group["application"], f" stopped by {group['exception_class']}"
        body |= {"application": name, "fingerprint": group["fingerprint"]}
        subject = f"tasks of {name}"
    elif application is not None:
        body["application"] = application
        subject, cause = f"stopped tasks of {application}", ""
    else:
        raise InvalidInput(
            "TASK is missing; allowed: a task, --error FINGERPRINT, --all APPLICATION"
        )
    question = f"{act} {subject}{cause}?" if act else None
    with near_applications(session.client, application):
        issue(session, body | more, chosen, subject=subject, question=question)
