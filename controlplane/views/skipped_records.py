"""What becomes of records that a person skips: dead letters, if their pipeline stores them."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from arrester.controlplane.views import rollout_progress, row_mapping
from arrester.domain.events import CommandKind, Rollout
from arrester.domain.identity.names import TaskId
from arrester.domain.state.live_runs import live
from arrester.domain.state.states import ThreadState

#: The first tasks of a rollout, whose pipelines are considered.
_MOST_TASKS = 500


class SkippedRecords(StrEnum):
    """What becomes of skipped records."""

    STORED = "STORED"
    #: A pipeline stores no dead letters.
    LOST = "LOST"
    #: An agent of an older version has not reported it.
    UNKNOWN = "UNKNOWN"


def of_tasks(application: str, tasks: Collection[TaskId]) -> SkippedRecords:
    """Return what becomes of skipped records of tasks; LOST if it is so for one of them."""
    pipelines = {each.pipeline for each in tasks}
    threads = row_mapping.THREADS.load_readable("application = %s", [application])
    found = {each.pipeline: _of(each) for each in live(threads) if each.pipeline in pipelines}
    results = {found.get(each, SkippedRecords.UNKNOWN) for each in pipelines}
    order = (SkippedRecords.LOST, SkippedRecords.UNKNOWN)
    return next((each for each in order if each in results), SkippedRecords.STORED)


def of_rollout(application: str, rollout: Rollout) -> SkippedRecords:
    """Return what becomes of the records that a rollout skips."""
    kind = CommandKind.SKIP_RECORDS
    tasks = rollout_progress.next_tasks(application, kind, rollout, limit=_MOST_TASKS)
    return of_tasks(application, tasks)


def _of(thread: ThreadState) -> SkippedRecords:
    if thread.policy is None:
        return SkippedRecords.UNKNOWN
    stored = thread.policy.dead_letter_format is not None
    return SkippedRecords.STORED if stored else SkippedRecords.LOST
