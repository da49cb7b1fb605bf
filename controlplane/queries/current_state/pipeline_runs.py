"""The runs of a pipeline that a command reaches."""

from __future__ import annotations

from collections.abc import Iterable

from arrester.controlplane.queries.current_state import task_grid
from arrester.domain.commands import recipients
from arrester.domain.state.states import (
    ApplicationState,
    InstanceState,
    ThreadState,
)
from arrester.domain.state.stream_state import StreamState


def runs(
    application: str, pipeline: str, instances: Iterable[InstanceState]
) -> tuple[ThreadState, ...]:
    """Return the runs of a pipeline that receive commands: those in which a policy is set."""
    return tuple(recipients.runs(_state(application, instances), pipeline))


def restartable(
    application: str, pipeline: str, instances: Iterable[InstanceState]
) -> tuple[ThreadState, ...]:
    """Return the runs of a pipeline that a command restarts; the newest may have ended."""
    return tuple(recipients.restartable(_state(application, instances), pipeline))


def _state(application: str, instances: Iterable[InstanceState]) -> StreamState:
    state = StreamState(application=ApplicationState(name=application))
    state.instances.update({each.id: each for each in instances})
    threads = task_grid.threads(application)
    state.threads.update({(each.pipeline, each.checkpoint): each for each in threads})
    return state
