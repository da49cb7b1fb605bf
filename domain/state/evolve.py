"""The state of a task, run, instance or application after an event.

Each function accepts every event of its kind and never reads a body.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec.structs import replace

from arrester.domain.events import (
    FAILED,
    ApplicationEvent,
    ApplicationLatched,
    ApplicationOpened,
    ApplicationShutdownRequested,
    InstanceFound,
    InstanceLost,
    InstanceStarted,
    InstanceStopped,
    InstanceStopping,
    OutageFound,
    PipelineDescribed,
    PipelinePaused,
    PipelineResumed,
    PolicyChanged,
    RecordsHeld,
    ResumeHow,
    TaskDied,
    TaskDismissed,
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
from arrester.domain.state.counters import COUNTED, TaskSums
from arrester.domain.state.policy_overrides import changed
from arrester.domain.state.states import (
    ApplicationState,
    ApplicationStatus,
    Counters,
    FirstStop,
    InstanceState,
    InstanceStatus,
    MostToleranceUsed,
    PipelinePause,
    TaskState,
    TaskStatus,
    ThreadState,
    ThreadStatus,
    TimedPause,
)


class At(msgspec.Struct, frozen=True, kw_only=True):
    """The place and time of an event: what `evolve` needs of its envelope."""

    sequence: int
    occurred_at: datetime
    instance: UUID | None = None
    epoch: int = 0
    #: When the server received it, by its own clock; None in an agent.
    received_at: datetime | None = None


def evolve_task(
    state: TaskState,
    event: TaskEvent,
    at: At,
    *,
    late: bool = False,
    pause: TimedPause | msgspec.UnsetType = msgspec.UNSET,
) -> TaskState:
    """Return the task after `event`.

    `late`: the event belongs to an older run; it is counted and kept in the history, but changes no
    status. `pause`: set if the event is a pause of limited duration.
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
    if state.status is TaskStatus.DISMISSED:
        state = replace(state, status=TaskStatus.RUNNING)
    change = {
        "since": at.occurred_at,
        "status_sequence": at.sequence,
        "timed_pause": msgspec.UNSET,
    }
    match event:
        case TaskPaused(failure=None):
            # A person paused it: there is no record to show, and an older one would mislead.
            change |= {"failure": None, "failure_sequence": 0, "first_stop": msgspec.UNSET}
            change |= {"timed_pause": pause}
            return replace(state, status=TaskStatus.PAUSED, position=event.position, **change)
        case TaskPaused():
            change |= {"failure": event.failure, "first_stop": _stopped(state, event.position)}
            return replace(state, status=TaskStatus.PAUSED, position=event.position, **change)
        case TaskDied():
            change |= {"failure": event.failure, "position": event.position}
            change |= {"first_stop": _stopped(state, event.position)}
            return replace(state, status=TaskStatus.DEAD, **change)
        case TaskResumed() | TaskRestarted():
            change |= {"first_stop": _resumed(state, event)}
            return replace(state, status=TaskStatus.RUNNING, position=None, **change)
        case TaskDismissed():
            change |= {"held": 0, "held_from": None, "first_stop": msgspec.UNSET}
            return replace(state, status=TaskStatus.DISMISSED, **change)
        case RecordsHeld():
            done = state.status is TaskStatus.RUNNING and not event.held
            first_stop = msgspec.UNSET if done else state.first_stop
            return replace(
                state, held=event.held, held_from=event.first_position, first_stop=first_stop
            )


def _stopped(state: TaskState, position: int | None) -> FirstStop | msgspec.UnsetType:
    """Return the first stop of a task that stops at `position`; unset if this is the first."""
    first = state.first_stop
    if first is msgspec.UNSET or first.position != position:
        return msgspec.UNSET
    return replace(first, stops=first.stops + 1)


def _resumed(state: TaskState, event: TaskResumed | TaskRestarted) -> FirstStop | msgspec.UnsetType:
    """Return the first stop of a task that retries its record; unset if it does not."""
    retries = not (isinstance(event, TaskResumed) and event.how in (ResumeHow.SKIP, ResumeHow.AT))
    stopped, at = state.first_stopped, state.position
    if not retries or state.failure is None or stopped is None or at is None:
        return msgspec.UNSET
    return FirstStop(at=stopped, position=at, stops=state.stops)


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
        first_stop=_stopped(state, reported_state.position),
        timed_pause=msgspec.UNSET,
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
        # The effects of an outage are events of their own, of tasks or of the run.
        return replace(state, sequence=at.sequence)
    if at.epoch > state.epoch:
        # Each run reports its policy and its pause, and its tolerance starts at 0.
        state = replace(
            state,
            policy=None,
            described_at=None,
            spent=MostToleranceUsed(),
            pause=msgspec.UNSET,
        )
    state = replace(state, sequence=at.sequence, epoch=at.epoch, instance=at.instance)
    if isinstance(event, PipelineDescribed):
        return replace(state, policy=event, described_at=at.occurred_at)
    if isinstance(event, PolicyChanged):
        return replace(state, policy=changed(state.policy, event, at.occurred_at))
    if isinstance(event, PipelinePaused | PipelineResumed):
        return replace(state, pause=pause_after(event), since=at.occurred_at)
    state = replace(state, since=at.occurred_at)
    match event:
        case ThreadStarted():
            return replace(
                state,
                status=ThreadStatus.RUNNING,
                reason=None,
                failure=None,
                observed=event.observed or msgspec.UNSET,
            )
        case ThreadDied():
            return replace(
                state, status=ThreadStatus.DEAD, reason=event.reason, failure=event.failure
            )
        case ThreadReplaced():
            return replace(state, reason=f"{event.reason}; a new thread follows")


def pause_after(event: PipelinePaused | PipelineResumed) -> PipelinePause | msgspec.UnsetType:
    """Return the pause of a pipeline after an event; unset: it is not PAUSED."""
    if isinstance(event, PipelineResumed):
        return msgspec.UNSET
    return PipelinePause(
        since=event.since, until=event.until, actor=event.actor, reason=event.reason
    )


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
                last_heartbeat=msgspec.UNSET,
                since=at.occurred_at,
                reason=event.reason,
                failure=event.failure,
            )
        case InstanceLost():
            if state.ended:
                return replace(state, lost=False)
            return replace(state, lost=True, last_heartbeat=event.last_heard)
        case InstanceFound():
            return replace(state, lost=False, last_heartbeat=msgspec.UNSET)


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
