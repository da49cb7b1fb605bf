"""Which buttons of commands and error groups are enabled, and why others are not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID, uuid5

from arrester.controlplane import queries
from arrester.controlplane.queries import TaskDetail
from arrester.dashboard.components.editable_records import of_failure
from arrester.dashboard.permissions import NOT_AN_OPERATOR, Person
from arrester.domain.commands import request
from arrester.domain.commands.kinds import KINDS, TASK_KINDS, Subject, TaskKind
from arrester.domain.commands.refusals import commands as refusals
from arrester.domain.events import CommandKind, ResumeHow
from arrester.domain.identity.names import TaskId
from arrester.domain.state import error_groups
from arrester.domain.state.error_groups import GroupAct
from arrester.domain.state.live_runs import live
from arrester.domain.state.states import (
    ApplicationState,
    CommandState,
    GroupState,
    GroupStatus,
    InstanceState,
    ThreadState,
)
from arrester.domain.state.stream_state import StreamState

_COMMAND_FORMS = UUID("018f2f5e-3f6b-7c51-9d3a-6c1f0b5a4e21")
_GROUP_FORMS = UUID("018f2f5e-3f6b-7c51-9d3a-6c1f0b5a4e23")


class Button(NamedTuple):
    """A button, disabled if there is a reason; `id` makes a double click one act."""

    disabled: str
    id: UUID | None = None


class PipelineButtons(NamedTuple):
    """The buttons of a pipeline, and the one that pauses a key of it; None: it has no keys."""

    restart: Button
    pause: Button
    resume: Button
    pause_key: Button | None


class TaskButton(NamedTuple):
    """The button of a command for a task, disabled if there is a reason."""

    row: TaskKind
    disabled: str
    primary: bool
    #: The reason is that of resuming the task, too.
    like_resume: bool = False

    @property
    def dialog(self) -> str:
        """The name of the URL of its dialog; empty: it has none."""
        return f"{self.row.slug}-dialog" if self.row.has_dialog else ""

    @property
    def key(self) -> str:
        """The keyboard shortcut; empty: it has none."""
        return "r" if self.row.how in (ResumeHow.RETRY, ResumeHow.RESTART) else ""


class BulkButton(NamedTuple):
    """A button for the selected groups of a list, and the past participle of its act."""

    act: GroupAct
    label: str
    done: str
    icon: str
    key: str


BULK = {
    each.act: each
    for each in (
        BulkButton(GroupAct.RESOLVE, "Resolve", "resolved", "check", "e"),
        BulkButton(GroupAct.REOPEN, "Reopen", "reopened", "again", "e"),
        BulkButton(GroupAct.MUTE, "Mute", "muted", "mute", "m"),
        BulkButton(GroupAct.UNMUTE, "Unmute", "unmuted", "bell", "m"),
        BulkButton(GroupAct.ASSIGN, "Assign", "assigned", "person", "a"),
    )
}


def for_task(
    who: Person, detail: TaskDetail, application: ApplicationState
) -> dict[str, TaskButton]:
    """Return the buttons of a task's page, by kind of command."""
    state = StreamState(application=application)
    state.tasks[detail.state.id.digest] = detail.state
    for thread in (detail.thread, detail.newest):
        if thread is not None:
            state.threads[thread.pipeline, thread.checkpoint] = thread
    if detail.instance is not None:
        state.instances[detail.instance.id] = detail.instance
    if detail.open_command is not None:
        state.commands[detail.open_command.id] = detail.open_command
    retried = detail.state.retried
    primary: Mapping[object, bool] = {
        ResumeHow.RETRY: not retried,
        ResumeHow.SKIP: retried,
        ResumeHow.RESTART: True,
    }
    reasons: dict[object, str] = {
        row.how: _button(who, kind, state, task=detail.state.id).disabled
        for kind, row in TASK_KINDS.items()
    }
    reasons[ResumeHow.MEND] = reasons[ResumeHow.MEND] or _not_editable(detail)
    return {
        kind.value: TaskButton(
            row,
            disabled=reasons[row.how],
            primary=primary.get(row.how, False),
            like_resume=reasons[row.how] == reasons[ResumeHow.RETRY],
        )
        for kind, row in TASK_KINDS.items()
    }


def after_failed_record(of_task: Mapping[str, TaskButton]) -> list[TaskButton]:
    """Return those of a task's buttons that skip or change the failed record."""
    order = (ResumeHow.SKIP, ResumeHow.MEND, ResumeHow.AT)
    return sorted(
        (each for each in of_task.values() if each.row.how in order),
        key=lambda each: order.index(each.row.how),
    )


