"""Reactions of the server to a shutdown request of an instance (KIP-671)."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from msgspec.structs import replace

from arrester.domain.commands.reactions import (
    MAX_REQUEST_AGE,
    needing_reaction,
    reaction_to,
)
from arrester.domain.events import (
    ApplicationLatched,
    ApplicationShutdownRequested,
    CommandApplied,
    CommandCancelled,
    CommandIssued,
    CommandKind,
    Event,
    EventData,
    StoredEvent,
)
from arrester.domain.state.stream_state import StreamState, empty
from tests import histories
from tests.histories import APPLICATION, INSTANCE, OTHER_INSTANCE

REQUEST = histories.event(ApplicationShutdownRequested(reason="it broke"), minute=1)
STARTED = histories.started()[0]
OTHER = replace(STARTED, instance=OTHER_INSTANCE)


def stored_request(
    *events: Event, after: timedelta = timedelta(seconds=1)
) -> tuple[StoredEvent, StreamState]:
    """Return the request as stored after `events`, and the state then."""
    *_, last = stored = histories.stored([*events, REQUEST])
    last = replace(last, received_at=REQUEST.occurred_at + after)
    return last, empty(APPLICATION).fold([*stored[:-1], last])


def followed(*events: Event, after: timedelta = timedelta(seconds=1)) -> list[EventData]:
    request, state = stored_request(*events, after=after)
    reaction = reaction_to([request], state, now=request.received_at)
    return [] if reaction is None else [each.data for each in reaction[1]]


def test_a_shutdown_request_addresses_other_instances_and_latches() -> None:
    issued, latched = followed(STARTED, OTHER)
    assert isinstance(issued, CommandIssued)
    assert (issued.kind, issued.error) == (CommandKind.SHUT_DOWN_APPLICATION, True)
    assert issued.instances == (OTHER_INSTANCE,)
    assert issued.actor == f"instance {INSTANCE}"
    assert latched == ApplicationLatched(reason="it broke", actor=issued.actor)


def test_a_shutdown_request_of_the_only_instance_is_applied_by_latching() -> None:
    issued, latched, applied = followed(STARTED)
    assert isinstance(issued, CommandIssued)
    assert isinstance(latched, ApplicationLatched)
    assert isinstance(applied, CommandApplied)


def test_open_task_commands_are_cancelled_by_a_shutdown_request() -> None:
    resume = CommandIssued(
        command=UUID(int=1),
        kind=CommandKind.RESUME_TASK,
        actor="ana",
        pipeline="delays",
        checkpoint="cp-1",
        task="JFK",
        instances=(INSTANCE,),
        expires_at=histories.NOON,
    )
    events = followed(STARTED, OTHER, *histories.paused(), histories.event(resume, run=None))
    [cancelled] = [each for each in events if isinstance(each, CommandCancelled)]
    assert cancelled.command == resume.command


def test_the_same_request_is_always_the_same_command() -> None:
    (first, *_), (second, *_) = (followed(STARTED, OTHER) for _ in range(2))
    assert isinstance(first, CommandIssued)
    assert isinstance(second, CommandIssued)
    assert first.command == second.command


def test_a_latched_application_is_not_latched_again() -> None:
    latched = histories.event(ApplicationLatched(reason="enough", actor="ana"), run=None)
    assert followed(STARTED, OTHER, latched) == []


def test_a_late_request_has_no_effect_on_instances_started_since() -> None:
    since = replace(OTHER, occurred_at=REQUEST.occurred_at + timedelta(minutes=5))
    assert followed(STARTED, since, after=MAX_REQUEST_AGE + timedelta(hours=1)) == []
    third = replace(OTHER, instance=UUID(int=3))
    assert followed(STARTED, since, third, after=MAX_REQUEST_AGE + timedelta(hours=1)) == []
    issued, *_ = followed(STARTED, OTHER, after=MAX_REQUEST_AGE + timedelta(hours=1))
    assert isinstance(issued, CommandIssued)
    assert issued.instances == (OTHER_INSTANCE,)


def test_other_events_have_no_reaction() -> None:
    request, state = stored_request(STARTED)
    [other] = histories.stored([STARTED])
    assert needing_reaction([other, request]) == [request]
    assert reaction_to([], state, now=request.received_at) is None


def test_one_of_many_requests_has_an_effect_and_a_late_one_leaves_it_to_the_next() -> None:
    since = replace(OTHER, occurred_at=REQUEST.occurred_at + timedelta(minutes=5))
    later = replace(REQUEST, occurred_at=since.occurred_at + timedelta(minutes=1))
    *_, late, next_one, third = histories.stored([STARTED, since, REQUEST, later, later])
    state = empty(APPLICATION).fold(histories.stored([STARTED, since]))
    age = MAX_REQUEST_AGE + timedelta(seconds=1)
    requests = [
        replace(late, received_at=REQUEST.occurred_at + timedelta(hours=1)),
        replace(next_one, received_at=later.occurred_at + age),
        replace(third, received_at=later.occurred_at),
    ]
    found = reaction_to(requests, state, now=later.occurred_at)
    assert found is not None
    cause, (issued, *_) = found
    assert cause == requests[1]
    assert isinstance(issued.data, CommandIssued)
    assert issued.data.instances == (OTHER_INSTANCE,)
