"""Error groups: the effect of failures and of people's acts, and which acts the state forbids."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from msgspec.structs import replace

from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    ErrorGroupAssigned,
    ErrorGroupMuted,
    ErrorGroupReopened,
    ErrorGroupResolved,
    ErrorGroupUnmuted,
    Failure,
    FailuresCounted,
    GroupEvent,
    InstanceStopped,
    RecordFailed,
    ThreadDied,
)
from arrester.domain.python_versions import UTC, StrEnum
from arrester.domain.state.counters import GroupSums
from arrester.domain.state.evolve import At
from arrester.domain.state.states import GroupState, GroupStatus, Mute

RECURRED = "failed again after it was resolved"
#: The periods of "≥ N per period", in seconds, and their names.
PERIODS = {60: "minute", 3600: "hour", 86_400: "day"}
LONGEST_MUTE = timedelta(days=365)
MAX_MUTE_FAILURES = 10**9
OWNER_MAX = 100
#: In filters, in place of an owner: those without one.
NO_OWNER = "none"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class GroupAct(StrEnum):
    """The acts on an error group."""

    RESOLVE = "RESOLVE"
    REOPEN = "REOPEN"
    MUTE = "MUTE"
    UNMUTE = "UNMUTE"
    ASSIGN = "ASSIGN"


class GroupRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A requested act; the id makes a repetition harmless."""

    id: UUID
    act: GroupAct
    fingerprint: str
    actor: str
    reason: str | None = None
    #: For MUTE: until a time, for a duration, or until this many records fail within one period.
    until: datetime | None = None
    length: timedelta | None = None
    failures: int | None = None
    period_seconds: int | None = None
    #: For ASSIGN: the owner; None leaves it to the owner rules.
    assignee: str | None = None


def after_failure(
    state: GroupState, event: RecordFailed | FailuresCounted, at: At, *, pipeline: str | None
) -> GroupState:
    """Return the error group after one or more of its records failed.

    A failure that arrives after a resolution reopens the group, even if it happened earlier: a late
    failure costs a look, a hidden one might be missed.
    """
    sums = GroupSums(state)
    sums.add_event(event, at.occurred_at, at.sequence, pipeline=pipeline)
    state = _reopened(sums.to_state(), at)
    if state.mute is not None:
        return _count_towards_mute(state, state.mute, event.count, at)
    return state


def after_end(state: GroupState, failure: Failure, at: At, *, pipeline: str | None) -> GroupState:
    """Return the error group after a failure without a failed record ended a run or a driver."""
    sums = GroupSums(state)
    sums.add(0, at.occurred_at, at.sequence, failure.message)
    sums.set_source(pipeline, failure.exception_class, failure.condition)
    return replace(_reopened(sums.to_state(), at), ends=state.ended_runs + 1)


def recordless(data: object) -> Failure | None:
    """Return the failure that ended a run or a driver although no record failed; else None."""
    if not isinstance(data, ThreadDied | InstanceStopped):
        return None
    return data.failure if data.recordless else None


def _reopened(state: GroupState, at: At) -> GroupState:
    """Return the group after a failure: a RESOLVED one is UNRESOLVED again."""
    if state.status is not GroupStatus.RESOLVED:
        return state
    return replace(_with_status(state, GroupStatus.UNRESOLVED, at, reason=RECURRED), recurred=True)


def only_counts(state: GroupState) -> bool:
    """Return whether a failure only adds to the group."""
    return state.status is GroupStatus.UNRESOLVED and state.mute is None


def _count_towards_mute(state: GroupState, mute: Mute, count: int, at: At) -> GroupState:
    """Count failures towards the end of the mute; those of an earlier period do not count.

    Periods follow the server's clock: an agent's may be years ahead, and would end all mutes.
    """
    limit, seconds = mute.failures, mute.period_seconds
    if limit is None or seconds is None:
        return state
    period = timedelta(seconds=seconds)
    window = _EPOCH + ((at.received_at or at.occurred_at) - _EPOCH) // period * period
    if mute.window_start is None or window > mute.window_start:
        mute = replace(mute, window_start=window, window_count=0)
    mute = replace(mute, window_count=mute.window_count + count)
    if mute.window_count < limit:
        return replace(state, mute=mute)
    period_name = PERIODS.get(seconds) or f"{seconds} s"
    reason = f"{mute.window_count:,} failed records within one {period_name}"
    return _with_status(state, GroupStatus.UNRESOLVED, at, reason=reason)