def _not_editable(detail: TaskDetail) -> str:
    """Return why a page cannot edit the record at which a task stopped; empty: it can."""
    refusal = of_failure(detail.failure).refusal
    return refusal and f"{refusal}; “arrester edit” and REST change the record by a JSON Patch"


def state_of(
    application: ApplicationState,
    open_commands: Iterable[CommandState],
    instances: Iterable[InstanceState],
) -> StreamState:
    """Return the state that decides which buttons of an application are enabled."""
    state = StreamState(application=application)
    state.commands.update({command.id: command for command in open_commands})
    state.instances.update({each.id: each for each in instances})
    return state


def for_application(who: Person, state: StreamState) -> dict[str, Button]:
    """Return the buttons of an application's page, by kind of command, and FORCE."""
    rows = [row for row in KINDS.values() if row.subject is Subject.APPLICATION]
    shut_down = next(row.kind for row in rows if row.latches)
    forced = _button(who, shut_down, state, force=True)
    return {row.kind.value: _button(who, row.kind, state) for row in rows} | {"FORCE": forced}


def for_pipelines(
    who: Person, state: StreamState, threads: Iterable[ThreadState]
) -> dict[str, PipelineButtons]:
    """Return the buttons of the pipelines of an application, by pipeline."""
    state.threads.update({(each.pipeline, each.checkpoint): each for each in threads})
    return {
        each.pipeline: PipelineButtons(
            restart=_button(who, CommandKind.RESTART_PIPELINE, state, pipeline=each.pipeline),
            pause=_button(who, CommandKind.PAUSE_PIPELINE, state, pipeline=each.pipeline),
            resume=_button(who, CommandKind.RESUME_PIPELINE, state, pipeline=each.pipeline),
            pause_key=_button(who, CommandKind.PAUSE_TASK, state, task=_any_key(each))
            if each.policy is None or each.policy.keyed
            else None,
        )
        for each in live([*state.threads.values()])
    }


def _any_key(thread: ThreadState) -> TaskId:
    """Return the task of a key that the server does not know."""
    return TaskId(
        application=thread.application,
        pipeline=thread.pipeline,
        checkpoint=thread.checkpoint,
        key=str(_COMMAND_FORMS),
    )


def _button(
    who: Person,
    kind: CommandKind,
    state: StreamState,
    *,
    task: TaskId | None = None,
    pipeline: str | None = None,
    force: bool = False,
) -> Button:
    if not who.may_act_on(state.application.name):
        return Button(NOT_AN_OPERATOR)
    requested = request.CommandRequest(
        command=_COMMAND_FORMS,
        kind=kind,
        actor=who.name,
        task=task,
        pipeline=pipeline,
        force=force,
    )
    return Button(refusals.refusal(requested, state) or "")


def resume_many(who: Person, application: str, fingerprint: str | None = None) -> str:
    """Return why the button that resumes all PAUSED tasks, or those of one cause, is disabled.

    Empty if it is enabled.
    """
    if not who.may_act_on(application):
        return NOT_AN_OPERATOR
    if not queries.paused(application, fingerprint=fingerprint, limit=1).total:
        return "each PAUSED task has an open command"
    return ""


def command_id(who: Person, detail: TaskDetail) -> UUID:
    """Return the id of the resume offered by this page: a double click is one command.

    It changes only with the pause and with each command for the task. Two clicks thus stay one
    command if the page is refreshed between them.
    """
    last = "" if detail.last_command is None else detail.last_command.id
    name = f"{who.name}\0{detail.state.id.digest}\0{detail.state.status_sequence}\0{last}"
    return uuid5(_COMMAND_FORMS, name)


def for_groups(state: str | None) -> list[BulkButton]:
    """Return the buttons of a list of groups that are all in one state; None: any state."""
    if state is None:
        return [*BULK.values()]
    status = GroupStatus(state)
    return [each for each in BULK.values() if error_groups.refusal(each.act, status) is None]


def for_group(who: Person, group: GroupState) -> dict[str, Button]:
    """Return the buttons of a group's page, by act."""
    return {act.value: _group_button(who, act, group) for act in GroupAct}


def _group_button(who: Person, act: GroupAct, group: GroupState) -> Button:
    name = f"{who.name}\0{act}\0{group.application}\0{group.fingerprint}\0{group.status_sequence}"
    may_act = who.may_act_on(group.application)
    disabled = error_groups.refusal(act, group.status) or "" if may_act else NOT_AN_OPERATOR
    return Button(disabled, uuid5(_GROUP_FORMS, name))
