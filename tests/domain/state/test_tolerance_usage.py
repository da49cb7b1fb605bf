"""Tolerance usage from the log equals the count of the run."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.domain.error_policy.tolerance import Tally, Tolerance, Window, count
from arrester.domain.events import (
    Event,
    FailuresCounted,
    FinalResponse,
    PipelineDescribed,
    RecordFailed,
    StoredEvent,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.state.states import MostToleranceUsed, ThreadState
from arrester.domain.state.stream_state import StreamState, empty
from arrester.domain.state.tolerance_usage import in_window, window_end
from tests.histories import FAILURE, NOON, POLICY, RUN

LIMITED = replace(POLICY, rate_limit=100, rate_duration="hour")


def folded(*events: Event) -> StreamState:
    return empty("flights").fold(
        StoredEvent(application="flights", sequence=n, received_at=NOON, batch=uuid4(), event=event)
        for n, event in enumerate(events, start=1)
    )


def event_of(
    data: RecordFailed | FailuresCounted | PipelineDescribed | ThreadStarted | ThreadDied,
    *,
    minutes: float = 0,
    epoch: int = 1,
) -> Event:
    return Event(
        occurred_at=at(minutes),
        data=data,
        instance=uuid4(),
        run=replace(RUN, epoch=epoch),
    )


def left_out(
    task: str, records: int = 1, response: FinalResponse = FinalResponse.CONTINUE
) -> FailuresCounted:
    return FailuresCounted(
        task=task,
        failure=FAILURE,
        response=response,
        count=records,
        first_position=0,
        last_position=records,
    )


def begun(policy: PipelineDescribed = LIMITED, *, epoch: int = 1) -> list[Event]:
    return [event_of(ThreadStarted(), epoch=epoch), event_of(policy, epoch=epoch)]


def the_thread(state: StreamState) -> ThreadState:
    [thread] = state.threads.values()
    return thread


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def milliseconds(minutes: float) -> int:
    return int(at(minutes).timestamp() * 1_000)


def test_the_thread_has_the_largest_usage_of_a_task() -> None:
    thread = the_thread(
        folded(*begun(), event_of(left_out("JFK", 30)), event_of(left_out("EWR", 37), minutes=1))
    )
    assert (thread.spent.total, thread.spent.task) == (37, "EWR")
    assert in_window(thread, now=at(59)) == 37
    assert in_window(thread, now=at(60)) == 0
    assert window_end(LIMITED, now=at(59)) == at(60)


def test_only_skipped_records_and_recurrences_use_tolerance() -> None:
    again = RecordFailed(
        task="JFK", position=1, failure=FAILURE, response=FinalResponse.CONTINUE, recurrence=True
    )
    paused, failed = left_out("JFK", 5, FinalResponse.PAUSE), left_out("JFK", 5, FinalResponse.FAIL)
    state = folded(*begun(), event_of(again), event_of(paused), event_of(failed))
    assert the_thread(state).spent.total == 1


def test_tolerance_usage_begins_at_zero_in_each_run() -> None:
    state = folded(
        *begun(),
        event_of(left_out("JFK", 30)),
        *begun(epoch=2),
        event_of(left_out("JFK", 4), epoch=2),
        event_of(left_out("EWR", 99)),
        event_of(LIMITED),
        event_of(ThreadDied(reason="stopped"), epoch=2),
    )
    thread = the_thread(state)
    assert thread.policy == LIMITED
    assert (thread.spent.total, thread.spent.task) == (4, "JFK")


def test_a_run_without_a_description_has_no_policy() -> None:
    thread = the_thread(
        folded(*begun(), event_of(left_out("JFK")), event_of(ThreadStarted(), epoch=2))
    )
    assert (thread.policy, thread.described_at, thread.spent) == (None, None, MostToleranceUsed())


def test_without_a_limit_nothing_is_counted() -> None:
    for policy in (POLICY, replace(POLICY, tolerance_limit=-1)):
        state = folded(*begun(policy), event_of(left_out("JFK", 30)))
        assert the_thread(state).spent == MostToleranceUsed()
        assert [task.spent for task in state.tasks.values()] == [None]


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 50), st.integers(0, 300)), max_size=20
    ),
    st.sampled_from(Window),
)
def test_the_tally_of_a_task_equals_that_of_its_run(
    skipped: list[tuple[str, int, int]], window: Window
) -> None:
    skipped = sorted(skipped, key=lambda each: each[2])
    policy = replace(POLICY, tolerance_limit=10**9, rate_duration=window.value)
    state = folded(*begun(policy), *(event_of(left_out(a, n), minutes=m) for a, n, m in skipped))
    tallies: dict[str, Tally] = {}
    for task, records, minutes in skipped:
        tally = tallies.get(task, Tally())
        limits = Tolerance(limit=10**9, window=window)
        tallies[task] = count(limits, tally, now_ms=milliseconds(minutes), records=records).tally
    found = {task.id.key: task.spent.tally for task in state.tasks.values() if task.spent}
    assert found == tallies
    assert the_thread(state).spent.total == max(
        (each.total for each in tallies.values()), default=0
    )
