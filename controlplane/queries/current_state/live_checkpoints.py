"""Live checkpoints: the newest of each pipeline. Counts, lists and dialogs leave out the others.

A checkpoint is as new as the last start of a run on it; the end of a run makes it no newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.state.states import ThreadState, ThreadStatus
from arrester.controlplane.views import row_mapping

#: A pipeline on a checkpoint of an application.
PipelineKey = tuple[str, str, str]
#: SQL of a table of pipelines on checkpoints, and of the condition that a row belongs to one
#: of them; takes `columns`.
TABLE = "unnest(%s::text[], %s::text[], %s::text[])"
OF_THREADS = f"(application, pipeline, checkpoint) IN (SELECT * FROM {TABLE})"
_EARLIEST = datetime.min.replace(tzinfo=UTC)


def live(threads: Sequence[ThreadState]) -> list[ThreadState]:
    """Return the runs on live checkpoints, in the given order."""
    newest: dict[tuple[str, str], ThreadState] = {}
    for each in sorted(threads, key=_started):
        newest[(each.application, each.pipeline)] = each
    return [each for each in threads if newest[(each.application, each.pipeline)] is each]


def live_keys(threads: Sequence[ThreadState]) -> frozenset[PipelineKey]:
    """Return the live checkpoints with their pipelines."""
    return frozenset(pipeline_key(each) for each in live(threads))


def live_checkpoints(applications: Iterable[str]) -> frozenset[PipelineKey]:
    """Return the live checkpoints of some applications, with their pipelines."""
    names = [[*applications]]
    return live_keys(row_mapping.THREADS.load_readable("application = ANY(%s::text[])", names))


def running_on_others(threads: Sequence[ThreadState]) -> tuple[ThreadState, ...]:
    """Return the live runs of pipelines that also have a RUNNING run on an older checkpoint."""
    shown = live(threads)
    keys = {pipeline_key(each) for each in shown}
    others = {
        (each.application, each.pipeline)
        for each in threads
        if each.status is ThreadStatus.RUNNING and pipeline_key(each) not in keys
    }
    found = {name: each for each in shown if (name := (each.application, each.pipeline)) in others}
    return tuple(each for _, each in sorted(found.items()))


def _started(thread: ThreadState) -> tuple[datetime, str]:
    # A run describes its pipeline at its start. A run that did not has only its last change.
    return thread.described_at or thread.since or _EARLIEST, thread.checkpoint


def pipeline_key(thread: ThreadState) -> PipelineKey:
    """Return the pipeline and checkpoint of a run."""
    return (thread.application, thread.pipeline, thread.checkpoint)


def task_key(id: TaskId) -> PipelineKey:
    """Return the pipeline and checkpoint of a task."""
    return (id.application, id.pipeline, id.checkpoint)


def columns(threads: Sequence[ThreadState]) -> list[list[str]]:
    """Return the parameters of `TABLE`."""
    return [
        [each.application for each in threads],
        [each.pipeline for each in threads],
        [each.checkpoint for each in threads],
    ]
