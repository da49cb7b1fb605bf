"""Fencing: a run claims the checkpoint with the next epoch, by an atomic create.

Each later entry of an older run is refused (`Journal.check_owned`, `Superseded`). The claim also
restarts the tasks that a new run starts again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from arrester.agents.journal.entries import NO_BATCH, Entry, EntryKind
from arrester.agents.journal.files import FOLDER
from arrester.agents.journal.journal import Journal, Superseded
from arrester.agents.journal.ledger import Ledger
from arrester.agents.journal.pipeline_pause import end_of, is_over, report_of
from arrester.agents.journal.storage import (
    CheckpointUnusable,
    Storage,
    last_committed,
    last_planned,
)
from arrester.domain.events import (
    Event,
    EventData,
    PipelineDescribed,
    PolicyChanged,
    ResumeHow,
    Run,
    StageCommanded,
    TaskRestarted,
    TaskResumed,
    ThreadStarted,
)
from arrester.domain.state.states import TaskStatus

#: Other runs may claim at the same moment. Each attempt reads what the winner wrote.
_ATTEMPTS = 20


def claim(
    files: Storage,
    *,
    application: str,
    pipeline: str,
    checkpoint: str,
    instance: UUID,
    policy: PipelineDescribed,
    now: datetime,
    committed: int = NO_BATCH,
    adopt: bool = False,
) -> tuple[Journal, Run]:
    """Claim the checkpoint; return its journal and the run that owns it. An older run ends.

    A new instance restarts tasks that a failure paused, and tasks that died alone, at the failed
    record (KIP-990). Tasks that an operator paused stay PAUSED. A replacement thread changes
    neither; it restarts the task that ended its predecessor. The start event carries `policy`,
    the entry the last `committed` micro-batch.
    Raises CheckpointUnusable for a checkpoint of another application or pipeline, unless `adopt`
    renames it, and Superseded only if other runs keep winning.
    """
    for _ in range(_ATTEMPTS):
        journal = Journal(files, application=application, pipeline=pipeline, checkpoint=checkpoint)
        journal.load()
        if not adopt:
            _check_owner(journal.ledger, files, application=application, pipeline=pipeline)
        run = Run(pipeline=pipeline, checkpoint=checkpoint, epoch=journal.ledger.epoch + 1)
        entry = Entry(
            kind=EntryKind.RUN,
            at=now,
            epoch=run.epoch,
            after=committed,
            instance=instance,
            application=application,
            pipeline=pipeline,
            events=tuple(
                Event(occurred_at=now, data=data, instance=instance, run=run)
                for data in _start_events(journal.ledger, policy, instance, now)
            ),
        )
        try:
            journal.append(entry)
        except Superseded:
            continue
        return journal, run
    raise Superseded(f"others claimed {files.root} {_ATTEMPTS} times while this run tried to")


def check_journal(files: Storage, progress: Storage) -> None:
    """Raise CheckpointUnusable if Spark planned micro-batches without a journal of ours.

    `progress` has Spark's files. A run makes its first entry before its query starts.
    """
    planned = max(last_planned(progress), last_committed(progress))
    if planned == NO_BATCH or files.names(FOLDER):
        return
    raise CheckpointUnusable(
        f"{files.root} has micro-batches (the last is {planned}) but no {FOLDER}: the folder was "
        "deleted or not copied, or a plain Spark query made the checkpoint. Restore the folder, or "
        "pass adopt=True to continue without it: records that were held are then lost"
    )


def _check_owner(ledger: Ledger, files: Storage, *, application: str, pipeline: str) -> None:
    if (ledger.application, ledger.pipeline) != (application, pipeline):
        raise CheckpointUnusable(
            f"{files.root} is the checkpoint of pipeline {ledger.pipeline!r} of application "
            f"{ledger.application!r}, not of pipeline {pipeline!r} of application "
            f"{application!r}. Use another checkpoint; or if the pipeline was renamed, pass "
            "adopt=True: its held records, tasks and overrides continue under the new name"
        )


def _start_events(
    ledger: Ledger, policy: PipelineDescribed, instance: UUID, now: datetime
) -> Iterator[EventData]:
    """Yield what a start reports: the run, its policy, its pause and the tasks that run again."""
    yield ThreadStarted()
    yield from _removed_overrides(ledger, policy)
    yield replace(policy, commanded=_active_overrides(ledger, policy))
    if ledger.pause is not None:
        yield end_of(ledger.pause) if is_over(ledger.pause, now) else report_of(ledger.pause)
    yield from _restarts(ledger, instance)


def _active_overrides(ledger: Ledger, policy: PipelineDescribed) -> tuple[StageCommanded, ...]:
    """Return the policy overrides that are still in force."""
    names = {stage.name for stage in policy.stages}
    return tuple(override for name, override in ledger.overrides.items() if name in names)


def _removed_overrides(ledger: Ledger, policy: PipelineDescribed) -> list[EventData]:
    """Return the end of overrides for stages that the pipeline no longer has."""
    names = {stage.name for stage in policy.stages}
    reason = "the pipeline has no such stage any more"
    return [PolicyChanged(stage=name, reason=reason) for name in ledger.overrides.keys() - names]


def _restarts(ledger: Ledger, instance: UUID) -> list[EventData]:
    """Return the changes that a new run makes to stopped tasks."""
    is_new_instance = ledger.instance != instance
    events: list[EventData] = []
    for task in ledger.tasks.values():
        state = task.state
        if state.status is TaskStatus.DEAD and (is_new_instance or not task.alone):
            events.append(TaskRestarted(task=state.id.key, position=state.position))
        elif state.status is TaskStatus.PAUSED and state.failure is not None and is_new_instance:
            events.append(
                TaskResumed(task=state.id.key, how=ResumeHow.RESTART, position=state.position)
            )
    return events
