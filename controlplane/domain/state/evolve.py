"""`evolve`: the state after an event. It accepts every event and never reads a body."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec.structs import replace

from arrester.controlplane.domain.events import (
    FAILED,
    ApplicationEvent,
    ApplicationLatched,
    ApplicationOpened,
    ApplicationShutdownRequested,
    CommandApplied,
    CommandCancelled,
    CommandDelivered,
    CommandEvent,
    CommandExpired,
    CommandIssued,
    CommandRefused,
    InstanceFound,
    InstanceLost,
    InstanceStarted,
    InstanceStopped,
    InstanceStopping,
    OutageFound,
    PipelineDescribed,
    PolicyChanged,
    RecordsHeld,
    ResumeHow,
    TaskDied,
    TaskEvent,
    TaskPaused,
    TaskReported,
    TaskRestarted,
    TaskResumed,
    ThreadDied,
    ThreadEvent,
    ThreadReplaced,
    ThreadStarted,
)
from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.state.counters import COUNTED, TaskSums
from arrester.controlplane.domain.state.policy_overrides import changed
from arrester.controlplane.domain.state.states import (
    ApplicationState,
    ApplicationStatus,
    CommandState,
    CommandStatus,
    Counters,
    Delivery,
    InstanceState,
    InstanceStatus,
    MostToleranceUsed,
    TaskState,
    TaskStatus,
    ThreadState,
    ThreadStatus,
)


class At(msgspec.Struct, frozen=True, kw_only=True):
    """The place and time of an event: what `evolve` needs of its envelope."""

    sequence: int
    occurred_at: datetime
    instance: UUID | None = None
    epoch: int = 0
    #: When the server received it, by its own clock; None in an agent.
    received_at: datetime | None = None


def evolve_task(state: TaskState, event: TaskEvent, at: At, *, late: bool = False) -> TaskState:
    """Return the task after `event`.

    `late`: the event belongs to an older run; it is counted and kept in the history, but changes no
    status.
    """
    if isinstance(event, (*FAILED, *COUNTED)):
        sums = TaskSums(state)
        if isinstance(event, FAILED):
            sums.add_event(event, at.occurred_at, at.sequence, late=late)
        else:
            sums.count(event, at.occurred_at, at.sequence)
        if not late:
            sums.set_run(at.epoch)
        return sums.to_state()
    state = replace(
        state,
        sequence=at.sequence,
        counters=_counted(state.counters, event),
        epoch=state.epoch if late else max(state.epoch, at.epoch),
    )
    if late:
        return state
    status_fields = {"since": at.occurred_at, "status_sequence": at.sequence}
    match event:
        case TaskPaused(failure=None):
            # By hand: there is no record to show, and an older one would mislead.
            status_fields |= {"failure": None, "failure_sequence": 0}
            return replace(
                state, status=TaskStatus.PAUSED, position=event.position, **status_fields
            )
        case TaskPaused():
            status_fields |= {"failure": event.failure}
            return replace(
                state, status=TaskStatus.PAUSED, position=event.position, **status_fields
            )
        case TaskDied():
            status_fields |= {"failure": event.failure, "position": event.position}
            return replace(state, status=TaskStatus.DEAD, **status_fields)
        case TaskResumed() | TaskRestarted():
            return replace(state, status=TaskStatus.RUNNING, position=None, **status_fields)
        case RecordsHeld():
            return replace(state, held=event.held, held_from=event.first_position)


def evolve_reported(state: TaskState, reported: TaskReported | None, at: At) -> TaskState:
    """Return the task as its run reported it; a task that is not in a report is RUNNING and holds
    nothing.

    It corrects a state and counts nothing; an unchanged state keeps its history.
    """
    reported_state = reported or TaskReported(task=state.id.key, status="RUNNING")
    status = TaskStatus(reported_state.status)
    state = replace(state, epoch=max(at.epoch, state.epoch), held=reported_state.held)
    if (state.status, state.position) == (status, reported_state.position):
        return replace(state, sequence=at.sequence)
    corrected = replace(
        state,
        sequence=at.sequence,
        status=status,
        position=reported_state.position,
        since=at.occurred_at,
        status_sequence=at.sequence,
    )
    if status is TaskStatus.RUNNING or reported_state.failure == state.failure:
        return corrected
    # The event that reported this failure is not known.
    return replace(corrected, failure=reported_state.failure, failure_sequence=0)


def _counted(before: Counters, event: TaskEvent) -> Counters:
    if not isinstance(event, TaskResumed):
        return before
    skipped = {ResumeHow.SKIP: 1, ResumeHow.AT: event.skipped}.get(event.how, 0)
    return replace(before, records_skipped=before.records_skipped + skipped)


def evolve_thread(state: ThreadState, event: ThreadEvent, at: At) -> ThreadState:
    """Return the pipeline's current run after `event`; an older run changes nothing."""
    if at.epoch < state.epoch:
        return state
    if isinstance(event, OutageFound):
        # Its effects are events of their own, of tasks or of the run.
        return replace(state, sequence=at.sequence)
    if at.epoch > state.epoch:
        # Each run has its own policy, and its tolerance starts at 0.
        state = replace(state, policy=None, described_at=None, spent=MostToleranceUsed())
    state = replace(state, sequence=at.sequence, epoch=at.epoch, instance=at.instance)
    if isinstance(event, PipelineDescribed):
        return replace(state, policy=event, described_at=at.occurred_at)
    if isinstance(event, PolicyChanged):
        return replace(state, policy=changed(state.policy, event, at.occurred_at))
    state = replace(state, since=at.occurred_at)
    match event:
        case ThreadStarted():
            return replace(state, status=ThreadStatus.RUNNING, reason=None, failure=None)
        case ThreadDied():
            return replace(
                state, status=ThreadStatus.DEAD, reason=event.reason, failure=event.failure
            )
        case ThreadReplaced():
            return replace(state, reason=f"{event.reason}; a new thread follows")


