"""The task grid: pipelines on their checkpoints, with their runs, tasks and counts.

Each query needs a fixed number of statements for any number of pipelines and tasks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from arrester.controlplane.queries import paging, sql
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.domain.state.live_runs import RunStatus, live, run_status
from arrester.domain.state.states import (
    InstanceState,
    TaskState,
    TaskStatus,
    ThreadState,
)

_FIRST_TASKS = f"""digest IN (
    SELECT first.digest FROM {live_checkpoints.TABLE} AS line (application, pipeline, checkpoint),
    LATERAL (
        SELECT digest FROM task WHERE task.application = line.application
            AND task.pipeline = line.pipeline AND task.checkpoint = line.checkpoint
            AND task.status <> 'DISMISSED' AND (%s = '' OR starts_with(task.key, %s))
        ORDER BY status, key NULLS FIRST, digest LIMIT %s OFFSET %s) AS first)
    ORDER BY status, key NULLS FIRST, digest"""
#: The statuses of counted tasks: all but DISMISSED.
COUNTED = (TaskStatus.RUNNING, TaskStatus.PAUSED, TaskStatus.DEAD)
#: In place of RUNNING: tasks that wait for the next run, because none uses their checkpoint.
NO_RUN: Final = "NO_RUN"
_RUNS_FIRST = (
    *(RunStatus.DEAD, RunStatus.LOST, RunStatus.PAUSED, RunStatus.RUNNING, RunStatus.STOPPED),
)
#: What a run does, and the run.
OrderedRun = tuple[RunStatus, ThreadState]
# Each from an index alone: a task's state takes a kilobyte, and there may be very many.
_COUNTS = """
SELECT application, pipeline, checkpoint, status, count(*) FROM task
WHERE application = ANY(%s::text[]) AND status <> 'DISMISSED' GROUP BY 1, 2, 3, 4
UNION ALL
SELECT application, pipeline, checkpoint, 'held', sum(held) FROM task
WHERE application = ANY(%s::text[]) AND held > 0 GROUP BY 1, 2, 3
"""


class GridPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline on a checkpoint with its tasks, as shown in the grid."""

    thread: ThreadState
    run: RunStatus
    #: DEAD and PAUSED ones first, then by key; at most `limit`, without dismissed ones.
    tasks: tuple[TaskState, ...]
    #: The number of tasks with a row, by status or NO_RUN; dismissed ones are left out.
    counts: dict[str, int]
    #: Their held records.
    held: int = 0
    #: An older checkpoint of the same pipeline is RUNNING too: probably a mistake.
    has_other_checkpoint: bool = False


