"""Which buttons are enabled, and why the others are not, by the domain's rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID, uuid5

from arrester.controlplane.domain.commands import decide
from arrester.controlplane.domain.events import CommandKind
from arrester.controlplane.domain.state.states import ApplicationState, CommandState
from arrester.controlplane.domain.state.stream_state import StreamState
from arrester.controlplane.queries import TaskDetail
from arrester.dashboard.permissions import NOT_AN_OPERATOR, Person

_FORMS = UUID("018f2f5e-3f6b-7c51-9d3a-6c1f0b5a4e21")


class Button(NamedTuple):
    """A button, enabled unless there is a reason against it."""

    kind: CommandKind
    why_not: str

    @property
    def works(self) -> bool:
        """Whether it is enabled."""
        return not self.why_not


def for_task(who: Person, detail: TaskDetail, application: ApplicationState) -> dict[str, Button]:
    """Return the buttons of a task's page, by kind."""
    state = StreamState(application=application)
    state.tasks[detail.state.id.digest] = detail.state
    if detail.thread is not None:
        state.threads[detail.thread.pipeline, detail.thread.checkpoint] = detail.thread
    if detail.open_command is not None:
        state.commands[detail.open_command.id] = detail.open_command
    return {kind.value: _button(who, kind, state, detail) for kind in decide.TASK_COMMANDS}


def for_application(
    who: Person, application: ApplicationState, open_commands: Iterable[CommandState]
) -> dict[str, Button]:
    """Return the buttons of an application's page, by kind."""
    state = StreamState(application=application)
    state.commands.update({command.id: command for command in open_commands})
    kinds = (CommandKind.SHUT_DOWN_APPLICATION, CommandKind.START_APPLICATION)
    return {kind.value: _button(who, kind, state) for kind in kinds}


def _button(
    who: Person, kind: CommandKind, state: StreamState, detail: TaskDetail | None = None
) -> Button:
    if not who.may_act:
        return Button(kind, NOT_AN_OPERATOR)
    requested = decide.CommandRequest(
        command=_FORMS,
        kind=kind,
        actor=who.name,
        task=None if detail is None else detail.state.id,
    )
    return Button(kind, decide.refusal(requested, state) or "")


def command_id(who: Person, detail: TaskDetail) -> UUID:
    """Return the id of the resume offered by this page: a double click is one command.

    It changes only with the pause and with each command for the task, so that a refresh between two
    clicks does not make two commands of them.
    """
    last = "" if detail.last_command is None else detail.last_command.id
    name = f"{who.name}\0{detail.state.id.digest}\0{detail.state.status_sequence}\0{last}"
    return uuid5(_FORMS, name)
