"""As of: a state at any time or position equals the pure fold up to it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from unittest.mock import patch
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, models, queries, store
from arrester.controlplane.history import state_at_position
from arrester.controlplane.ingest import fold_stream
from arrester.domain.errors import (
    BeforeHistory,
    CommandForbidden,
    InvalidValue,
    NotFound,
)
from arrester.domain.events import Event
from arrester.domain.state.keyed_states import StateKeys
from arrester.domain.state.states import TaskStatus
from arrester.domain.state.stream_state import StreamState, empty
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, INSTANCE, JFK

pytestmark = pytest.mark.usefixtures("fresh_database")


@pytest.fixture
def few_events_per_snapshot(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make a snapshot every few events."""
    monkeypatch.setattr(state_at_position, "EVENTS_PER_SNAPSHOT", 5)
    yield


def at(position: int) -> queries.AsOf:
    return queries.AsOf(position=position)


def states(state: StreamState) -> StreamState:
    """Return the states without the keys that the last fold changed."""
    state.changed_keys = StateKeys()
    return state


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.lists(histories.agent_events, max_size=8), max_size=6), st.randoms())
def test_a_past_state_is_the_fold_up_to_its_position(
    redis: Redis,
    few_events_per_snapshot: None,
    batches: list[list[Event]],
    random: Random,
) -> None:
    application = f"a{uuid4().hex}"
    for events in batches:
        streams.send(redis, events, application=application)
        if random.random() < 0.7:
            fold_stream.fold_stream(application)
    fold_stream.fold_stream(application)
    log = streams.log(application)

    for position in range(len(log) + 1):
        pure = empty(application).fold(log[:position])
        assert states(state_at_position.at(application, position)) == states(pure)
        for task in pure.tasks.values():
            assert queries.as_of_state.task(task.id.digest, at(position)).state == task
            thread = pure.threads.get((task.id.pipeline, task.id.checkpoint))
            assert queries.as_of_state.task(task.id.digest, at(position)).thread == thread
        for instance in pure.instances.values():
            assert queries.as_of_state.instance(application, instance.id, at(position)) == instance
        for group in pure.groups.values():
            found = queries.as_of_state.group(application, group.fingerprint, at(position))
            assert found.state == group


def test_as_of_now_equals_the_views(redis: Redis, few_events_per_snapshot: None) -> None:
    streams.send(redis, [*histories.started(), *histories.paused(), histories.failed(8)])
    fold_stream.fold_stream(APPLICATION)
    actions.skip_record(JFK.digest, actor="ana", reason="bad")
    streams.send(redis, [*histories.paused(9, key="EWR"), histories.failed(1, key=None)])
    fold_stream.fold_stream(APPLICATION)
    assert models.Snapshot.objects.exists()
    now = queries.as_of(datetime.now(UTC).isoformat())

    everything = queries.TaskFilter()
    assert queries.as_of_state.tasks(everything, now) == queries.tasks(everything)
    assert queries.as_of_state.task(JFK.digest, now) == queries.task(JFK.digest)
    assert queries.as_of_state.groups(None, now) == queries.groups()
    (group,) = queries.groups().rows
    assert queries.as_of_state.group(APPLICATION, group.fingerprint, now) == queries.group(
        APPLICATION, group.fingerprint
    )
    assert queries.as_of_state.instances(APPLICATION, now) == queries.instances(APPLICATION)
    assert queries.as_of_state.instance(APPLICATION, INSTANCE, now) == queries.instance(
        APPLICATION, INSTANCE
    )
    assert queries.as_of_state.threads(APPLICATION, now) == queries.threads(APPLICATION)
    detail = queries.as_of_state.application_detail(APPLICATION, now, tasks=500)
    assert detail.grid == queries.pipelines(APPLICATION)
    lag = queries.lag(APPLICATION)
    then = [replace(each, lag=lag) for each in queries.as_of_state.applications(now)]
    assert tuple(then) == queries.applications()
    streams.assert_exact()


def test_as_of_a_time_includes_the_events_received_by_then() -> None:
    noon = datetime.now(UTC) - timedelta(days=40)
    days = [noon + timedelta(days=number) for number in range(3)]
    for number, day in enumerate(days):
        streams.append([histories.failed(number)], received_at=day)
        streams.append([histories.failed(number)], received_at=day + timedelta(seconds=1))
    times = {
        days[0] - timedelta(seconds=1): 0,
        days[0]: 1,
        days[0] + timedelta(seconds=1): 2,
        days[1] - timedelta(hours=1): 2,
        days[2]: 5,
        days[2] + timedelta(days=30): 6,
    }
    for moment, expected in times.items():
        when = queries.as_of(moment.isoformat())
        assert queries.log_position(APPLICATION, when) == expected
    with pytest.raises(NotFound):
        queries.as_of_state.task(JFK.digest, queries.as_of((noon - timedelta(days=1)).isoformat()))


