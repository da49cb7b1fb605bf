"""Decide about commands: from a request and the state to the events that follow."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from arrester.controlplane.domain.commands.task_refusals import (
    dismiss_refusal,
    pause_refusal,
    restart_refusal,
    resume_refusal,
    target_refusal,
)
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.events import (
    ApplicationLatched,
    ApplicationOpened,
    CommandApplied,
    CommandCancelled,
    CommandIssued,
    CommandKind,
    CommandRefused,
    EventData,
    StageAnswer,
    TaskDismissed,
)
from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.state.live_runs import live
from arrester.controlplane.domain.state.policy_overrides import policy_refusal
from arrester.controlplane.domain.state.states import (
    ApplicationStatus,
    CommandState,
    CommandStatus,
    InstanceState,
    TaskState,
    ThreadState,
    ThreadStatus,
)
from arrester.controlplane.domain.state.stream_state import StreamState

COMMAND_EXPIRY = timedelta(minutes=15)
TASK_COMMANDS = (
    CommandKind.RESUME_TASK,
    CommandKind.SKIP_RECORD,
    CommandKind.RESUME_AT,
    CommandKind.PAUSE_TASK,
    CommandKind.RESTART_TASK,
    CommandKind.DISMISS_TASK,
)
#: These commands skip a record, stop work or hide a task, so they need a reason.
NEEDS_REASON = (
    CommandKind.SKIP_RECORD,
    CommandKind.RESUME_AT,
    CommandKind.DISMISS_TASK,
    CommandKind.SET_POLICY,
    CommandKind.SHUT_DOWN_APPLICATION,
)
#: The limit for a name and a reason, in characters.
TEXT_MAX = 2000


class CommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a command; it becomes a command whether or not the state allows it."""

    command: UUID
    kind: CommandKind
    actor: str
    reason: str | None = None
    task: TaskId | None = None
    #: For RESUME_AT: the position at which the task continues; held records before it are skipped.
    target: int | None = None
    #: For SET_POLICY: the stage of a pipeline and its answer; None restores the author's policy.
    pipeline: str | None = None
    stage: str | None = None
    answer: StageAnswer | None = None


def decide(
    requested: CommandRequest,
    state: StreamState,
    *,
    now: datetime,
    expiry: timedelta = COMMAND_EXPIRY,
) -> list[EventData]:
    """Return the events that follow from `requested`: CommandIssued, then the effect of the state.

    A command that is not applied within `expiry` expires.

    Raises InvalidValue for an invalid request: without a task, or without a required reason.
    """
    _check(requested)
    issued = _issued(requested, state, expires_at=now + expiry)
    forbidden = refusal(requested, state)
    if forbidden is not None:
        return [issued, CommandRefused(command=requested.command, reason=forbidden)]
    match requested.kind:
        case (
            CommandKind.RESUME_TASK
            | CommandKind.SKIP_RECORD
            | CommandKind.RESUME_AT
            | CommandKind.PAUSE_TASK
            | CommandKind.RESTART_TASK
            | CommandKind.SET_POLICY
        ):
            return [issued]
        case CommandKind.DISMISS_TASK:
            dismissed = TaskDismissed(
                task=issued.task, actor=issued.actor, reason=issued.reason or ""
            )
            return [issued, dismissed, CommandApplied(command=issued.command)]
        case CommandKind.SHUT_DOWN_APPLICATION:
            return [issued, *shut_down(issued, state)]
        case CommandKind.START_APPLICATION:
            return [
                issued,
                ApplicationOpened(reason=requested.reason, actor=requested.actor),
                CommandApplied(command=requested.command, detail="instances may run again"),
            ]