def after_action(state: GroupState, event: GroupEvent, at: At) -> GroupState:
    """Return the error group after an act."""
    if isinstance(event, ErrorGroupAssigned):
        return replace(state, sequence=at.sequence, assignee=event.assignee or msgspec.UNSET)
    match event:
        case ErrorGroupResolved():
            status, mute = GroupStatus.RESOLVED, None
        case ErrorGroupMuted():
            status = GroupStatus.MUTED
            mute = Mute(
                until=event.until, failures=event.failures, period_seconds=event.period_seconds
            )
        case ErrorGroupReopened() | ErrorGroupUnmuted():
            status, mute = GroupStatus.UNRESOLVED, None
    state = _with_status(state, status, at, reason=event.reason, actor=event.actor)
    return replace(state, sequence=at.sequence, mute=mute)


def after_note(state: GroupState, at: At) -> GroupState:
    """Return the error group after a note was added."""
    return replace(state, sequence=at.sequence, notes=state.notes + 1)


def _with_status(
    state: GroupState, status: GroupStatus, at: At, *, reason: str | None, actor: str | None = None
) -> GroupState:
    return replace(
        state,
        status=status,
        since=at.occurred_at,
        status_sequence=at.sequence,
        actor=actor,
        reason=reason,
        mute=None,
        recurred=False,
    )


_EVENTS: dict[GroupAct, type[ErrorGroupResolved | ErrorGroupReopened | ErrorGroupUnmuted]] = {
    GroupAct.RESOLVE: ErrorGroupResolved,
    GroupAct.REOPEN: ErrorGroupReopened,
    GroupAct.UNMUTE: ErrorGroupUnmuted,
}


def decide(requested: GroupRequest, *, now: datetime) -> GroupEvent:
    """Return the event of a requested act; raises InvalidValue for an invalid request."""
    if requested.act is GroupAct.ASSIGN:
        return ErrorGroupAssigned(
            fingerprint=requested.fingerprint,
            actor=requested.actor,
            assignee=None
            if requested.assignee is None
            else check_owner(requested.assignee, "assignee"),
            reason=requested.reason,
        )
    if requested.act is not GroupAct.MUTE:
        return _EVENTS[requested.act](
            fingerprint=requested.fingerprint, actor=requested.actor, reason=requested.reason
        )
    if requested.length is not None:
        requested = replace(requested, until=now + requested.length, length=None)
    _check_mute(requested, now=now)
    return ErrorGroupMuted(
        fingerprint=requested.fingerprint,
        actor=requested.actor,
        reason=requested.reason,
        until=requested.until,
        failures=requested.failures,
        period_seconds=requested.period_seconds,
    )


def _check_mute(requested: GroupRequest, *, now: datetime) -> None:
    if requested.until is None and requested.failures is None:
        raise InvalidValue("until", None, "a time, or a number of failures per period")
    if requested.until is not None and not now < requested.until <= now + LONGEST_MUTE:
        raise InvalidValue(
            "until", requested.until.isoformat(), f"a time within {LONGEST_MUTE.days} days"
        )
    if requested.failures is None:
        if requested.period_seconds is not None:
            raise InvalidValue("failures", None, "a number of failures for the period")
        return
    if not 1 <= requested.failures <= MAX_MUTE_FAILURES:
        raise InvalidValue("failures", requested.failures, f"1 to {MAX_MUTE_FAILURES:,}")
    if requested.period_seconds not in PERIODS:
        allowed = ", ".join(f"{seconds} (a {name})" for seconds, name in PERIODS.items())
        raise InvalidValue("period_seconds", requested.period_seconds, allowed)


def check_owner(name: str, field: str) -> str:
    """Return the name of an owner, a person or a team; raises InvalidValue for the field."""
    if not 1 <= len(name) <= OWNER_MAX or not name.isprintable() or name != name.strip():
        raise InvalidValue(field, name[:50], f"1 to {OWNER_MAX} printable characters")
    if name == NO_OWNER:
        raise InvalidValue(field, name, f"a name other than {NO_OWNER}")
    return name


def refusal(act: GroupAct, status: GroupStatus) -> str | None:
    """Return why the state forbids the act, or None; pages call it before they offer the button."""
    match act, status:
        case [GroupAct.RESOLVE, GroupStatus.RESOLVED]:
            return "this group is RESOLVED already"
        case [GroupAct.REOPEN, GroupStatus.UNRESOLVED | GroupStatus.MUTED]:
            return f"only a RESOLVED group can be reopened; this one is {status}"
        case [GroupAct.MUTE, GroupStatus.RESOLVED]:
            return "a RESOLVED group is hidden already; it is reopened when it fails again"
        case [GroupAct.UNMUTE, GroupStatus.UNRESOLVED | GroupStatus.RESOLVED]:
            return f"only a MUTED group can be unmuted; this one is {status}"
    return None


def expired_mutes(groups: Iterable[GroupState], *, now: datetime) -> list[ErrorGroupUnmuted]:
    """Return the ends of the expired mutes."""
    return [
        ErrorGroupUnmuted(fingerprint=each.fingerprint, reason="its time is over")
        for each in groups
        if each.mute is not None and each.mute.until is not None and now >= each.mute.until
    ]