def test_a_clock_that_goes_back_keeps_the_order_of_times() -> None:
    now = datetime.now(UTC)
    streams.append([histories.failed(1)], received_at=now)
    streams.append([histories.failed(2)], received_at=now - timedelta(days=2))
    assert {each.received_at for each in streams.log()} == {now}


def test_a_paused_task_was_running_before(redis: Redis) -> None:
    streams.send(redis, [*histories.started(), histories.failed(1), *histories.paused()])
    fold_stream.fold_stream(APPLICATION)
    before = queries.as_of_state.task(JFK.digest, at(3)).state
    assert (before.status, before.held, before.failed) == (TaskStatus.RUNNING, 0, 1)
    detail = queries.as_of_state.application_detail(APPLICATION, at(5), tasks=500)
    assert [each.counts["PAUSED"] for each in detail.grid.pipelines] == [1]
    history = queries.as_of_state.task_history(JFK.digest, at(4))
    assert [each.sequence for each in history.rows] == [4, 3]


def test_the_last_command_is_the_one_as_of_then(
    redis: Redis, few_events_per_snapshot: None
) -> None:
    streams.send(redis, [*histories.started(), *histories.paused()])
    fold_stream.fold_stream(APPLICATION)
    early = actions.resume_task(JFK.digest, actor="ana")
    issued = queries.log_positions()[APPLICATION]
    for _ in range(30):
        with pytest.raises(CommandForbidden):
            actions.resume_task(JFK.digest, actor="ana")
        # States are kept behind the first one: it is in no event that is folded.
        state_at_position.make_snapshot_if_due(APPLICATION)
    then = store.nearest_snapshot(APPLICATION, issued + 15)
    assert then > issued
    for position in (issued, then):
        seen = queries.as_of_state.task(JFK.digest, at(position))
        assert seen.open_command is not None and seen.open_command.id == early.id
        assert seen.last_command is not None
        assert (seen.last_command.id == early.id) is (position == issued)
    assert queries.as_of_state.task(JFK.digest, at(issued - 1)).last_command is None


@pytest.mark.parametrize("position", [3, 7])
def test_a_past_state_read_during_retention_is_complete(position: int) -> None:
    streams.append_late(5)
    # Between the look where the log begins, and what was kept there.
    with streams.retaining_before("DISTINCT ON"):
        if position == 3:
            with pytest.raises(BeforeHistory):
                state_at_position.at(APPLICATION, position)
        else:
            (task,) = state_at_position.at(APPLICATION, position).tasks.values()
            assert task.failed == position
    assert store.base(APPLICATION).position == 5


def test_snapshots_limit_the_number_of_folded_events(
    redis: Redis, few_events_per_snapshot: None
) -> None:
    for number in range(12):
        streams.send(redis, [histories.failed(number), histories.failed(number, key="EWR")])
        fold_stream.fold_stream(APPLICATION)
    kept = set(models.Snapshot.objects.values_list("position", flat=True))
    assert kept == {6, 12, 18, 24}
    assert [store.nearest_snapshot(APPLICATION, position) for position in (5, 6, 23, 24)] == [
        0,
        6,
        18,
        24,
    ]
    # The state of all of the log, with no event read.
    with patch.object(store, "read_stored", return_value=iter(())):
        then = state_at_position.at(APPLICATION, 24)
    assert then.tasks[JFK.digest] == streams.task(JFK.digest)


@pytest.mark.parametrize("text", ["", "@", "@x", "yesterday", "@-1", "2026-13-01", "9" * 30])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="as_of"):
        queries.as_of(text)


def test_a_position_must_exist_in_one_application(redis: Redis) -> None:
    streams.send(redis, [histories.failed(1)])
    fold_stream.fold_stream(APPLICATION)
    assert queries.as_of("@18,233") == at(18_233)
    with pytest.raises(InvalidValue, match="up to @1"):
        queries.as_of_state.application(APPLICATION, at(2))
    with pytest.raises(InvalidValue, match="unless one application is chosen"):
        queries.as_of_state.tasks(queries.TaskFilter(), at(1))
    with pytest.raises(NotFound):
        queries.as_of_state.application("other", at(0))


def test_due_snapshots_are_checked_ten_times_between_two() -> None:
    looks = [
        state_at_position.may_be_due(position, position + 100) for position in range(0, 10_000, 100)
    ]
    assert sum(looks) == 10
    assert state_at_position.may_be_due(0, 30_000)
