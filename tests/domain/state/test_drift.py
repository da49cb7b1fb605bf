"""Agent and server see an instance's tasks alike, or one report makes them."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.controlplane.domain.events import Event, Run, StateReported, TaskDied, TaskPaused
from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.state import drift
from arrester.controlplane.domain.state.drift import Difference, differing
from arrester.controlplane.domain.state.states import TaskState, TaskStatus
from arrester.controlplane.domain.state.stream_state import StreamState, empty
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
def test_whatever_the_drift_one_report_heals(theirs: list[Event], ours: list[Event]) -> None:
    truth = of_run(folded(*theirs))
    view = folded(*ours)
    others = {id: each for id, each in view.tasks.items() if each not in of_run(view)}
    told = [histories.event(each, run=LATER) for each in drift.report(truth)]
    folded(*told, after=view)
    assert drift.weight(of_run(view)) == drift.weight(truth)
    assert seen(of_run(view)) == seen(truth)
    assert {id: view.tasks[id] for id in others} == others


@given(st.permutations(range(450)))
def test_a_long_report_comes_in_parts_that_speak_of_all_together(order: list[int]) -> None:
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


def test_a_corrected_task_shows_the_failure_that_the_report_names() -> None:
    dead = folded(histories.event(TaskDied(task="JFK", position=9, failure=FAILURE)))
    view = folded(*histories.started())
    folded(*map(histories.event, drift.report(dead.tasks.values())), after=view)
    task = view.tasks[JFK.digest]
    assert (task.status, task.position, task.failure) == (TaskStatus.DEAD, 9, FAILURE)
    assert task.failed == 0


def test_the_hash_is_free_of_order_and_blind_to_what_runs() -> None:
    first, second = (TaskState(id=replace(JFK, key=key), status=TaskStatus.DEAD) for key in "ab")
    runs = TaskState(id=JFK, held=7)
    whole = drift.standing([drift.weight([first, runs, second])])
    assert whole == drift.standing([drift.weight([second]), drift.weight([first])])
    assert whole != drift.standing([drift.weight([first])])
    assert whole != drift.standing([drift.weight([first, replace(second, position=1)])])


def test_only_what_stays_different_is_asked_about_and_once() -> None:
    def after(
        before: Difference | None, beat: int, *, theirs: str = "t", ours: str = "o"
    ) -> object:
        at = NOON + timedelta(seconds=5 * beat)
        return differing(before, theirs=theirs, ours=ours, beat=at)

    first = after(None, 1)
    assert isinstance(first, Difference)
    assert after(first, 1) == first
    second = after(first, 2)
    assert isinstance(second, Difference)
    assert not second.lasts
    third = after(second, 3)
    assert isinstance(third, Difference)
    assert third.lasts
    assert not replace(third, asked=histories.INSTANCE).lasts
    moved = after(second, 3, ours="other")
    assert isinstance(moved, Difference)
    assert moved.beats == 1
    assert after(third, 4, theirs="o") is None
    assert differing(third, theirs=None, ours="o", beat=NOON) is None
