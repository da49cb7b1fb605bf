"""Answers of a run to commands: refusals, and details and events of accepted commands."""

from __future__ import annotations

from datetime import datetime

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.journal.entries import Chunk
from arrester.agents.journal.task_ledger import TaskLedger
from arrester.agents.runtime.thread_protocol import PipelineCommand, PolicyCommand, TaskCommand
from arrester.domain.commands.kinds import NEEDS_FAILED_RECORD, TASK_KINDS, TaskAct
from arrester.domain.commands.refusals.tasks import key_refusal, target_refusal
from arrester.domain.events import (
    PipelinePaused,
    PipelineResumed,
    RecordTest,
    ResumeHow,
    TaskRestarted,
    TaskResumed,
)
from arrester.domain.plural import plural
from arrester.domain.state.states import PipelinePause

#: The most characters of a failure in the result of a test.
_MESSAGE_CHARACTERS = 300
#: Why the state of a task forbids what an agent is to do with it: the rules of the server.
_REFUSALS = {each.how: each.refusal for each in TASK_KINDS.values() if each.how}


def policy_detail(pipeline: Pipeline, requested: PolicyCommand) -> str:
    """Return what an applied policy command has changed."""
    if requested.answer is None:
        return f"{requested.stage} is answered as in the code, from the next micro-batch on"
    detail = f"{requested.stage} is answered {requested.answer} from the next micro-batch on"
    if requested.answer == "PAUSE" and pipeline.task is None:
        return f"{detail}; PAUSE of a task without a key is FAIL"
    return detail


def pipeline_event(
    requested: PipelineCommand, current: PipelinePause | None, at: datetime
) -> tuple[PipelinePaused | PipelineResumed, str]:
    """Return the event of an accepted pause or resume of the pipeline, and what it has changed.

    `current` is its pause before.
    """
    if not requested.pauses:
        resumed = PipelineResumed(actor=requested.actor, reason=requested.reason)
        return resumed, "resumed: held records run first, then the next micro-batch"
    paused = PipelinePaused(
        since=at if current is None else current.since,
        until=requested.until,
        actor=requested.actor,
        reason=requested.reason,
    )
    if current is None:
        return paused, "paused: no micro-batch and no held record begins"
    end = "it is resumed" if paused.until is None else f"{paused.until:%Y-%m-%d %H:%M:%S} UTC"
    return paused, f"PAUSED until {end}"


def tested_detail(test: RecordTest) -> str:
    """Return the result of a test of a record in one line."""
    if test.failure is None:
        return f"the record passes the steps: {plural(test.rows, 'row')} for the sink"
    text = f"{test.failure.exception_class}: {test.failure.message}".strip(": ").splitlines()[0]
    return f"the record fails at {test.failure.stage}: {text[:_MESSAGE_CHARACTERS]}"


def resume_detail(task: TaskLedger, requested: TaskCommand, skipped: Chunk | None) -> str:
    """Return where an applied resume or restart has let the task continue."""
    if requested.target is not None:
        count = 0 if skipped is None else skipped.taken
        return f"resumed at position {requested.target}, {plural(count, 'record')} skipped"
    done = "restarted" if requested.how is ResumeHow.RESTART else "resumed"
    return f"{done} {'past' if skipped else 'from'} position {task.state.position}"


def resumed_event(
    task: TaskLedger, requested: TaskCommand, skipped: Chunk | None
) -> TaskResumed | TaskRestarted:
    """Return the event of an accepted resume or restart; `skipped` has the rows before it."""
    position = task.state.position
    if requested.how is ResumeHow.RESTART:
        return TaskRestarted(
            task=requested.key, position=position, actor=requested.actor, reason=requested.reason
        )
    assert isinstance(requested.how, ResumeHow)
    has_target = requested.target is not None
    return TaskResumed(
        task=requested.key,
        how=requested.how,
        position=requested.target if has_target else position,
        actor=requested.actor,
        reason=requested.reason,
        skipped=skipped.taken if has_target and skipped is not None else 0,
    )


def task_command_refusal(task: TaskLedger, requested: TaskCommand, *, keyed: bool) -> str | None:
    """Return why the task's state forbids the command; None if it does not.

    `keyed`: the pipeline's tasks have keys.
    """
    state = task.state
    forbidden = _REFUSALS[requested.how](state)
    if forbidden is None and requested.how is TaskAct.PAUSE:
        forbidden = key_refusal(state.id, keyed=keyed)
    if forbidden is not None or requested.how is TaskAct.PAUSE:
        return forbidden
    if requested.position is not None and requested.position != state.position:
        held_at = f"{state.id.printed} is held at position {state.position}"
        return f"{held_at}, not {requested.position}"
    forbidden = target_refusal(state, requested.target)
    if forbidden is not None:
        return forbidden
    verb = NEEDS_FAILED_RECORD.get(requested.how)
    if verb is not None and task.stopped_by is None:
        return f"{state.id.printed} was not paused by a failed record; there is none to {verb}"
    return None
