"""Which runs are live: the newest of each pipeline; and since when a checkpoint has no run.

A run is as new as its start; its end makes it no newer. An unguarded query is never the newest
beside a run of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from arrester.domain.python_versions import UTC, StrEnum
from arrester.domain.state.states import InstanceState, ThreadState, ThreadStatus

_EARLIEST = datetime.min.replace(tzinfo=UTC)


def live(threads: Sequence[ThreadState]) -> list[ThreadState]:
    """Return the runs on live checkpoints, in the given order."""
    newest: dict[tuple[str, str], ThreadState] = {}
    for each in sorted(threads, key=_started):
        newest[(each.application, each.pipeline)] = each
    return [each for each in threads if newest[(each.application, each.pipeline)] is each]


def _started(thread: ThreadState) -> tuple[bool, datetime, str]:
    # A run describes its pipeline at its start. A run that did not has only its last change.
    began = thread.described_at or thread.since or _EARLIEST
    return not thread.unguarded, began, thread.checkpoint


class RunStatus(StrEnum):
    """What a run of a pipeline does, as far as is known."""

    RUNNING = "RUNNING"
    #: A person paused its pipeline. It begins nothing, and answers commands.
    PAUSED = "PAUSED"
    #: It ended with a failure.
    DEAD = "DEAD"
    #: Its driver is lost, or ended without the end of the run: how it ended is unknown.
    LOST = "LOST"
    #: Stopped, shut down, or finished.
    STOPPED = "STOPPED"

    @property
    def is_live(self) -> bool:
        """Whether the run exists: its tasks do not wait for another one."""
        return self in (RunStatus.RUNNING, RunStatus.PAUSED)


def run_status(thread: ThreadState, instances: Mapping[UUID, InstanceState]) -> RunStatus:
    """Return what a run does; an unknown instance is LOST."""
    if thread.status is ThreadStatus.DEAD:
        return RunStatus.STOPPED if thread.failure is None else RunStatus.DEAD
    if no_run_since(thread, instances) is not None:
        return RunStatus.LOST
    return RunStatus.RUNNING if thread.paused is None else RunStatus.PAUSED


def no_run_since(thread: ThreadState, instances: Mapping[UUID, InstanceState]) -> datetime | None:
    """Return since when no run uses the checkpoint of `thread`; None while one does.

    Of a lost instance, this is its last heartbeat.
    """
    instance = None if thread.instance is None else instances.get(thread.instance)
    if thread.status is ThreadStatus.DEAD or instance is None:
        return thread.since
    if instance.lost and isinstance(instance.last_heartbeat, datetime):
        return instance.last_heartbeat
    return instance.since if instance.lost or instance.ended else None