def evolve_instance(
    state: InstanceState,
    event: InstanceStarted | InstanceStopping | InstanceStopped | InstanceLost | InstanceFound,
    at: At,
) -> InstanceState:
    """Return the instance after `event` (KIP-671's states; LOST is an overlay)."""
    state = replace(state, sequence=at.sequence)
    match event:
        case InstanceStarted():
            status = InstanceStatus.RUNNING if not state.ended else state.status
            return replace(
                state,
                status=status,
                since=at.occurred_at,
                started_at=at.occurred_at,
                host=event.host,
                pid=event.pid,
                versions=event.versions,
                spark_ui=msgspec.UNSET if event.spark_ui is None else event.spark_ui,
            )
        case InstanceStopping() if state.ended:
            return state
        case InstanceStopping():
            pending = (
                InstanceStatus.PENDING_ERROR if event.error else InstanceStatus.PENDING_SHUTDOWN
            )
            return replace(state, status=pending, since=at.occurred_at, reason=event.reason)
        case InstanceStopped():
            return replace(
                state,
                status=InstanceStatus.ERROR if event.error else InstanceStatus.NOT_RUNNING,
                lost=False,
                since=at.occurred_at,
                reason=event.reason,
                failure=event.failure,
            )
        case InstanceLost():
            return replace(state, lost=not state.ended)
        case InstanceFound():
            return replace(state, lost=False)


def evolve_application(
    state: ApplicationState, event: ApplicationEvent, at: At
) -> ApplicationState:
    """Return the application after it was latched, opened, or requested to shut down."""
    status = (
        ApplicationStatus.LATCHED
        if isinstance(event, ApplicationLatched)
        else ApplicationStatus.OPEN
    )
    match event:
        case ApplicationShutdownRequested():
            # A request: the server's reaction follows it in the log.
            return state
        case ApplicationLatched() | ApplicationOpened():
            return replace(
                state,
                sequence=at.sequence,
                status=status,
                since=at.occurred_at,
                reason=event.reason,
                actor=event.actor,
            )


