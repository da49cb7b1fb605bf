"""Error groups: resolved until they fail again, muted until a time or a number, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from msgspec import UNSET
from msgspec.structs import replace

from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    ErrorGroupAssigned,
    ErrorGroupMuted,
    ErrorGroupReopened,
    ErrorGroupResolved,
    ErrorGroupUnmuted,
    Event,
    EventData,
    FailuresCounted,
    FinalResponse,
    InstanceStopped,
    NoteAdded,
    RecordFailed,
    ThreadDied,
)
from arrester.domain.state import error_groups
from arrester.domain.state.counters import MAX_CLASSES
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from arrester.domain.state.states import GroupState, GroupStatus
from arrester.domain.state.stream_state import empty
from tests import histories
from tests.histories import APPLICATION, FAILURE, NOON

MARK = FAILURE.fingerprint


def group(*events: Event, minutes: Sequence[int] = ()) -> GroupState:
    """Return the group of the failure after `events`, received at `minutes`."""
    stored = histories.stored(list(events))
    for place, minute in enumerate(minutes):
        stored[place] = replace(stored[place], received_at=NOON + timedelta(minutes=minute))
    return empty(APPLICATION).fold(stored).groups[MARK]


def by(data: EventData, *, minute: int = 0) -> Event:
    """Return an action of a person as the server's event."""
    return histories.event(data, minute=minute, run=None, instance=None)


def more(count: int, *, minute: int = 0) -> Event:
    data = FailuresCounted(
        task="JFK",
        failure=FAILURE,
        response=FinalResponse.CONTINUE,
        count=count,
        first_position=1,
        last_position=count,
    )
    return histories.event(data, minute=minute)


def test_a_record_without_a_message_of_its_own_keeps_that_of_the_group() -> None:
    silent = histories.failed(2)
    assert isinstance(silent.data, RecordFailed)
    without = replace(silent.data, failure=replace(FAILURE, message=""))
    found = group(histories.failed(1), replace(silent, data=without))
    assert (found.message, found.example_sequence) == (FAILURE.message, 2)


def came_in(*classes: str, condition: str | None = "CAST_INVALID_INPUT") -> list[Event]:
    """Return a failure of each class, with one fingerprint."""
    failures = [replace(FAILURE, condition=condition, exception_class=each) for each in classes]
    payloads = (
        RecordFailed(task="JFK", position=number, failure=each, response=FinalResponse.CONTINUE)
        for number, each in enumerate(failures)
    )
    return [histories.event(data) for data in payloads]


RESOLVED = by(ErrorGroupResolved(fingerprint=MARK, actor="ana", reason="fixed"))


def test_a_resolved_group_has_its_actor_and_reason() -> None:
    state = group(histories.failed(1), RESOLVED)
    assert (state.status, state.actor, state.reason) == (GroupStatus.RESOLVED, "ana", "fixed")
    assert state.status_sequence == 2