def _check(requested: CommandRequest) -> None:
    if requested.kind in TASK_COMMANDS and requested.task is None:
        raise InvalidValue("task", None, "the task that the command is for")
    if requested.kind is CommandKind.RESUME_AT and not is_position(requested.target):
        raise InvalidValue("target", requested.target, "the position at which the task continues")
    if requested.kind is CommandKind.SET_POLICY:
        _check_policy(requested)
    for name, text in (("actor", requested.actor), ("reason", requested.reason or "")):
        if len(text) > TEXT_MAX or not is_text(text):
            raise InvalidValue(name, text[:50], f"a text of at most {TEXT_MAX} characters")
    if requested.kind in NEEDS_REASON and not (requested.reason or "").strip():
        raise InvalidValue("reason", requested.reason, f"a text: {requested.kind} needs a reason")


def _check_policy(requested: CommandRequest) -> None:
    for name, text in (("pipeline", requested.pipeline), ("stage", requested.stage)):
        if not text or len(text) > TEXT_MAX or not is_text(text):
            raise InvalidValue(name, (text or "")[:50], f"the {name} whose policy is set")


def is_position(value: int | None) -> bool:
    """Whether `value` may be a record's position."""
    return value is not None and -(2**63) <= value < 2**63


def is_text(text: str) -> bool:
    """Whether `text` can be encoded: JSON may contain half of a surrogate pair, which cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _issued(
    requested: CommandRequest, state: StreamState, *, expires_at: datetime
) -> CommandIssued:
    task = None if requested.task is None else state.tasks.get(requested.task.digest)
    return CommandIssued(
        command=requested.command,
        kind=requested.kind,
        actor=requested.actor,
        reason=requested.reason,
        pipeline=requested.pipeline if requested.task is None else requested.task.pipeline,
        checkpoint=None if requested.task is None else requested.task.checkpoint,
        task=None if requested.task is None else requested.task.key,
        position=None if task is None else task.position,
        target=requested.target,
        stage=requested.stage,
        answer=requested.answer,
        instances=tuple(sorted(_who_answers(requested, state), key=str)),
        expires_at=expires_at,
    )


def _who_answers(requested: CommandRequest, state: StreamState) -> list[UUID]:
    """Return the instances that have to answer: those that run the command's subject."""
    alive = [each.id for each in state.instances.values() if receives_commands(each)]
    if requested.kind is CommandKind.SHUT_DOWN_APPLICATION:
        return alive
    if requested.kind is CommandKind.SET_POLICY:
        return sorted({each.instance for each in runs(state, requested.pipeline) if each.instance})
    if requested.task is None:
        return []
    thread = state.threads.get((requested.task.pipeline, requested.task.checkpoint))
    if thread is None or thread.status is ThreadStatus.DEAD:
        return []
    return [id for id in alive if id == thread.instance]


def runs(state: StreamState, pipeline: str | None) -> list[ThreadState]:
    """Return the runs of a pipeline that receive commands: one on each checkpoint that it runs
    on."""
    return [
        each
        for each in state.threads.values()
        if each.pipeline == pipeline
        and each.status is ThreadStatus.RUNNING
        and each.instance in state.instances
        and receives_commands(state.instances[each.instance])
    ]


def receives_commands(instance: InstanceState) -> bool:
    """Whether the instance, as far as is known, fetches commands."""
    return not instance.ended and not instance.lost


def refusal(requested: CommandRequest, state: StreamState) -> str | None:
    """Return why the state forbids the command, or None; pages call it before they offer the
    button."""
    application = state.application
    latched = application.status is ApplicationStatus.LATCHED
    if requested.task is not None:
        forbidden = _task_refusal(requested, requested.task, state)
        if forbidden is not None:
            return forbidden
        if latched and requested.kind is not CommandKind.DISMISS_TASK:
            return f"{application.name} is LATCHED; start the application first"
        for command in open_commands(state):
            if command.task == requested.task:
                return f"{command.kind} by {command.actor} is already in progress for this task"
        return None
    for command in open_commands(state):
        if command.kind is CommandKind.SHUT_DOWN_APPLICATION:
            return f"{application.name} is still being shut down by {command.actor}"
    if requested.kind is CommandKind.SET_POLICY:
        return _policy_refusal(requested, state)
    if requested.kind is CommandKind.START_APPLICATION and not latched:
        return f"only a LATCHED application can be started; {application.name} is OPEN"
    if requested.kind is CommandKind.SHUT_DOWN_APPLICATION and latched:
        return f"{application.name} is LATCHED already"
    return None