def issued(application: str, event: CommandIssued, at: At) -> CommandState:
    """Return the state that a command begins with."""
    about_task = event.pipeline is not None and event.checkpoint is not None
    return CommandState(
        sequence=at.sequence,
        id=event.command,
        application=application,
        kind=event.kind,
        actor=event.actor,
        reason=event.reason,
        task=TaskId(
            application=application,
            pipeline=event.pipeline or "",
            checkpoint=event.checkpoint or "",
            key=event.task,
        )
        if about_task
        else None,
        position=event.position,
        target=event.target,
        pipeline=None if about_task else event.pipeline,
        stage=event.stage,
        answer=event.answer,
        error=event.error,
        issued_at=at.occurred_at,
        expires_at=event.expires_at,
        deliveries=tuple(Delivery(instance=instance) for instance in event.instances),
    )


def evolve_command(state: CommandState, event: CommandEvent, at: At) -> CommandState:
    """Return the command after `event`, of an instance or (without one) of the server.

    An instance's answer is final, even after the server declared the command expired: the server's
    view may be late, the agent's cannot.
    """
    state = replace(state, sequence=at.sequence)
    match event:
        case CommandIssued():
            return state
        case CommandDelivered():
            return _at_instance(state, CommandStatus.DELIVERED, at.instance, None, at)
        case CommandApplied():
            return _at_instance(state, CommandStatus.APPLIED, at.instance, event.detail, at)
        case CommandRefused():
            return _at_instance(state, CommandStatus.REFUSED, at.instance, event.reason, at)
        case CommandExpired():
            return _at_instance(state, CommandStatus.EXPIRED, event.of_instance, event.reason, at)
        case CommandCancelled():
            return _at_instance(state, CommandStatus.CANCELLED, None, event.reason, at)


def _at_instance(
    state: CommandState, status: CommandStatus, instance: UUID | None, reason: str | None, at: At
) -> CommandState:
    """Update the command at one instance, or as a whole, and derive its status from its parts."""
    if instance is None:
        if state.status.final:
            return state
        deliveries = tuple(_delivery_after(part, status, reason, at) for part in state.deliveries)
        return _settled(replace(state, deliveries=deliveries), status, reason, at)
    parts = {part.instance: part for part in state.deliveries}
    part = parts.get(instance, Delivery(instance=instance))
    parts[instance] = _delivery_after(part, status, reason, at)
    state = replace(state, deliveries=tuple(parts.values()))
    if state.task is not None and any(map(_is_applied, state.deliveries)):
        return _applied_to_its_task(state, at)
    statuses = {part.status for part in state.deliveries}
    if all(status.final for status in statuses):
        worst = max(statuses, key=_WORST.index)
        return _settled(state, worst, parts[instance].reason, at)
    if state.status is CommandStatus.ISSUED and status is not CommandStatus.EXPIRED:
        return replace(state, status=CommandStatus.DELIVERED, delivered_at=at.occurred_at)
    return state


def _is_applied(part: Delivery) -> bool:
    return part.status is CommandStatus.APPLIED


def _applied_to_its_task(state: CommandState, at: At) -> CommandState:
    """Return APPLIED: a task is in one place, so one answer decides for all."""
    if state.status is CommandStatus.APPLIED:
        return state
    applied = next(filter(_is_applied, state.deliveries))
    return _settled(state, CommandStatus.APPLIED, applied.reason, at)


#: Any other command has the status of its worst part.
_WORST = [
    CommandStatus.APPLIED,
    CommandStatus.CANCELLED,
    CommandStatus.EXPIRED,
    CommandStatus.REFUSED,
]


def _delivery_after(part: Delivery, status: CommandStatus, reason: str | None, at: At) -> Delivery:
    if part.status in (CommandStatus.APPLIED, CommandStatus.REFUSED):
        return part
    if not status.final:
        if part.status.final:
            return part
        return replace(part, status=status, delivered_at=at.occurred_at)
    return replace(part, status=status, finished_at=at.occurred_at, reason=reason)


def _settled(
    state: CommandState, status: CommandStatus, reason: str | None, at: At
) -> CommandState:
    return replace(state, status=status, outcome=reason, finished_at=at.occurred_at)
