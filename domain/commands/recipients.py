"""The instances that receive a command, and the runs and commands that it may conflict with."""

from __future__ import annotations

from uuid import UUID

from arrester.domain.commands.request import CommandRequest
from arrester.domain.state.live_runs import live
from arrester.domain.state.states import (
    CommandState,
    InstanceState,
    ThreadState,
    ThreadStatus,
)
from arrester.domain.state.stream_state import StreamState


def no_instance(_requested: CommandRequest, _state: StreamState) -> list[UUID]:
    """Return the recipients of a command that the server applies: none."""
    return []


def live_instances(_requested: CommandRequest, state: StreamState) -> list[UUID]:
    """Return all instances that receive commands."""
    return [each.id for each in state.instances.values() if receives_commands(each)]


def named_instance(requested: CommandRequest, _state: StreamState) -> list[UUID]:
    """Return the instance that the request names."""
    return [] if requested.instance is None else [requested.instance]


def instance_of_run(requested: CommandRequest, state: StreamState) -> list[UUID]:
    """Return the instance that runs the checkpoint of the task or of the dead letters."""
    place = requested.task or requested
    thread = run_at(state, place.pipeline, place.checkpoint)
    alive = live_instances(requested, state)
    return [id for id in alive if thread is not None and id == thread.instance]


def instances_with_runs(requested: CommandRequest, state: StreamState) -> list[UUID]:
    """Return the instances that run the pipeline, on any checkpoint."""
    return sorted({each.instance for each in runs(state, requested.pipeline) if each.instance})


def instances_that_can_restart(requested: CommandRequest, state: StreamState) -> list[UUID]:
    """Return the instances that run the pipeline, or if none does, that ran it last."""
    threads = restartable(state, requested.pipeline)
    return sorted({each.instance for each in threads if each.instance})


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
        and not each.unguarded
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