class PipelineGrid(msgspec.Struct, frozen=True, kw_only=True):
    """Some pipelines of an application: dead runs first, then by name."""

    pipelines: tuple[GridPipeline, ...]
    #: The number of all pipelines.
    total: int


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A page of pipelines; the last one, if they end before it."""

    number: int = 1
    size: int = 500

    def of(self, runs: Sequence[OrderedRun]) -> list[OrderedRun]:
        """Return the runs of the page."""
        number = min(self.number, max(1, -(-len(runs) // self.size)))
        return [*runs[(number - 1) * self.size : number * self.size]]


FIRST: Final = Section()


def threads(application: str) -> tuple[ThreadState, ...]:
    """Return the newest run of each pipeline on each checkpoint, live ones first."""
    where = "application = %s ORDER BY status DESC, pipeline, since DESC NULLS LAST, checkpoint"
    return tuple(row_mapping.THREADS.load(where, [application]))


def pipelines(
    application: str,
    *,
    only: str | None = None,
    key: str = "",
    offset: int = 0,
    limit: int = 500,
    section: Section = FIRST,
) -> PipelineGrid:
    """Return a page of the task grid: the live checkpoint of each pipeline with its tasks.

    `only` names one pipeline. Of each pipeline it contains the tasks whose key begins with `key`,
    from `offset` on.
    """
    all_threads = threads(application)
    named = [each for each in live(all_threads) if only in (None, each.pipeline)]
    runs = ordered(named, live_checkpoints.instances_of(named))
    some = section.of(runs)
    shown = [each for _, each in some]
    tasks: dict[live_checkpoints.PipelineKey, list[TaskState]] = defaultdict(list)
    parameters = [*live_checkpoints.columns(shown), key, key, paging.checked(limit), offset]
    for task in row_mapping.TASKS.load(_FIRST_TASKS, parameters):
        tasks[live_checkpoints.pipeline_key(task.id)].append(task)
    found = grid(some, all_threads, tasks, counts_by_pipeline([application]))
    return PipelineGrid(pipelines=found, total=len(runs))


def ordered(
    runs: Iterable[ThreadState], instances: Mapping[UUID, InstanceState]
) -> list[OrderedRun]:
    """Return runs with their states: dead ones first, then by name."""
    return sorted(
        ((run_status(each, instances), each) for each in runs),
        key=lambda each: (_RUNS_FIRST.index(each[0]), each[1].pipeline, each[1].checkpoint),
    )


def grid(
    runs: Iterable[OrderedRun],
    all_threads: Sequence[ThreadState],
    tasks: Mapping[live_checkpoints.PipelineKey, Sequence[TaskState]],
    counts: Mapping[live_checkpoints.PipelineKey, Counter[str]],
) -> tuple[GridPipeline, ...]:
    """Return the grid of some runs with their tasks and counts."""
    doubled = {each.pipeline for each in live_checkpoints.running_on_others(all_threads)}
    pipelines = []
    for run, thread in runs:
        key = live_checkpoints.pipeline_key(thread)
        count = counts_of_run(counts.get(key, Counter()), run)
        pipeline = GridPipeline(
            thread=thread,
            run=run,
            tasks=tuple(tasks.get(key, ())),
            counts={status: count[status] for status in (*COUNTED, NO_RUN)},
            held=count["held"],
            has_other_checkpoint=thread.pipeline in doubled,
        )
        pipelines.append(pipeline)
    return tuple(pipelines)


def counts_of_run(counts: Counter[str], run: RunStatus) -> Counter[str]:
    """Return the counts of a pipeline's tasks: without a run none of them is RUNNING."""
    if run.is_live:
        return counts
    found = Counter(counts)
    found[NO_RUN] = found.pop(TaskStatus.RUNNING.value, 0)
    return found


def task_counts(
    names: Sequence[str],
    threads: Sequence[ThreadState] | None = None,
    counts: Mapping[live_checkpoints.PipelineKey, Counter[str]] | None = None,
) -> dict[str, Counter[str]]:
    """Return the number of tasks by status or NO_RUN, and `held`, of the live checkpoints of each
    application. `threads` are those of all applications, and `counts` those of pipelines, if they
    are loaded."""
    if threads is None:
        threads = row_mapping.THREADS.load_readable("application = ANY(%s)", [names])
    if counts is None:
        counts = counts_by_pipeline(names)
    shown = {live_checkpoints.pipeline_key(each): each for each in live(threads)}
    instances = live_checkpoints.instances_of(shown.values())
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for key, counted in counts.items():
        if key in shown:
            totals[key[0]].update(counts_of_run(counted, run_status(shown[key], instances)))
    return totals


def counts_by_pipeline(names: Sequence[str]) -> dict[live_checkpoints.PipelineKey, Counter[str]]:
    """Return the number of tasks by status, and `held`, of each pipeline and checkpoint of some
    applications."""
    counts: dict[live_checkpoints.PipelineKey, Counter[str]] = defaultdict(Counter)
    for application, pipeline, checkpoint, what, count in sql.rows(_COUNTS, [list(names)] * 2):
        counts[(application, pipeline, checkpoint)].update({what: int(count)})
    return counts
