"""Why the state forbids a command for a pipeline."""

from __future__ import annotations

from msgspec.structs import replace

from arrester.domain.commands.agent_versions import unknown_command
from arrester.domain.commands.recipients import (
    instance_of_run,
    open_commands,
    restartable,
    run_at,
    runs,
)
from arrester.domain.commands.redrive import READ_BACK
from arrester.domain.commands.refusals.in_progress import in_progress
from arrester.domain.commands.request import CommandRequest
from arrester.domain.events import CommandKind
from arrester.domain.state.live_runs import live
from arrester.domain.state.policy_overrides import policy_refusal
from arrester.domain.state.states import ApplicationStatus, PipelinePause
from arrester.domain.state.stream_state import StreamState

_PAUSE_AND_RESUME = (CommandKind.PAUSE_PIPELINE, CommandKind.RESUME_PIPELINE)


def unguarded_refusal(requested: CommandRequest, state: StreamState) -> str | None:
    """Return why a query that is only observed can have no command, or None."""
    named = requested.task or requested
    threads = [each for each in state.threads.values() if each.pipeline == named.pipeline]
    if not threads or not all(each.unguarded for each in threads):
        return None
    return f"{named.pipeline} is an unguarded query, which is only observed: it takes no commands"


def set_policy_refusal(requested: CommandRequest, state: StreamState) -> str | None:
    """Return why the policy of a stage may not be set, or None."""
    pipeline, stage = requested.pipeline or "", requested.stage or ""
    if state.application.status is ApplicationStatus.LATCHED:
        return f"{state.application.name} is LATCHED; start the application first"
    for command in open_commands(state):
        if (command.pipeline, command.stage) == (pipeline, stage):
            return in_progress(command, "for this stage")
    return policy_refusal(runs(state, pipeline), pipeline, stage, requested.answer)


def restart_pipeline_refusal(requested: CommandRequest, state: StreamState) -> str | None:
    """Return why a pipeline may not be restarted, or None."""
    pipeline = requested.pipeline or ""
    forbidden = _in_progress(requested, state)
    if forbidden is not None:
        return forbidden
    if not any(thread.pipeline == pipeline for thread in state.threads.values()):
        return f"{state.application.name} has no pipeline {pipeline}"
    if not restartable(state, pipeline):
        return f"no live instance has a thread of {pipeline}; start its driver"
    return None


def pause_pipeline_refusal(requested: CommandRequest, state: StreamState) -> str | None:
    """Return why a pipeline may not be paused, or resumed, or None.

    It may if the command changes any of its runs.
    """
    pipeline, pauses = requested.pipeline or "", requested.kind is CommandKind.PAUSE_PIPELINE
    forbidden = _in_progress(requested, state, *_PAUSE_AND_RESUME)
    if forbidden is not None:
        return forbidden
    threads = [each for each in state.threads.values() if each.pipeline == pipeline]
    if not threads:
        return f"{state.application.name} has no pipeline {pipeline}"
    running = runs(state, pipeline)
    if not running:
        if any(each.paused for each in live(threads)):
            return (
                f"no live instance runs {pipeline}, and its next run starts PAUSED; start its"
                " driver, then resume it"
            )
        return f"no live instance runs {pipeline}; start its driver"
    answers = [pause_refusal(pipeline, each.paused, pauses=pauses) for each in running]
    return None if None in answers else answers[0]


def pause_refusal(pipeline: str, current: PipelinePause | None, *, pauses: bool) -> str | None:
    """Return why the pause of one run may not begin, or end, or None; agents call it too.

    A pause of a PAUSED pipeline gives it another end, actor and reason.
    """
    if pauses or current is not None:
        return None
    return f"only a PAUSED pipeline can resume; {pipeline} is RUNNING"


def redrive_refusal(requested: CommandRequest, state: StreamState) -> str | None:
    """Return why dead letters of a pipeline may not be redriven, or None."""
    forbidden = _in_progress(requested, state)
    if forbidden is not None:
        return forbidden
    runs_there = replace(requested, kind=CommandKind.REDRIVE_RECORDS)
    if not instance_of_run(requested, state):
        return (
            f"no live instance runs {requested.pipeline} on the checkpoint of these dead letters;"
            " start it, or call agent.redrive in its next run"
        )
    older = unknown_command(runs_there, state)
    if older is not None:
        return older
    unreadable = _unreadable_format(requested, state)
    if unreadable is not None:
        return unreadable
    if requested.redrive is not None and not requested.redrive.records:
        return "none of these dead letters waits"
    return None


def _unreadable_format(requested: CommandRequest, state: StreamState) -> str | None:
    """Return why the agent cannot read the dead letters of a run back; None: it can, or its run
    has not reported how it stores them."""
    thread = run_at(state, requested.pipeline, requested.checkpoint)
    if thread is None or thread.policy is None:
        return None
    format, instead = thread.policy.dead_letter_format, "; call agent.redrive instead"
    if format is None:
        return (
            f"{thread.pipeline} stores no dead letters now (errors.dlq.enable), so its agent cannot"
            f" read them{instead}"
        )
    if format not in READ_BACK:
        return (
            f"{thread.pipeline} stores dead letters as {format}; agents read back"
            f" {', '.join(READ_BACK)}{instead}"
        )
    return None


def _in_progress(requested: CommandRequest, state: StreamState, *kinds: CommandKind) -> str | None:
    """Return whether a latch, or another command of the kinds for the pipeline, forbids it; without
    `kinds`, of its own kind."""
    if state.application.status is ApplicationStatus.LATCHED:
        return f"{state.application.name} is LATCHED; start the application first"
    for command in open_commands(state):
        if command.kind not in (kinds or (requested.kind,)):
            continue
        if command.pipeline == requested.pipeline:
            return in_progress(command, f"for {command.pipeline}")
    return None
