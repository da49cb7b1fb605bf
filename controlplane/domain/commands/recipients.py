"""The instances that receive a command, and the runs and commands that it may conflict with."""

from __future__ import annotations

from uuid import UUID

from arrester.controlplane.domain.commands.request import CommandRequest
from arrester.controlplane.domain.events import CommandKind
from arrester.controlplane.domain.state.live_runs import live
from arrester.controlplane.domain.state.states import (
    CommandState,
    InstanceState,
    ThreadState,
    ThreadStatus,
)
from arrester.controlplane.domain.state.stream_state import StreamState


def recipients(requested: CommandRequest, state: StreamState) -> list[UUID]:
    """Return the instances that have to answer: those that run the command's subject."""
    alive = [each.id for each in state.instances.values() if receives_commands(each)]
    if requested.kind is CommandKind.SHUT_DOWN_APPLICATION:
        return alive
    if requested.instance is not None:
        return [requested.instance]
    if requested.kind is CommandKind.SET_POLICY:
        return sorted({each.instance for each in runs(state, requested.pipeline) if each.instance})
    if requested.kind is CommandKind.RESTART_PIPELINE:
        threads = restartable(state, requested.pipeline)
        return sorted({each.instance for each in threads if each.instance})
    if requested.kind is CommandKind.REDRIVE:
        return []
    place = requested.task or requested
    thread = run_at(state, place.pipeline, place.checkpoint)
    return [id for id in alive if thread is not None and id == thread.instance]


def run_at(state: StreamState, pipeline: str | None, checkpoint: str | None) -> ThreadState | None:
    """Return the run on a checkpoint; None if it has ended, or there was none."""
    thread = state.threads.get((pipeline or "", checkpoint or ""))
    return None if thread is None or thread.status is ThreadStatus.DEAD else thread


def runs(state: StreamState, pipeline: str | None) -> list[ThreadState]:
    """Return the runs of a pipeline that receive commands: one on each checkpoint that it runs
    on."""
    return [
        each
        for each in state.threads.values()
        if each.pipeline == pipeline
        and each.status is ThreadStatus.RUNNING
        and _is_reachable(each, state)
    ]


def restartable(state: StreamState, pipeline: str | None) -> list[ThreadState]:
    """Return the runs of a pipeline that can be restarted: those that run, or if none does, the
    newest, whose instance still receives commands."""
    newest = live([each for each in state.threads.values() if each.pipeline == pipeline])
    return runs(state, pipeline) or [each for each in newest if _is_reachable(each, state)]


def _is_reachable(thread: ThreadState, state: StreamState) -> bool:
    instance = None if thread.instance is None else state.instances.get(thread.instance)
    return instance is not None and receives_commands(instance)


def receives_commands(instance: InstanceState) -> bool:
    """Whether the instance, as far as is known, fetches commands."""
    return not instance.ended and not instance.lost


def open_commands(state: StreamState) -> list[CommandState]:
    """Return the commands without a final status, oldest first."""
    waiting = [each for each in state.commands.values() if not each.status.final]
    return sorted(waiting, key=lambda each: (each.issued_at, str(each.id)))
