"""What a command would do: the affected tasks and instances, or why it is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from arrester.controlplane import access
from arrester.controlplane.actions.commands import MAX_TASKS
from arrester.controlplane.views import (
    live_checkpoints,
    projections,
    rollout_progress,
    row_mapping,
    skipped_records,
)
from arrester.controlplane.views.skipped_records import SkippedRecords
from arrester.domain.commands.decide import decide
from arrester.domain.commands.kinds import skips_records
from arrester.domain.commands.request import CommandRequest
from arrester.domain.events import CommandIssued, CommandRefused
from arrester.domain.identity.names import TaskId


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a command would do now."""

    #: The affected tasks that agents have reported, at most `MAX_TASKS`.
    tasks: tuple[TaskId, ...]
    total: Annotated[int, Meta(description="The number of affected tasks.")]
    instances: Annotated[
        tuple[UUID, ...], Meta(description="The instances that would have to answer.")
    ]
    refused: Annotated[
        str | None, Meta(description="Why the state forbids the command; null: it does not.")
    ]
    skipped: Annotated[
        SkippedRecords | None,
        Meta(
            description="What becomes of skipped records. STORED: dead letters; LOST: a pipeline"
            " stores none; UNKNOWN: not reported; null: the command skips none."
        ),
    ]
    afterwards: Annotated[
        str | None,
        Meta(
            description="Where the records are after the command, in words; null: the command skips"
            " and changes none."
        ),
    ]


def dry_run(application: str, requested: CommandRequest) -> DryRun:
    """Return what a command would do now, and issue nothing.

    Raises InvalidValue for an invalid request, NotPermitted for a person who may not issue it.
    """
    access.require(application)
    tasks, total = _affected(application, requested)
    if requested.rollout is not None:
        requested = replace(requested, rollout=replace(requested.rollout, tasks=total))
    subject = requested.task or requested
    state = projections.current_states(
        application,
        tasks=[] if requested.task is None else [requested.task],
        pipelines=[] if subject.pipeline is None else [subject.pipeline],
    )
    events = decide(requested, state, now=datetime.now(UTC))
    instances = {id for each in events if isinstance(each, CommandIssued) for id in each.instances}
    reasons = [each.reason for each in events if isinstance(each, CommandRefused)]
    return DryRun(
        tasks=tuple(tasks),
        total=total,
        instances=tuple(sorted(instances, key=str)),
        refused=reasons[0] if reasons else None,
        skipped=skipped_records.of_tasks(application, tasks)
        if skips_records(requested.kind)
        else None,
        afterwards=skipped_records.after_command(application, requested.kind, tasks),
    )


def _affected(application: str, requested: CommandRequest) -> tuple[list[TaskId], int]:
    """Return the first affected tasks, and the number of all."""
    if requested.task is not None:
        return [requested.task], 1
    if requested.rollout is not None:
        found = rollout_progress.next_tasks(
            application, requested.kind, requested.rollout, limit=MAX_TASKS
        )
        total = rollout_progress.count_waiting(application, requested.kind, requested.rollout)
        return found, total
    threads = [
        each
        for each in row_mapping.THREADS.load("application = %s", [application])
        if requested.pipeline in (None, each.pipeline)
        and requested.instance in (None, each.instance)
    ]
    tasks, total = live_checkpoints.tasks_of(threads, limit=MAX_TASKS)
    return [task.id for task in tasks], total
