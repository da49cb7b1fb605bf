"""The checkpoints that pages show: those with a running thread, and the newest of each pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from arrester.controlplane.domain.state.states import ThreadState, ThreadStatus

#: A pipeline on a checkpoint of an application.
PipelineKey = tuple[str, str, str]
#: SQL of a table of pipelines on checkpoints, and of the condition that a row belongs to one
#: of them; takes `columns`.
TABLE = "unnest(%s::text[], %s::text[], %s::text[])"
OF_THREADS = f"(application, pipeline, checkpoint) IN (SELECT * FROM {TABLE})"


def shown(threads: Sequence[ThreadState]) -> list[ThreadState]:
    """Return the running threads, and the newest of each pipeline."""
    newest: dict[tuple[str, str], ThreadState] = {}
    for each in sorted(threads, key=_since):
        newest[(each.application, each.pipeline)] = each
    return [
        each
        for each in threads
        if each.status is ThreadStatus.RUNNING or newest[(each.application, each.pipeline)] is each
    ]


def on_two_checkpoints(threads: Sequence[ThreadState]) -> tuple[ThreadState, ...]:
    """Return the newest run of each pipeline that runs on two checkpoints or more."""
    alive = [each for each in shown(threads) if each.status is ThreadStatus.RUNNING]
    count = Counter((each.application, each.pipeline) for each in alive)
    newest = {(each.application, each.pipeline): each for each in sorted(alive, key=_since)}
    return tuple(each for name, each in sorted(newest.items()) if count[name] > 1)


def _since(thread: ThreadState) -> datetime:
    return thread.since or datetime.min.replace(tzinfo=UTC)


def pipeline_key(thread: ThreadState) -> PipelineKey:
    """Return the pipeline and checkpoint of a thread."""
    return (thread.application, thread.pipeline, thread.checkpoint)


def columns(threads: Sequence[ThreadState]) -> list[list[str]]:
    """Return the parameters of `TABLE`."""
    return [
        [each.application for each in threads],
        [each.pipeline for each in threads],
        [each.checkpoint for each in threads],
    ]
