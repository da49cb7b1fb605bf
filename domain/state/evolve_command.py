"""The state of a command after an event, of an instance or of the server."""

from __future__ import annotations

from uuid import UUID

import msgspec
from msgspec.structs import replace

from arrester.domain.events import (
    CommandApplied,
    CommandCancelled,
    CommandDelivered,
    CommandEvent,
    CommandExpired,
    CommandIssued,
    CommandRefused,
)
from arrester.domain.identity.names import TaskId
from arrester.domain.state.evolve import At
from arrester.domain.state.states import (
    CommandState,
    CommandStatus,
    Delivery,
)


def issued(application: str, event: CommandIssued, at: At) -> CommandState:
    """Return the state that a command begins with."""
    of_redrive = event.redrive is not None or event.slice is not None
    about_task = event.pipeline is not None and event.checkpoint is not None and not of_redrive
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
        patch=msgspec.UNSET if event.patch is None else event.patch,
        pipeline=None if about_task else event.pipeline,
        stage=event.stage,
        answer=event.answer,
        until=msgspec.UNSET if event.until is None else event.until,
        error=event.error,
        force=event.force or msgspec.UNSET,
        issued_at=at.occurred_at,
        expires_at=event.expires_at,
        deliveries=tuple(Delivery(instance=instance) for instance in event.instances),
        rollout=msgspec.UNSET if event.rollout is None else event.rollout,
        part_of=msgspec.UNSET if event.part_of is None else event.part_of,
        redrive=msgspec.UNSET if event.redrive is None else event.redrive,
        slice=msgspec.UNSET if event.slice is None else event.slice,
        checkpoint=(event.checkpoint or msgspec.UNSET) if of_redrive else msgspec.UNSET,
    )


def evolve_command(state: CommandState, event: CommandEvent, at: At) -> CommandState:
    """Return the command after `event`, of an instance or (without one) of the server.

    An instance's answer is final, even after the server declared the command expired: the server's
    state may be late, the agent's cannot.
    """
    state = replace(state, sequence=at.sequence)
    match event:
        case CommandIssued():
            return state
        case CommandDelivered():
            return _at_instance(state, CommandStatus.DELIVERED, at.instance, None, at)
        case CommandApplied():
            if event.test is not None:
                state = replace(state, test=event.test)
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
    in_one_place = state.task is not None or state.slice is not msgspec.UNSET
    if in_one_place and any(map(_is_applied, state.deliveries)):
        return _applied_in_one_place(state, at)
    statuses = {part.status for part in state.deliveries}
    if all(status.final for status in statuses):
        worst = max(statuses, key=_WORST.index)
        return _settled(state, worst, parts[instance].reason, at)
    if state.status is CommandStatus.ISSUED and status is not CommandStatus.EXPIRED:
        return replace(state, status=CommandStatus.DELIVERED, delivered_at=at.occurred_at)
    return state


def _is_applied(part: Delivery) -> bool:
    return part.status is CommandStatus.APPLIED


def _applied_in_one_place(state: CommandState, at: At) -> CommandState:
    """Return APPLIED: a task, or a run, is in one place, so one answer decides for all."""
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
