"""Drift: different task states of agent and server are corrected by one report."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.domain.events import (
    Event,
    Run,
    StateReported,
    TaskDied,
    TaskDismissed,
    TaskPaused,
)
from arrester.domain.identity.names import TaskId
from arrester.domain.state import drift
from arrester.domain.state.drift import Difference, compare_hashes
from arrester.domain.state.states import TaskState, TaskStatus
from arrester.domain.state.stream_state import StreamState, empty
from tests import histories
from tests.histories import APPLICATION, FAILURE, JFK, NOON, RUN

LATER = Run(pipeline=RUN.pipeline, checkpoint=RUN.checkpoint, epoch=99)


def folded(*events: Event, after: StreamState | None = None) -> StreamState:
    begin = after or empty(APPLICATION)
    return begin.fold(histories.stored([*events], after=begin.application.sequence))


def of_run(state: StreamState) -> list[TaskState]:
    line = (RUN.pipeline, RUN.checkpoint)
    return [each for each in state.tasks.values() if (each.id.pipeline, each.id.checkpoint) == line]


def seen(tasks: list[TaskState]) -> set[tuple[TaskId, TaskStatus, int | None, int]]:
    return {
        (each.id, each.status, each.position, each.held)
        for each in tasks
        if each.status is not TaskStatus.RUNNING or each.held
    }


@given(histories.histories, histories.histories)
def test_one_report_corrects_any_drift(agent_hash: list[Event], server_hash: list[Event]) -> None:
    # No agent dismisses a task.
    reported = [each for each in agent_hash if not isinstance(each.data, TaskDismissed)]
    truth = of_run(folded(*reported))
    view = folded(*server_hash)
    others = {id: each for id, each in view.tasks.items() if each not in of_run(view)}
    reports = [histories.event(each, run=LATER) for each in drift.report(truth)]
    folded(*reports, after=view)
    assert drift.weight(of_run(view)) == drift.weight(truth)
    assert seen(of_run(view)) == seen(truth)
    assert {id: view.tasks[id] for id in others} == others


@given(st.permutations(range(450)))
def test_a_long_report_is_split_into_parts_that_cover_all_tasks(order: list[int]) -> None:
    ids = [replace(JFK, key=f"k{number}") for number in order]
    truth = [TaskState(id=id, status=TaskStatus.PAUSED, position=1) for id in ids[:400]]
    parts = drift.report(truth)
    assert [len(part.tasks) for part in parts] == [200, 200]
    paused = [histories.event(TaskPaused(task=id.key, position=2)) for id in ids[200:]]
    view = folded(*paused)
    folded(*(histories.event(part, run=LATER) for part in parts), after=view)
    assert seen(of_run(view)) == seen(truth)


def test_a_report_of_an_older_run_changes_nothing() -> None:
    paused = [*histories.started(), *histories.paused()]
    newer = histories.event(histories.started()[1].data, run=LATER)
    state = folded(*paused, newer)
    before = dict(state.tasks)
    folded(histories.event(StateReported()), after=state)
    assert state.tasks == before


def test_a_corrected_task_has_the_failure_of_the_report() -> None:
    dead = folded(histories.event(TaskDied(task="JFK", position=9, failure=FAILURE)))
    view = folded(*histories.started())
    folded(*map(histories.event, drift.report(dead.tasks.values())), after=view)
    task = view.tasks[JFK.digest]
    assert (task.status, task.position, task.failure) == (TaskStatus.DEAD, 9, FAILURE)
    assert task.failed == 0


def test_the_hash_ignores_order_and_running_tasks() -> None:
    first, second = (TaskState(id=replace(JFK, key=key), status=TaskStatus.DEAD) for key in "ab")
    runs = TaskState(id=JFK, held=7)
    gone = TaskState(id=JFK, status=TaskStatus.DISMISSED, position=7)
    whole = drift.state_hash([drift.weight([first, runs, gone, second])])
    assert whole == drift.state_hash([drift.weight([second]), drift.weight([first])])
    assert whole != drift.state_hash([drift.weight([first])])
    assert whole != drift.state_hash([drift.weight([first, replace(second, position=1)])])


def test_a_lasting_difference_is_requested_once() -> None:
    def after(
        before: Difference | None, beat: int, *, agent_hash: str = "t", server_hash: str = "o"
    ) -> object:
        at = NOON + timedelta(seconds=5 * beat)
        return compare_hashes(before, agent_hash=agent_hash, server_hash=server_hash, beat=at)

    first = after(None, 1)
    assert isinstance(first, Difference)
    assert after(first, 1) == first
    second = after(first, 2)
    assert isinstance(second, Difference)
    assert not second.is_report_due
    third = after(second, 3)
    assert isinstance(third, Difference)
    assert third.is_report_due
    assert not replace(third, report_id=histories.INSTANCE).is_report_due
    moved = after(second, 3, server_hash="other")
    assert isinstance(moved, Difference)
    assert moved.beats == 1
    assert after(third, 4, agent_hash="o") is None
    assert compare_hashes(third, agent_hash=None, server_hash="o", beat=NOON) is None
