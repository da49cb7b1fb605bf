"""Commands without an answer or that expired, and tasks that failed again after one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Set
from datetime import datetime, timedelta
from urllib.parse import urlencode
from uuid import UUID

import msgspec

from arrester.controlplane.queries import sql
from arrester.controlplane.queries.conditions import condition
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.controlplane.queries.conditions.condition import Condition
from arrester.controlplane.views import row_mapping
from arrester.domain.commands.kinds import KINDS, TESTS
from arrester.domain.commands.verdict import Outcome, Verdict, newest_verdict
from arrester.domain.state.states import CommandState, CommandStatus

#: A live instance answers within a second; after this time an operator should look.
ANSWER_WITHIN = timedelta(seconds=10)
#: The age of the oldest commands that are checked.
RECENT = timedelta(hours=24)
OPEN = frozenset({AlertCause.COMMANDS_UNANSWERED})
VAIN = frozenset({AlertCause.COMMAND_EXPIRED, AlertCause.FAILED_AGAIN})
#: A test changes nothing, and the person who issued it has its result.
_TESTS = ", ".join(f"'{kind.value}'" for kind in TESTS)
_RECENT = f"issued_at >= %s AND status IN ('EXPIRED', 'APPLIED') AND kind NOT IN ({_TESTS})"
_NEWEST = f"""id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (
            PARTITION BY application ORDER BY issued_at DESC, id DESC
        ) AS place FROM command WHERE {_RECENT}
    ) AS newest WHERE place <= %s) ORDER BY issued_at DESC, id DESC"""
_MANY = f"""
SELECT application, count(*) FROM command WHERE {_RECENT} AND status = 'EXPIRED'
GROUP BY 1 HAVING count(*) > %s
"""


def unanswered(*, now: datetime) -> Iterator[Condition]:
    """Yield the open commands without an answer: one condition for a kind in an application."""
    alike: dict[tuple[str, str], list[CommandState]] = defaultdict(list)
    where = "open AND issued_at < %s ORDER BY issued_at, id"
    for each in row_mapping.COMMANDS.load_readable(where, [now - ANSWER_WITHIN]):
        alike[each.application, each.kind].append(each)
    for (application, kind), some in alike.items():
        first, alone = some[0], len(some) == 1
        actors = sorted({each.actor for each in some})
        by = actors[0] if len(actors) == 1 else f"{len(actors)} people"
        about = first.task.printed if first.task else first.pipeline or application
        query = {"application": application, "state": "open"}
        yield Condition(
            cause=AlertCause.COMMANDS_UNANSWERED,
            application=application,
            subject=kind,
            name=f"Command for {about}" if alone else f"{len(some):,} commands for {application}",
            title=f"{application}: {kind} by {by}, no answer yet",
            summary=f"{KINDS[first.kind].label} by {by}, no answer yet",
            path=f"/commands/{first.id}" if alone else f"/commands?{urlencode(query)}",
            count=len(some),
            since=first.issued_at,
            pipeline=first.pipeline if alone else None,
        )


def without_effect(*, now: datetime) -> Iterator[Condition]:
    """Yield the recent commands that expired or that their task's record has failed again after.

    Only the newest command of a task counts: it replaces those before.
    """
    newest: dict[str, CommandState] = {}
    parameters = [now - RECENT, condition.MOST]
    for command in row_mapping.COMMANDS.load_readable(_NEWEST, parameters):
        newest.setdefault(_subject(command), command)
    stopped = f"{sql.STOPPED} AND digest = ANY(%s::uuid[])"
    digests = [each.task.digest for each in newest.values() if each.task is not None]
    tasks = {task.id.digest: task for task in row_mapping.TASKS.load_readable(stopped, [digests])}
    continued = _open({each.part_of for each in newest.values() if each.part_of})
    for subject, command in newest.items():
        if command.status is CommandStatus.EXPIRED:
            # The redrive or rollout that it is a part of goes on, and issues it again.
            if command.part_of in continued:
                continue
            title = f"{command.kind} by {command.actor} EXPIRED"
            yield _condition(command, AlertCause.COMMAND_EXPIRED, title, command.outcome or "")
        elif subject in tasks:
            verdict = newest_verdict(command, tasks[subject])
            if verdict is not None and verdict.outcome is Outcome.FAILED_AGAIN:
                yield _failed_again(command, verdict)
    for application, number in sql.rows(_MANY, parameters):
        yield condition.rest(application, "EXPIRED commands", number - condition.MOST, now=now)


def _open(ids: Set[UUID | msgspec.UnsetType]) -> set[UUID | msgspec.UnsetType]:
    """Return those of some commands that are open."""
    states = row_mapping.COMMANDS.load_readable("open AND id = ANY(%s::uuid[])", [[*ids]])
    return {each.id for each in states}


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
        name=command.application if task is None else task.printed,
        title=f"{command.application}: {title}",
        detail=detail,
        path=f"/commands/{command.id}",
        since=command.finished_at or command.issued_at,
        pipeline=command.pipeline if task is None else task.pipeline,
    )
