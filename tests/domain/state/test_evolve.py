"""`evolve` and the fold: their properties hold for any history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.domain.events import (
    ApplicationLatched,
    ApplicationOpened,
    CommandApplied,
    CommandCancelled,
    CommandDelivered,
    CommandExpired,
    CommandIssued,
    CommandKind,
    CommandRefused,
    DeadLettersFailed,
    Event,
    EventData,
    FailuresCounted,
    FinalResponse,
    InstanceFound,
    InstanceLost,
    InstanceStopped,
    InstanceStopping,
    RecordFailed,
    RecordsDeadLettered,
    RecordsHeld,
    ResumeHow,
    RetriesCounted,
    Run,
    StateReported,
    TaskDied,
    TaskDismissed,
    TaskEvent,
    TaskPaused,
    TaskReported,
    TaskRestarted,
    TaskResumed,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.state.states import (
    AnyState,
    ApplicationStatus,
    CommandState,
    CommandStatus,
    InstanceState,
    InstanceStatus,
    TaskState,
    TaskStatus,
    ThreadStatus,
)
from arrester.domain.state.stream_state import StreamState, empty, state_keys
from tests import histories
from tests.histories import APPLICATION, FAILURE, INSTANCE, JFK, NOON, OTHER_INSTANCE

COMMAND = UUID(int=1)


def fold(*events: Event) -> StreamState:
    return empty(APPLICATION).fold(histories.stored(list(events)))


def task(*data: EventData) -> TaskState:
    """Return the task JFK after events with `data`."""
    return fold(*histories.started(), *(histories.event(each) for each in data)).tasks[JFK.digest]


def instance(*data: EventData) -> InstanceState:
    events = [histories.event(each, run=None) for each in data]
    return fold(histories.started()[0], *events).instances[INSTANCE]


def command(
    *answers: tuple[UUID | None, EventData],
    instances: tuple[UUID, ...] = (),
    kind: CommandKind = CommandKind.RESUME_TASK,
) -> CommandState:
    """Return a command after answers of instances, or (None) of the server."""
    about_task = kind is CommandKind.RESUME_TASK
    issued = CommandIssued(
        command=COMMAND,
        kind=kind,
        actor="ana",
        pipeline=JFK.pipeline if about_task else None,
        checkpoint=JFK.checkpoint if about_task else None,
        task=JFK.key if about_task else None,
        instances=instances,
        expires_at=NOON,
    )
    reported = [histories.event(data, instance=by, run=None) for by, data in answers]
    return fold(histories.event(issued, instance=None, run=None), *reported).commands[COMMAND]


# ── what holds for any history ───────────────────────────────────────────────────────────────


@given(histories.histories)
def test_the_fold_accepts_any_history(events: list[Event]) -> None:
    state = fold(*events)
    assert state.application.sequence == len(events)
    touched = [*state.tasks.values(), *state.threads.values(), *state.instances.values()]
    assert all(1 <= each.sequence <= len(events) for each in touched)


@given(histories.histories, st.integers(0, 30))
def test_an_interrupted_fold_gives_the_same_states(events: list[Event], cut: int) -> None:
    whole = fold(*events)
    first = fold(*events[:cut])
    both = first.fold(histories.stored(events[cut:], after=len(events[:cut])))
    assert states_of(both) == states_of(whole)


@given(histories.storms)
def test_the_bulk_fold_equals_the_fold_of_each_event(events: list[Event]) -> None:
    whole, run_step_by_step = fold(*events), fold()
    for each in histories.stored(events):
        run_step_by_step.fold([each])
    assert states_of(run_step_by_step) == states_of(whole)
    assert run_step_by_step.changed_keys == whole.changed_keys


@given(histories.histories, st.integers(0, 30))
def test_the_state_keys_are_all_that_the_fold_uses(events: list[Event], cut: int) -> None:
    before, rest = fold(*events[:cut]), events[cut:]
    needed = state_keys(APPLICATION, rest)
    few = StreamState(
        application=before.application,
        tasks={key: each for key, each in before.tasks.items() if key in needed.tasks},
        threads={key: each for key, each in before.threads.items() if key in needed.threads},
        instances={key: each for key, each in before.instances.items() if key in needed.instances},
        commands={key: each for key, each in before.commands.items() if key in needed.commands},
        groups={key: each for key, each in before.groups.items() if key in needed.groups},
    )
    stored = histories.stored(rest, after=len(events[:cut]))
    few.fold(stored)
    whole = before.fold(stored)
    for few_states, all_states in zip(states_of(few)[1:], states_of(whole)[1:], strict=True):
        assert few_states.items() <= all_states.items()
    assert few.application == whole.application


def states_of(state: StreamState) -> list[Mapping[Any, AnyState]]:
    return [
        {None: state.application},
        state.tasks,
        state.threads,
        state.instances,
        state.commands,
        state.groups,
    ]


@given(histories.histories)
def test_states_are_equal_after_reading_their_rows(events: list[Event]) -> None:
    for states in states_of(fold(*events)):
        for state in states.values():
            text = msgspec.json.encode(state)
            assert msgspec.json.decode(text, type=type(state)) == state
            assert b"\0" not in text


@given(histories.histories, histories.task_events)
def test_a_late_run_changes_no_status(events: list[Event], data: TaskEvent) -> None:
    newest = Run(pipeline="delays", checkpoint="cp-1", epoch=9)
    late = replace(newest, epoch=8)
    before = fold(*events, histories.event(ThreadStarted(), run=newest))
    after = fold(
        *events,
        histories.event(ThreadStarted(), run=newest),
        histories.event(data, run=late),
    )
    assert after.threads == before.threads
    for digest, state in after.tasks.items():
        known = before.tasks.get(digest, TaskState(id=state.id))
        assert (state.status, state.position, state.failure, state.held, state.since) == (
            known.status, known.position, known.failure, known.held, known.since,
        )  # fmt: skip


@given(histories.histories)
def test_every_view_counts_the_same_failed_records(events: list[Event]) -> None:
    state = fold(*events)
    reported = sum(
        event.data.count
        for event in events
        if isinstance(event.data, RecordFailed | FailuresCounted)
    )
    assert state.application.failed == reported
    assert sum(each.failed for each in state.tasks.values()) == reported
    assert sum(each.count for each in state.groups.values()) == reported


ANSWERS: list[EventData] = [
    CommandApplied(command=COMMAND),
    CommandRefused(command=COMMAND, reason="no"),
]


@given(histories.histories, st.sampled_from(ANSWERS))
def test_the_answer_of_an_instance_is_final(events: list[Event], answer: EventData) -> None:
    spoken = histories.event(answer, run=None, instance=INSTANCE)
    gave_up = CommandExpired(command=COMMAND, reason="late")
    state = fold(*events, spoken, histories.event(gave_up, run=None, instance=None))
    known = state.commands.get(COMMAND)
    if known is None:
        return  # It was never issued.
    (part,) = [part for part in known.deliveries if part.instance == INSTANCE]
    assert part.status in (CommandStatus.APPLIED, CommandStatus.REFUSED)


@given(histories.histories)
@example(histories.started())
def test_an_instance_that_ended_never_runs_again(events: list[Event]) -> None:
    ended = histories.event(InstanceStopped(reason="done"), run=None)
    assert fold(ended, *events).instances[INSTANCE].ended


# ── tasks ────────────────────────────────────────────────────────────────────────────────────

PAUSED: list[EventData] = [
    RecordFailed(task="JFK", position=7, failure=FAILURE, response=FinalResponse.PAUSE),
    TaskPaused(task="JFK", position=7, failure=FAILURE),
]


def test_a_paused_task_shows_where_and_why() -> None:
    state = task(*PAUSED)
    assert (state.status, state.position, state.failure) == (TaskStatus.PAUSED, 7, FAILURE)
    assert (state.failure_sequence, state.status_sequence) == (3, 4)


def test_a_task_paused_by_hand_has_no_failure() -> None:
    state = task(
        *PAUSED, TaskResumed(task="JFK", how=ResumeHow.RETRY), TaskPaused(task="JFK", position=9)
    )
    assert (state.status, state.failure, state.failure_sequence) == (TaskStatus.PAUSED, None, 0)


@pytest.mark.parametrize(
    "again",
    [TaskResumed(task="JFK", how=how) for how in ResumeHow] + [TaskRestarted(task="JFK")],
    ids=[*ResumeHow, "restarted"],
)
def test_a_resumed_task_is_running(again: TaskResumed | TaskRestarted) -> None:
    state = task(*PAUSED, again)
    assert (state.status, state.position) == (TaskStatus.RUNNING, None)
    assert state.counters.records_skipped == (getattr(again, "how", None) is ResumeHow.SKIP)


@pytest.mark.parametrize(
    ("reported", "status"),
    [
        (TaskPaused(task="JFK", position=9, failure=FAILURE), TaskStatus.PAUSED),
        (TaskResumed(task="JFK", how=ResumeHow.RESTART), TaskStatus.RUNNING),
        (RecordsHeld(task="JFK", held=5, first_position=7), TaskStatus.RUNNING),
        (RetriesCounted(task="JFK", retries=1), TaskStatus.RUNNING),
        (StateReported(tasks=(TaskReported(task="JFK", status="DEAD"),)), TaskStatus.DEAD),
    ],
)
def test_a_dismissed_task_is_not_stopped_until_an_agent_reports_it(
    reported: EventData, status: TaskStatus
) -> None:
    stopped = [each.data for each in histories.paused()]
    dismissed = TaskDismissed(task="JFK", actor="ana", reason="renamed")
    state = task(*stopped, dismissed)
    assert (state.status, state.held, state.first_stopped) == (TaskStatus.DISMISSED, 0, None)
    assert task(*stopped, dismissed, reported).status is status


def test_a_task_dies_of_its_failure() -> None:
    state = task(TaskDied(task="JFK", position=7, failure=FAILURE))
    assert (state.status, state.position, state.failure) == (TaskStatus.DEAD, 7, FAILURE)


def test_counters_are_those_of_the_connect_framework() -> None:
    thrice = replace(FAILURE, attempts=3)
    state = task(
        RecordFailed(task="JFK", position=1, failure=thrice, response=FinalResponse.CONTINUE),
        FailuresCounted(
            task="JFK", failure=FAILURE, response=FinalResponse.CONTINUE, count=5,
            first_position=2, last_position=6,
        ),
        RecordsDeadLettered(
            task="JFK", count=6, place="/dlq", format="parquet", first_position=1, last_position=6,
        ),
        DeadLettersFailed(
            task="JFK", failures=8, waiting=2, place="/dlq", format="parquet", failure=FAILURE,
        ),
        RecordsHeld(task="JFK", held=4),
    )  # fmt: skip
    counters = state.counters
    assert (state.failed, state.held) == (6, 4)
    assert (counters.record_failures, counters.records_skipped) == (8, 6)
    assert (counters.total_retries, counters.dlq_records_produced) == (2, 6)
    assert counters.dlq_produce_failures == 8


def test_a_recurrence_is_no_further_failed_record() -> None:
    again = RecordFailed(
        task="JFK", position=7, failure=FAILURE, response=FinalResponse.PAUSE, recurrence=True
    )
    state = task(*PAUSED, TaskResumed(task="JFK", how=ResumeHow.RETRY), again)
    assert (state.failed, state.counters.record_failures) == (1, 2)


def test_a_skipped_recurrence_is_one_failed_and_one_skipped_record() -> None:
    again = RecordFailed(
        task="JFK", position=7, failure=FAILURE, response=FinalResponse.CONTINUE, recurrence=True
    )
    state = task(*PAUSED, TaskResumed(task="JFK", how=ResumeHow.RETRY), again)
    assert (state.failed, state.counters.records_skipped) == (1, 1)


# ── threads, instances, applications ─────────────────────────────────────────────────────────


def test_events_of_an_older_run_change_no_state() -> None:
    second = replace(histories.RUN, epoch=2)
    state = fold(
        *histories.started(),
        histories.event(ThreadStarted(), run=second, instance=OTHER_INSTANCE),
        histories.event(ThreadDied(reason="superseded", superseded=True)),
    )
    (thread,) = state.threads.values()
    assert (thread.epoch, thread.instance) == (2, OTHER_INSTANCE)
    assert thread.status is ThreadStatus.RUNNING


@pytest.mark.parametrize(
    ("reported", "status"),
    [
        ([], InstanceStatus.RUNNING),
        ([InstanceStopping(reason="night")], InstanceStatus.PENDING_SHUTDOWN),
        ([InstanceStopping(reason="broken", error=True)], InstanceStatus.PENDING_ERROR),
        ([InstanceStopped(reason="night")], InstanceStatus.NOT_RUNNING),
        ([InstanceStopped(reason="broken", error=True)], InstanceStatus.ERROR),
        ([InstanceStopped(reason="x"), InstanceStopping(reason="x")], InstanceStatus.NOT_RUNNING),
    ],
)
def test_the_states_of_an_instance(reported: list[EventData], status: InstanceStatus) -> None:
    assert instance(*reported).status is status


def test_lost_is_an_overlay_that_ends() -> None:
    lost = InstanceLost(last_heard=NOON)
    assert instance(lost).lost and instance(lost).last_heartbeat == NOON
    assert instance(lost).status is InstanceStatus.RUNNING
    assert instance(lost, InstanceFound()) == replace(instance(), sequence=3)
    assert not instance(lost, InstanceStopped(reason="done")).lost
    assert not instance(InstanceStopped(reason="done"), lost).lost


def test_an_application_is_latched_and_opened() -> None:
    latched = histories.event(ApplicationLatched(reason="night", actor="ben"), run=None)
    opened = histories.event(ApplicationOpened(), run=None)
    assert fold(latched).application.status is ApplicationStatus.LATCHED
    assert fold(latched).application.actor == "ben"
    assert fold(latched, opened).application.status is ApplicationStatus.OPEN


# ── commands ─────────────────────────────────────────────────────────────────────────────────

DELIVERED = CommandDelivered(command=COMMAND)
APPLIED = CommandApplied(command=COMMAND)
REFUSED = CommandRefused(command=COMMAND, reason="not paused")
EXPIRED = CommandExpired(command=COMMAND, reason="late")
CANCELLED = CommandCancelled(command=COMMAND, reason="shut down")


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ([], CommandStatus.ISSUED),
        ([(INSTANCE, DELIVERED)], CommandStatus.DELIVERED),
        ([(INSTANCE, DELIVERED), (INSTANCE, APPLIED)], CommandStatus.APPLIED),
        ([(INSTANCE, REFUSED)], CommandStatus.REFUSED),
        ([(None, EXPIRED)], CommandStatus.EXPIRED),
        ([(None, CANCELLED)], CommandStatus.CANCELLED),
        ([(None, EXPIRED), (INSTANCE, APPLIED)], CommandStatus.APPLIED),
        ([(None, CANCELLED), (INSTANCE, APPLIED)], CommandStatus.APPLIED),
        ([(INSTANCE, APPLIED), (None, EXPIRED)], CommandStatus.APPLIED),
        ([(INSTANCE, APPLIED), (INSTANCE, DELIVERED)], CommandStatus.APPLIED),
    ],
)
def test_a_command_goes_through_its_states(
    answers: list[tuple[UUID | None, EventData]], status: CommandStatus
) -> None:
    assert command(*answers, instances=(INSTANCE,)).status is status
    if answers:
        assert command(*answers).status is status


def test_a_shutdown_of_two_instances_has_the_worst_status() -> None:
    def shutdown(*answers: tuple[UUID | None, EventData]) -> CommandStatus:
        both = (INSTANCE, OTHER_INSTANCE)
        return command(*answers, instances=both, kind=CommandKind.SHUT_DOWN_APPLICATION).status

    half = (INSTANCE, APPLIED)
    assert shutdown(half) is CommandStatus.DELIVERED
    gone = replace(EXPIRED, of_instance=OTHER_INSTANCE)
    assert shutdown(half, (None, gone)) is CommandStatus.EXPIRED
    assert shutdown(half, (OTHER_INSTANCE, APPLIED)) is CommandStatus.APPLIED


@pytest.mark.parametrize("first_is", [EXPIRED, REFUSED, CANCELLED, DELIVERED])
def test_the_instance_that_applies_a_task_command_decides(first_is: EventData) -> None:
    """Another instance took over the checkpoint and applied the command."""
    taken_over = (OTHER_INSTANCE, replace(APPLIED, detail="goes on"))
    by = None if first_is in (EXPIRED, CANCELLED) else INSTANCE
    late = command((by, first_is), taken_over, instances=(INSTANCE,))
    assert (late.status, late.outcome) == (CommandStatus.APPLIED, "goes on")


def test_an_applied_task_command_stays_applied_if_another_instance_is_lost() -> None:
    taken_over = (OTHER_INSTANCE, replace(APPLIED, detail="goes on"))
    lost = replace(EXPIRED, of_instance=INSTANCE)
    for state in (
        command(taken_over, (None, lost), instances=(INSTANCE,)),
        command((None, lost), taken_over, instances=(INSTANCE,)),
    ):
        assert (state.status, state.outcome) == (CommandStatus.APPLIED, "goes on")
    applied = command(taken_over, instances=(INSTANCE,))
    assert applied.status is CommandStatus.APPLIED
