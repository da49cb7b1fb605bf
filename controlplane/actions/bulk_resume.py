"""Resuming many tasks by one act: a command for each, those of an application all at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

import msgspec

from arrester.controlplane.actions.commands import issue_all
from arrester.controlplane.actions.transaction import new_id
from arrester.controlplane.domain.commands.decide import Wish
from arrester.controlplane.domain.errors import InvalidValue, NotFound
from arrester.controlplane.domain.events import CommandKind
from arrester.controlplane.domain.identity import uuids
from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.state.states import CommandState, CommandStatus
from arrester.controlplane.views import row_mapping

#: How many tasks one click may resume.
MOST_AT_ONCE = 500


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one task of many that were to be resumed."""

    task: TaskId
    #: None when the state forbids it; then `refused` says why.
    command: CommandState | None
    refused: str = ""


def resume_tasks(
    digests: Sequence[str], *, actor: str, reason: str | None = None, id: UUID | None = None
) -> list[Resumed]:
    """Ask for each of some PAUSED tasks to go on; what one of them forbids stops no other.

    Each gets a command of its own, whose id is made of `id` and the task. Those of an application
    are issued in one transaction, and its agents are told once. Raises InvalidValue for too many,
    NotFound for a task that does not exist, before anything is asked.
    """
    if not 1 <= len(digests) <= MOST_AT_ONCE:
        raise InvalidValue("tasks", len(digests), f"1 to {MOST_AT_ONCE} tasks at once")
    act = id or new_id()
    tasks = _tasks(digests)
    wishes: dict[str, list[Wish]] = defaultdict(list)
    for task in tasks:
        wish = Wish(
            command=uuids.part_of(act, task.digest),
            kind=CommandKind.RESUME_TASK,
            actor=actor,
            reason=reason,
            task=task,
        )
        wishes[task.application].append(wish)
    commands: dict[UUID, CommandState] = {}
    for application, some in wishes.items():
        commands.update(issue_all(application, some).commands)
    return [_resumed(task, commands[uuids.part_of(act, task.digest)]) for task in tasks]


def _resumed(task: TaskId, command: CommandState) -> Resumed:
    if command.status is CommandStatus.REFUSED:
        return Resumed(task=task, command=None, refused=command.outcome or "refused")
    return Resumed(task=task, command=command)


def _tasks(digests: Sequence[str]) -> list[TaskId]:
    """Return the tasks in the order that they are asked for in, each once; raise NotFound."""
    asked = dict.fromkeys(_digest(digest) for digest in digests)
    found = {
        task.id.digest: task.id
        for task in row_mapping.TASKS.load("digest = ANY(%s::uuid[])", [[*asked]])
    }
    for digest in asked.keys() - found.keys():
        raise NotFound(f"there is no task {digest!r}")
    return [found[digest] for digest in asked]


def _digest(text: str) -> str:
    try:
        return UUID(hex=text).hex
    except ValueError:
        raise NotFound(f"there is no task {text!r}") from None