def test_a_condition_collects_its_classes_in_any_fold() -> None:
    many = [f"C{number:02}" for number in range(MAX_CLASSES + 2)]
    for classes, expected in (
        (["B"] * 9, ()),
        (["B", "D", "A", "D", "B", "C"], ("A", "C", "D")),
        # As many as are kept, and one more.
        (many[:-1], tuple(many[1:-1])),
        (many, None),
        ([*many, "B"], None),
    ):
        events = came_in(*classes)
        state = group(*events)
        assert (state.exception_class, state.other_classes) == (classes[0], expected)
        for begin in (0, len(events) // 2):
            whole = empty(APPLICATION).fold(histories.stored(events[:begin]))
            assert (
                whole.fold(histories.stored_elements(events[begin:], after=begin)).groups[MARK]
                == state
            )
        for at in range(len(events)):
            resolved = group(*events[:at], RESOLVED, *events[at:])
            assert resolved.other_classes == expected


def test_a_group_without_a_condition_has_no_other_classes() -> None:
    assert group(*came_in("A", "B", condition=None)).other_classes == ()


def test_a_failure_reopens_a_resolved_group() -> None:
    state = group(histories.failed(1), RESOLVED, histories.failed(2))
    assert (state.status, state.recurred) == (GroupStatus.UNRESOLVED, True)
    assert (state.actor, state.reason, state.status_sequence) == (None, error_groups.RECURRED, 3)


def test_a_recurrence_reopens_a_resolved_group() -> None:
    again = RecordFailed(
        task="JFK", position=1, failure=FAILURE, response=FinalResponse.PAUSE, recurrence=True
    )
    state = group(histories.failed(1), RESOLVED, histories.event(again))
    assert (state.status, state.count) == (GroupStatus.UNRESOLVED, 1)


def test_an_end_without_a_failed_record_is_counted_and_reopens_its_group() -> None:
    ended = histories.event(ThreadDied(reason="no disk", failure=FAILURE, recordless=True))
    driver = InstanceStopped(reason="no disk", failure=FAILURE, recordless=True)
    state = group(ended, RESOLVED, histories.event(driver, run=None))
    assert (state.count, state.ended_runs, state.status) == (0, 2, GroupStatus.UNRESOLVED)
    assert (state.example_sequence, state.message) == (3, FAILURE.message)
    assert state.first_seen is not None and state.recurred


def test_an_end_that_a_record_has_reported_changes_no_group() -> None:
    ended = ThreadDied(reason="a record failed", failure=FAILURE)
    assert group(histories.failed(1), histories.event(ended)) == group(histories.failed(1))


def test_a_group_is_reopened_by_hand() -> None:
    state = group(
        histories.failed(1), RESOLVED, by(ErrorGroupReopened(fingerprint=MARK, actor="ben"))
    )
    assert (state.status, state.recurred, state.actor) == (GroupStatus.UNRESOLVED, False, "ben")


def test_a_mute_ends_after_its_failures_within_one_period() -> None:
    mute = by(ErrorGroupMuted(fingerprint=MARK, actor="ana", failures=10, period_seconds=3600))
    quiet = [histories.failed(1), mute, more(9), more(9)]
    state = group(*quiet, minutes=[0, 0, 1, 61])
    assert state.status is GroupStatus.MUTED
    assert state.mute is not None and state.mute.window_count == 9
    state = group(*quiet, more(1), minutes=[0, 0, 1, 61, 119])
    assert state.status is GroupStatus.UNRESOLVED
    assert (state.mute, state.reason) == (None, "10 failed records within one hour")


def test_periods_of_a_mute_follow_the_servers_clock() -> None:
    mute = by(ErrorGroupMuted(fingerprint=MARK, actor="ana", failures=10, period_seconds=3600))
    # One agent's clock is years ahead: the others' events count in the same hour nevertheless.
    ahead = [histories.failed(1), mute, more(5, minute=10**6), more(5, minute=1)]
    assert group(*ahead, minutes=[0, 0, 1, 2]).status is GroupStatus.UNRESOLVED
    state = group(*ahead, minutes=[0, 0, 1, 61])
    assert state.status is GroupStatus.MUTED
    assert state.count == 11


def test_a_mute_until_a_time_ends_then() -> None:
    until = NOON + timedelta(hours=1)
    mute = by(ErrorGroupMuted(fingerprint=MARK, actor="ana", until=until))
    state = group(histories.failed(1), mute, more(10**6))
    assert state.status is GroupStatus.MUTED
    assert error_groups.expired_mutes([state], now=until - timedelta(seconds=1)) == []
    [unmuted] = error_groups.expired_mutes([state], now=until)
    assert unmuted == ErrorGroupUnmuted(fingerprint=MARK, reason="its time is over")
    assert group(histories.failed(1), mute, by(unmuted)).status is GroupStatus.UNRESOLVED


def test_notes_are_counted_and_change_nothing_else() -> None:
    note = by(NoteAdded(actor="ana", text="the vendor sends NA", fingerprint=MARK))
    state = group(histories.failed(1), RESOLVED, note)
    assert (state.status, state.notes) == (GroupStatus.RESOLVED, 1)


def test_actions_on_an_unknown_group_change_no_state() -> None:
    assert empty(APPLICATION).fold(histories.stored([RESOLVED])).groups == {}


@given(histories.histories)
def test_a_group_is_muted_exactly_while_it_has_an_end(events: list[Event]) -> None:
    for state in empty(APPLICATION).fold(histories.stored(events)).groups.values():
        assert (state.mute is not None) == (state.status is GroupStatus.MUTED)
        assert not (state.recurred and state.status is not GroupStatus.UNRESOLVED)


def test_an_assignment_stays_until_another_one() -> None:
    assigned = by(ErrorGroupAssigned(fingerprint=MARK, actor="ana", assignee="ben"))
    state = group(histories.failed(1), RESOLVED, assigned, histories.failed(2))
    assert (state.assignee, state.status, state.recurred) == ("ben", GroupStatus.UNRESOLVED, True)
    unassigned = by(ErrorGroupAssigned(fingerprint=MARK, actor="ana"))
    assert group(histories.failed(1), assigned, unassigned).assignee is UNSET


@pytest.mark.parametrize("name", ["", " ben", "x" * 101, "a\nb", "none"])
def test_an_owner_has_a_name_to_read(name: str) -> None:
    requested = GroupRequest(
        id=UUID(int=1), act=GroupAct.ASSIGN, fingerprint=MARK, actor="ana", assignee=name
    )
    with pytest.raises(InvalidValue):
        error_groups.decide(requested, now=NOON)


def test_each_action_in_each_status_is_allowed_or_refused_with_a_reason() -> None:
    failed = group(histories.failed(1))
    states = {
        "UNRESOLVED": failed,
        "RESOLVED": group(histories.failed(1), RESOLVED),
        "MUTED": group(
            histories.failed(1),
            by(ErrorGroupMuted(fingerprint=MARK, actor="ana", until=NOON)),
        ),
    }
    allowed = {
        name: [act.value for act in GroupAct if error_groups.refusal(act, state.status) is None]
        for name, state in states.items()
    }
    assert allowed == {
        "UNRESOLVED": ["RESOLVE", "MUTE", "ASSIGN"],
        "RESOLVED": ["REOPEN", "ASSIGN"],
        "MUTED": ["RESOLVE", "MUTE", "UNMUTE", "ASSIGN"],
    }


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("until", {}),
        ("until", {"until": NOON}),
        ("until", {"until": NOON + timedelta(days=366)}),
        ("failures", {"failures": 0, "period_seconds": 60}),
        ("failures", {"until": NOON + timedelta(hours=1), "period_seconds": 60}),
        ("period_seconds", {"failures": 5}),
        ("period_seconds", {"failures": 5, "period_seconds": 61}),
    ],
)
def test_a_mute_needs_a_possible_end(name: str, end: dict[str, object]) -> None:
    requested = GroupRequest(
        id=UUID(int=1), act=GroupAct.MUTE, fingerprint=MARK, actor="ana", **end  # type: ignore[arg-type]  # by name
    )  # fmt: skip
    with pytest.raises(InvalidValue) as wrong:
        error_groups.decide(requested, now=NOON)
    assert wrong.value.name == name
