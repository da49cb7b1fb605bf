"""Resume many tasks at once: one command each, those of an application in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

import msgspec

from arrester.controlplane.actions.commands import issue_all
from arrester.controlplane.actions.transaction import new_id
from arrester.controlplane.domain.commands.decide import CommandRequest
from arrester.controlplane.domain.errors import InvalidValue, NotFound
from arrester.controlplane.domain.events import CommandKind
from arrester.controlplane.domain.identity import uuids
from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.state.states import CommandState, CommandStatus
from arrester.controlplane.views import row_mapping

#: The most tasks of one act.
MOST_AT_ONCE = 500


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one task of many."""

    task: TaskId
    #: None if the state forbids it; then `refused` has the reason.
    command: CommandState | None
    refused: str = ""


def resume_tasks(
    digests: Sequence[str], *, actor: str, reason: str | None = None, id: UUID | None = None
) -> list[Resumed]:
    """Resume each of some PAUSED tasks; a refusal of one does not affect the others.

    Each gets a command, whose id is derived from `id` and the task. Those of an application are
    issued in one transaction and relayed once. Raises InvalidValue for too many, NotFound for a
    missing task, before anything is issued.
    """
    if not 1 <= len(digests) <= MOST_AT_ONCE:
        raise InvalidValue("tasks", len(digests), f"1 to {MOST_AT_ONCE} tasks at once")
    act = id or new_id()
    tasks = _tasks(digests)
    requests: dict[str, list[CommandRequest]] = defaultdict(list)
    for task in tasks:
        requested = CommandRequest(
            command=uuids.part_of(act, task.digest),
            kind=CommandKind.RESUME_TASK,
            actor=actor,
            reason=reason,
            task=task,
        )
        requests[task.application].append(requested)
    commands: dict[UUID, CommandState] = {}
    for application, some in requests.items():
        commands.update(issue_all(application, some).commands)
    return [_resumed(task, commands[uuids.part_of(act, task.digest)]) for task in tasks]


def _resumed(task: TaskId, command: CommandState) -> Resumed:
    if command.status is CommandStatus.REFUSED:
        return Resumed(task=task, command=None, refused=command.outcome or "refused")
    return Resumed(task=task, command=command)


def _tasks(digests: Sequence[str]) -> list[TaskId]:
    """Return the tasks in the order of the request, each once; raise NotFound."""
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
