from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.domain.events import Event, FinalResponse, RecordFailed, StoredEvent
from arrester.domain.state.states import TaskState
from arrester.domain.state.stream_state import StreamState, empty
from arrester.domain.wire.counted_only import counted_only
from tests.agents.sample_events import NOW, batch_id, failed, paused

any_failure = st.builds(
    failed,
    st.integers(0, 99),
    task=st.sampled_from(["JFK", "EWR"]),
    message=st.sampled_from(["bad", "worse"]),
    response=st.sampled_from(FinalResponse),
    recurrence=st.booleans(),
    attempts=st.integers(1, 3),
    text=st.just("x" * 100),
)
any_history = st.lists(any_failure | st.builds(paused, st.integers(0, 99)), max_size=30)


def folded(events: list[Event]) -> StreamState:
    return empty("flights").fold(
        StoredEvent(
            application="flights",
            sequence=sequence,
            received_at=NOW,
            batch=batch_id(0),
            event=event,
        )
        for sequence, event in enumerate(events, start=1)
    )


def without_sequences(task: TaskState) -> TaskState:
    return replace(task, sequence=0, status_sequence=0, failure_sequence=0)


@given(any_history)
def test_counted_only_events_fold_to_the_same_tasks(events: list[Event]) -> None:
    full, reduced = folded(events), folded(counted_only(events))
    assert {key: without_sequences(task) for key, task in full.tasks.items()} == {
        key: without_sequences(task) for key, task in reduced.tasks.items()
    }
    assert {key: group.count for key, group in full.groups.items()} == {
        key: group.count for key, group in reduced.groups.items()
    }
    assert full.application.failed == reduced.application.failed


@given(any_history)
def test_counted_only_events_have_no_body(events: list[Event]) -> None:
    assert all(event.body is None for event in counted_only(events))


def test_a_million_skipped_records_take_one_event_per_task_and_cause() -> None:
    events = [failed(n, task="JFK" if n % 2 else "EWR") for n in range(1000)]
    reduced = counted_only(events)
    assert len(reduced) == 2
    assert not any(isinstance(event.data, RecordFailed) for event in reduced)
