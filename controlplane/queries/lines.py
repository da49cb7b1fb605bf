"""Which pipelines at which checkpoints are shown: those that run, of each pipeline the newest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from controlplane.domain.states import ThreadState, ThreadStatus

#: A pipeline at a checkpoint of an application.
Line = tuple[str, str, str]
#: SQL of a table of lines, and of the condition that a row is of one of them; takes `columns`.
TABLE = "unnest(%s::text[], %s::text[], %s::text[])"
OF_LINES = f"(application, pipeline, checkpoint) IN (SELECT * FROM {TABLE})"


def shown(known: Sequence[ThreadState]) -> list[ThreadState]:
    """Return the threads that run, and of each pipeline the newest."""
    newest: dict[tuple[str, str], ThreadState] = {}
    beginning = datetime.min.replace(tzinfo=UTC)
    for each in sorted(known, key=lambda each: each.since or beginning):
        newest[(each.application, each.pipeline)] = each
    return [
        each
        for each in known
        if each.status is ThreadStatus.RUNNING or newest[(each.application, each.pipeline)] is each
    ]


def line(thread: ThreadState) -> Line:
    """Return the pipeline and checkpoint that a thread is of."""
    return (thread.application, thread.pipeline, thread.checkpoint)


def columns(known: Sequence[ThreadState]) -> list[list[str]]:
    """Return the parameters of `TABLE`."""
    return [
        [each.application for each in known],
        [each.pipeline for each in known],
        [each.checkpoint for each in known],
    ]
