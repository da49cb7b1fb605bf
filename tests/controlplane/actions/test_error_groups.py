"""Acts on error groups, and notes: each is logged once; mutes end by time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, queries
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.queries import GroupFilter
from arrester.domain.errors import (
    CommandForbidden,
    GroupActForbidden,
    InvalidValue,
    NotFound,
)
from arrester.domain.events import FinalResponse, RecordFailed
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from arrester.domain.state.states import (
    CommandStatus,
    GroupState,
    GroupStatus,
    TaskStatus,
)
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE, JFK

pytestmark = pytest.mark.usefixtures("fresh_database")
MARK = FAILURE.fingerprint


@pytest.fixture
def failed(redis: Redis) -> Redis:
    """Return Redis, with a log in which a failed record has paused its task."""
    streams.send(redis, [*histories.started(), *histories.paused()])
    fold_stream.fold_stream(APPLICATION)
    return redis


def act(act: GroupAct, **more: object) -> GroupState:
    values = {"id": uuid4(), "actor": "ana"} | more
    return actions.act_on_group(
        APPLICATION, GroupRequest(act=act, fingerprint=MARK, **values)  # type: ignore[arg-type]  # by name
    )  # fmt: skip


def state() -> GroupState:
    return queries.group(APPLICATION, MARK).state


def test_resolved_and_reopened_by_the_next_failure(failed: Redis) -> None:
    assert act(GroupAct.RESOLVE, reason="fixed").status is GroupStatus.RESOLVED
    assert state().status is GroupStatus.RESOLVED
    streams.send(failed, [histories.failed(9)])
    fold_stream.fold_stream(APPLICATION)
    assert (state().status, state().recurred) == (GroupStatus.UNRESOLVED, True)
    streams.assert_exact()


def test_groups_with_close_last_failures_are_listed_in_order(redis: Redis) -> None:
    """The index does not distinguish failures within ten seconds."""
    seen = [0, 1, 1, 2_500, 9_999, 10_000, 10_000, 29_999, 30_001, -1, -5_000, -10_000]
    for number, at in enumerate(seen):
        failure = replace(FAILURE, fingerprint=f"1-{number:016x}")
        data = RecordFailed(
            task="JFK", position=number, failure=failure, response=FinalResponse.CONTINUE
        )
        moment = histories.NOON + timedelta(milliseconds=at)
        streams.send(redis, [replace(histories.event(data), occurred_at=moment)])
    fold_stream.fold_stream(APPLICATION)
    expected = sorted((at, f"1-{number:016x}") for number, at in enumerate(seen))
    for sort, wanted in (("last_seen", expected), ("-last_seen", expected[::-1])):
        for limit in (1, 2, 5, 50):
            assert [fingerprint for _, fingerprint in wanted] == listed(sort, limit)
    for at in (-5_000, 1, 9_999, 29_999):
        wanted = [(moment, fingerprint) for moment, fingerprint in expected if moment >= at]
        since = histories.NOON + timedelta(milliseconds=at)
        found = listed("last_seen", 50, GroupFilter(since=since))
        assert found == [fingerprint for _, fingerprint in wanted]


def listed(sort: str, limit: int, wanted: GroupFilter | None = None) -> list[str]:
    """Return the fingerprints of all pages of a list."""
    found: list[str] = []
    cursor = None
    while True:
        page = queries.groups(wanted, sort=sort, limit=limit, cursor=cursor)
        found += [each.fingerprint for each in page.rows]
        cursor = page.next
        if cursor is None:
            return found


def test_a_repeated_act_with_the_same_id_is_done_once(failed: Redis) -> None:
    id = uuid4()
    assert act(GroupAct.RESOLVE, id=id) == act(GroupAct.RESOLVE, id=id)
    note = uuid4()
    for _ in range(2):
        actions.note_on_group(APPLICATION, MARK, actor="ana", text="once", id=note)
    assert state().notes == 1
    assert [each.event.type for each in streams.log()][-2:] == ["ErrorGroupResolved", "NoteAdded"]
    streams.assert_exact()


def test_an_act_that_the_state_forbids_is_not_logged(failed: Redis) -> None:
    before = len(streams.log())
    with pytest.raises(GroupActForbidden) as refused:
        act(GroupAct.REOPEN)
    assert (refused.value.state, refused.value.sequence) == ("UNRESOLVED", 0)
    with pytest.raises(InvalidValue):
        act(GroupAct.MUTE)
    with pytest.raises(InvalidValue):
        actions.note_on_group(APPLICATION, MARK, actor="ana", text=" ")
    with pytest.raises(NotFound):
        actions.note_on_group(APPLICATION, "1-nothing", actor="ana", text="hello")
    assert len(streams.log()) == before


def test_a_mute_ends_at_its_time(failed: Redis) -> None:
    now = datetime.now(UTC)
    act(GroupAct.MUTE, until=now + timedelta(hours=1))
    assert actions.watch(now=now) == 0
    assert actions.watch(now=now + timedelta(hours=1)) == 1
    assert (state().status, state().reason) == (GroupStatus.UNRESOLVED, "its time is over")
    assert actions.watch(now=now + timedelta(hours=1)) == 0
    streams.assert_exact()


def test_notes_are_in_the_history_of_a_task_and_of_a_command(failed: Redis) -> None:
    command = actions.resume_task(JFK.digest, actor="ana").id
    actions.note_on_task(JFK, actor="ben", text="the vendor is informed")
    actions.note_on_command(command, actor="ben", text="after the call")
    newest = [each.event.type for each in queries.task_history(JFK.digest).rows]
    assert newest[:3] == ["NoteAdded", "NoteAdded", "CommandIssued"]
    streams.assert_exact()


def test_a_command_can_be_cancelled_until_an_instance_has_fetched_it(failed: Redis) -> None:
    command = actions.resume_task(JFK.digest, actor="ana").id
    assert actions.cancel_command(command, actor="ben").status is CommandStatus.CANCELLED
    with pytest.raises(CommandForbidden, match="it is CANCELLED"):
        actions.cancel_command(command, actor="ben")
    down = actions.shut_down_application(APPLICATION, actor="ana", reason="night").id
    with pytest.raises(CommandForbidden, match="start the application instead"):
        actions.cancel_command(down, actor="ben")
    with pytest.raises(NotFound):
        actions.cancel_command(uuid4(), actor="ben")
    streams.assert_exact()


def test_a_refusal_of_one_of_many_resumed_tasks_does_not_affect_the_others(failed: Redis) -> None:
    streams.send(failed, [*histories.paused(key="LGA"), histories.failed(3, key="EWR")])
    fold_stream.fold_stream(APPLICATION)
    digests = [
        each.id.digest for each in queries.tasks(queries.TaskFilter(application=APPLICATION)).rows
    ]
    id = uuid4()
    for _ in range(2):
        done = actions.resume_tasks(digests, actor="ana", reason="fixed", id=id)
        results = {each.task.key: (each.command is not None, each.refused) for each in done}
        assert results["JFK"] == results["LGA"] == (True, "")
        assert (
            results["EWR"][1]
            == f"only a PAUSED task can resume; delays_EWR is {TaskStatus.RUNNING}"
        )
    assert len(queries.open_commands(APPLICATION)) == 2
    with pytest.raises(InvalidValue):
        actions.resume_tasks([], actor="ana")


def test_many_tasks_are_resumed_in_one_batch_and_relayed_once(failed: Redis) -> None:
    keys = [f"gate-{number}" for number in range(8)]
    streams.send(failed, [event for key in keys for event in histories.paused(key=key)])
    fold_stream.fold_stream(APPLICATION)
    wanted = queries.TaskFilter(application=APPLICATION, status="PAUSED")
    digests = [each.id.digest for each in queries.tasks(wanted).rows]

    def reads() -> int:
        calls: dict[str, dict[str, int]] = failed.info("commandstats")
        return calls.get("cmdstat_xrange", {"calls": 0})["calls"]

    before = reads()
    actions.resume_tasks(digests[:1], actor="ana")
    one = reads() - before
    actions.resume_tasks(digests[1:], actor="ana")
    assert reads() - before - one == one > 0
    issued = [each for each in streams.log() if each.event.type == "CommandIssued"]
    assert len(issued) == len(digests) == 9
    assert len({each.batch for each in issued}) == 2
    streams.assert_exact()