def _policy_refusal(requested: CommandRequest, state: StreamState) -> str | None:
    pipeline, stage = requested.pipeline or "", requested.stage or ""
    if state.application.status is ApplicationStatus.LATCHED:
        return f"{state.application.name} is LATCHED; start the application first"
    for command in open_commands(state):
        if (command.pipeline, command.stage) == (pipeline, stage):
            return f"{command.kind} by {command.actor} is already in progress for this stage"
    return policy_refusal(runs(state, pipeline), pipeline, stage, requested.answer)


def cancel_refusal(command: CommandState) -> str | None:
    """Return why a command cannot be cancelled any more, or None."""
    if command.kind is CommandKind.SHUT_DOWN_APPLICATION:
        return f"{command.application} is LATCHED by it already; start the application instead"
    if command.status is not CommandStatus.ISSUED:
        return (
            f"only a command that no instance has fetched can be cancelled; it is {command.status}"
        )
    return None


def _task_refusal(requested: CommandRequest, id: TaskId, state: StreamState) -> str | None:
    """Return why the task's own state forbids the command, or None."""
    task = state.tasks.get(id.digest) or TaskState(id=id)
    match requested.kind:
        case CommandKind.DISMISS_TASK:
            return dismiss_refusal(task) or _has_instance(requested, id, state)
        case CommandKind.PAUSE_TASK:
            return pause_refusal(task) or _older_checkpoint(id, state)
        case CommandKind.RESTART_TASK:
            forbidden = restart_refusal(task) or _older_checkpoint(id, state)
            return forbidden or _ended(id, state)
    forbidden = resume_refusal(task) or _older_checkpoint(id, state)
    if forbidden is not None:
        return forbidden
    if requested.kind is CommandKind.SKIP_RECORD and task.failure is None:
        return f"{id.printed} was paused by hand; there is no failed record to skip"
    return target_refusal(task, requested.target)


def _has_instance(requested: CommandRequest, id: TaskId, state: StreamState) -> str | None:
    for instance in _who_answers(requested, state):
        return (
            f"instance {state.instances[instance].host} runs {id.pipeline} on this checkpoint; only"
            " a task without a run can be dismissed"
        )
    return None


def _older_checkpoint(id: TaskId, state: StreamState) -> str | None:
    runs_of_pipeline = [each for each in state.threads.values() if each.pipeline == id.pipeline]
    for newest in live(runs_of_pipeline):
        if newest.checkpoint != id.checkpoint:
            return (
                f"{id.printed} is of an older checkpoint; the newest run of {id.pipeline} uses"
                f" {newest.checkpoint}"
            )
    return None


def _ended(id: TaskId, state: StreamState) -> str | None:
    thread = state.threads.get((id.pipeline, id.checkpoint))
    if thread is None or thread.status is ThreadStatus.RUNNING:
        return None
    return f"{id.pipeline} has ended; its next run restarts {id.printed}"


def shut_down(issued: CommandIssued, state: StreamState) -> list[EventData]:
    """Return the further events of a shutdown: the latch, and the cancelled open commands."""
    latched = ApplicationLatched(reason=issued.reason or "", actor=issued.actor)
    cancelled = [
        CommandCancelled(
            command=command.id, actor=issued.actor, reason="the application was shut down"
        )
        for command in open_commands(state)
    ]
    if issued.instances:
        return [latched, *cancelled]
    done = CommandApplied(command=issued.command, detail="no instance was running; latched")
    return [latched, *cancelled, done]


def open_commands(state: StreamState) -> list[CommandState]:
    """Return the commands without a final status, oldest first."""
    waiting = [each for each in state.commands.values() if not each.status.final]
    return sorted(waiting, key=lambda each: (each.issued_at, str(each.id)))
