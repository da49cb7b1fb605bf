"""Commands that expired, and tasks that failed again after one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from arrester.controlplane.alerts.causes import AlertCause
from arrester.controlplane.alerts.conditions.condition import MOST, Condition
from arrester.controlplane.domain.commands.verdict import Outcome, Verdict, newest_verdict
from arrester.controlplane.domain.state.states import CommandState, CommandStatus
from arrester.controlplane.queries import sql
from arrester.controlplane.views import row_mapping

#: Only commands of this time are checked.
RECENT = timedelta(hours=24)
_NEWEST = f"""issued_at >= %s AND status IN ('EXPIRED', 'APPLIED')
    ORDER BY issued_at DESC, id DESC LIMIT {MOST}"""


def find(*, now: datetime) -> Iterator[Condition]:
    """Yield the recent commands that expired or that their task's record has failed again after.

    Only the newest command of a task counts: it replaces those before.
    """
    newest: dict[str, CommandState] = {}
    for command in row_mapping.COMMANDS.load_readable(_NEWEST, [now - RECENT]):
        newest.setdefault(_subject(command), command)
    stopped = f"{sql.STOPPED} AND digest = ANY(%s::uuid[])"
    digests = [each.task.digest for each in newest.values() if each.task is not None]
    tasks = {task.id.digest: task for task in row_mapping.TASKS.load_readable(stopped, [digests])}
    for subject, command in newest.items():
        if command.status is CommandStatus.EXPIRED:
            title = f"{command.kind} by {command.actor} EXPIRED"
            yield _condition(command, AlertCause.COMMAND_EXPIRED, title, command.outcome or "")
        elif subject in tasks:
            verdict = newest_verdict(command, tasks[subject])
            if verdict is not None and verdict.outcome is Outcome.FAILED_AGAIN:
                yield _failed_again(command, verdict)


def _subject(command: CommandState) -> str:
    """Return what a command is about: its task, or the kind of command and the pipeline."""
    if command.task is not None:
        return command.task.digest
    return f"{command.kind} {command.application} {command.pipeline or ''}".rstrip()


def _failed_again(command: CommandState, verdict: Verdict) -> Condition:
    assert command.task is not None and verdict.stop is not None
    stop = verdict.stop
    attempt = "" if stop.stops is None else f"; stopped there {stop.stops} times"
    where = "" if stop.position is None else f" at position {stop.position:,}"
    return _condition(
        command,
        AlertCause.FAILED_AGAIN,
        f"task {command.task.printed} failed again{where}",
        f"After {command.kind} by {command.actor}{attempt}.",
    )


def _condition(command: CommandState, cause: AlertCause, title: str, detail: str) -> Condition:
    task = command.task
    return Condition(
        cause=cause,
        application=command.application,
        subject=_subject(command),
        title=f"{command.application}: {title}",
        detail=detail,
        path=f"/commands/{command.id}",
        since=command.finished_at or command.issued_at,
        pipeline=command.pipeline if task is None else task.pipeline,
    )
