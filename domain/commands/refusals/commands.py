"""Why the state forbids a command: the server checks it before it issues one."""

from __future__ import annotations

from dataclasses import replace

from msgspec import UNSET

from arrester.domain.commands.agent_versions import unknown_command
from arrester.domain.commands.kinds import (
    KINDS,
    NEEDS_FAILED_RECORD,
    TASK_KINDS,
    TESTS,
    TaskAct,
)
from arrester.domain.commands.recipients import instance_of_run, open_commands
from arrester.domain.commands.refusals.in_progress import in_progress
from arrester.domain.commands.refusals.pipelines import (
    pause_pipeline_refusal,
    redrive_refusal,
    restart_pipeline_refusal,
    set_policy_refusal,
    unguarded_refusal,
)
from arrester.domain.commands.refusals.shutdowns import (
    application_in_progress,
    shutdown_refusal,
)
from arrester.domain.commands.refusals.tasks import key_refusal, target_refusal
from arrester.domain.commands.request import CommandRequest
from arrester.domain.events import CommandKind, ResumeHow, Rollout
from arrester.domain.identity.names import TaskId
from arrester.domain.state.live_runs import live
from arrester.domain.state.states import (
    ApplicationStatus,
    CommandState,
    TaskState,
    ThreadStatus,
)
from arrester.domain.state.stream_state import StreamState


def refusal(requested: CommandRequest, state: StreamState) -> str | None:
    """Return why the state forbids the command, or None; pages call it before they offer the
    button."""
    forbidden = unguarded_refusal(requested, state)
    if forbidden is not None:
        return forbidden
    if requested.task is None:
        forbidden = _refusal_of_kind(requested, state)
    else:
        forbidden = _refusal_for_task(requested, requested.task, state)
    return forbidden or unknown_command(requested, state)


def _refusal_of_kind(requested: CommandRequest, state: StreamState) -> str | None:
    if KINDS[requested.kind].is_shutdown:
        return shutdown_refusal(requested, state)
    being_shut_down = application_in_progress(state)
    if being_shut_down is not None:
        return being_shut_down
    match requested.kind:
        case CommandKind.SET_POLICY:
            return set_policy_refusal(requested, state)
        case CommandKind.RESTART_PIPELINE:
            return restart_pipeline_refusal(requested, state)
        case CommandKind.PAUSE_PIPELINE | CommandKind.RESUME_PIPELINE:
            return pause_pipeline_refusal(requested, state)
        case CommandKind.REDRIVE | CommandKind.REDRIVE_RECORDS | CommandKind.TEST_DEAD_LETTER:
            return redrive_refusal(requested, state)
        case CommandKind.START_APPLICATION:
            return _start_refusal(state)
        case _:
            assert requested.rollout is not None, f"{requested.kind} has no refusal"
            return _rollout_refusal(requested.rollout, state)


def _start_refusal(state: StreamState) -> str | None:
    if _is_latched(state):
        return None
    return f"only a LATCHED application can be started; {state.application.name} is OPEN"


def _rollout_refusal(rollout: Rollout, state: StreamState) -> str | None:
    if _is_latched(state):
        return f"{state.application.name} is LATCHED; start the application first"
    for command in open_commands(state):
        other = command.rollout
        if other is not UNSET and _overlap(rollout, other):
            return in_progress(command, "for these tasks")
    return None if rollout.tasks else "no stopped task of a live checkpoint can get this command"


def _overlap(one: Rollout, other: Rollout) -> bool:
    return one.fingerprint == other.fingerprint or None in (one.fingerprint, other.fingerprint)


def _is_latched(state: StreamState) -> bool:
    return state.application.status is ApplicationStatus.LATCHED


def pending_command(
    requested: CommandRequest, state: StreamState, *, reason: str | None
) -> CommandState | None:
    """Return the open command that is the reason of a refusal; None if it has another reason.

    Without this command, the state would not refuse `requested` for that reason.
    """
    if refusal(requested, state) != reason:
        return None
    for command in open_commands(state):
        if command.task in (None, requested.task):
            others = {id: each for id, each in state.commands.items() if id != command.id}
            if refusal(requested, replace(state, commands=others)) != reason:
                return command
    return None


def _refusal_for_task(requested: CommandRequest, id: TaskId, state: StreamState) -> str | None:
    forbidden = _task_refusal(requested, id, state)
    if forbidden is not None:
        return forbidden
    if _is_latched(state) and requested.kind is not CommandKind.DISMISS_TASK:
        return f"{state.application.name} is LATCHED; start the application first"
    for command in open_commands(state):
        # No other command waits for a test, which changes nothing.
        if command.task == id and (command.kind not in TESTS or requested.kind in TESTS):
            return in_progress(command, "for this task")
    return None


def _task_refusal(requested: CommandRequest, id: TaskId, state: StreamState) -> str | None:
    """Return why the task's own state forbids the command, or None."""
    task = state.tasks.get(id.digest) or TaskState(id=id)
    row = TASK_KINDS[requested.kind]
    forbidden = row.refusal(task)
    if requested.kind is CommandKind.DISMISS_TASK:
        return forbidden or _has_instance(requested, id, state)
    forbidden = forbidden or _older_checkpoint(id, state)
    if forbidden is not None:
        return forbidden
    if row.how is ResumeHow.RESTART:
        return _ended(id, state)
    if row.how is TaskAct.PAUSE:
        return key_refusal(id, keyed=_is_keyed(id, state))
    verb = NEEDS_FAILED_RECORD.get(row.how)
    if verb is not None and task.failure is None:
        return f"{id.printed} was paused by hand; there is no failed record to {verb}"
    if row.how is TaskAct.TEST and not row.recipients(requested, state):
        return f"no instance runs {id.pipeline}, and only a running pipeline can test a record"
    return target_refusal(task, requested.target)


def _is_keyed(id: TaskId, state: StreamState) -> bool:
    """Whether the tasks of the pipeline have keys; if its run has not described it, they may."""
    thread = state.threads.get((id.pipeline, id.checkpoint))
    return thread is None or thread.policy is None or thread.policy.keyed


def _has_instance(requested: CommandRequest, id: TaskId, state: StreamState) -> str | None:
    for instance in instance_of_run(requested, state):
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
