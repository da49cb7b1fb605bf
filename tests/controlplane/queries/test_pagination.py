"""Pages by cursor: every row once, in order, while rows are added; and every filter."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, queries
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.queries import FailureFilter, GroupFilter, Page
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.events import (
    CommandApplied,
    Event,
    FinalResponse,
    RecordFailed,
    Run,
    StoredEvent,
)
from arrester.domain.state.states import CommandState, CommandStatus, TaskStatus
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE, JFK, NOON

pytestmark = pytest.mark.usefixtures("fresh_database")
T = TypeVar("T")


def all_pages(read: Callable[[str | None], Page[T]]) -> list[T]:
    """Return the rows of all pages."""
    rows: list[T] = []
    cursor = None
    while True:
        page = read(cursor)
        rows += page.rows
        cursor = page.next
        if cursor is None:
            return rows


def positions(rows: list[StoredEvent] | tuple[StoredEvent, ...]) -> list[int | None]:
    return [each.event.data.position for each in rows if isinstance(each.event.data, RecordFailed)]


def fold(redis: Redis, events: list[Event], *, application: str = APPLICATION) -> None:
    streams.send(redis, events, application=application)
    fold_stream.fold_stream(application)


def test_failures_are_listed_newest_first_and_once(redis: Redis) -> None:
    # Many at the same moment: the sequence distinguishes them.
    fold(redis, [histories.failed(position % 7) for position in range(100)])
    fold(redis, [histories.failed(3)], application="other")

    def read(cursor: str | None) -> Page[StoredEvent]:
        return queries.failures(FailureFilter(), cursor=cursor, limit=9)

    found = all_pages(read)

    keys = [(each.event.occurred_at, each.application, each.sequence) for each in found]
    assert keys == sorted(keys, reverse=True)
    assert len(set(keys)) == len(keys) == 101
    counts = [each.event.data.count for each in found if isinstance(each.event.data, RecordFailed)]
    assert sum(counts) == 101


def test_new_failures_do_not_shift_later_pages(redis: Redis) -> None:
    fold(redis, [histories.failed(position) for position in range(10)])
    first = queries.failures(FailureFilter(), limit=5)
    fold(redis, [histories.failed(59)])
    second = queries.failures(FailureFilter(), cursor=first.next, limit=5)
    assert positions((*first.rows, *second.rows)) == list(range(9, -1, -1))
    assert second.next is None


def test_failures_of_a_clock_that_is_ahead_are_listed(redis: Redis) -> None:
    fold(redis, [histories.failed(1)])
    late = datetime.now(UTC) + timedelta(days=400)
    streams.append([histories.failed(2)], received_at=late, application="ahead")
    assert positions(queries.failures(FailureFilter()).rows) == [2, 1]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (FailureFilter(application=APPLICATION), [4, 3, 2, 1]),
        (FailureFilter(application="unknown"), []),
        (FailureFilter(pipeline="gains"), [2]),
        (FailureFilter(task=JFK.digest), [3, 1]),
        (FailureFilter(stage="deserialize"), [3]),
        (FailureFilter(exception_class="KeyError"), [3]),
        (FailureFilter(fingerprint="1-bbbb"), [3]),
        (FailureFilter(since=NOON + timedelta(minutes=3)), [4, 3]),
        (FailureFilter(until=NOON + timedelta(minutes=3)), [2, 1]),
        (FailureFilter(task=JFK.digest, stage=FAILURE.stage), [1]),
    ],
)
def test_failures_by_filter(redis: Redis, wanted: FailureFilter, expected: list[int]) -> None:
    other = replace(FAILURE, stage="deserialize", exception_class="KeyError", fingerprint="1-bbbb")
    second = replace(histories.failed(2), run=Run(pipeline="gains", checkpoint="cp-1", epoch=1))
    third = RecordFailed(task="JFK", position=3, failure=other, response=FinalResponse.CONTINUE)
    events = [
        histories.failed(1),
        second,
        histories.event(third, minute=3),
        histories.failed(4, key=None),
    ]
    fold(redis, [*histories.started(), *events])
    assert positions(queries.failures(wanted).rows) == expected


def test_failures_of_a_task_are_listed_in_the_order_of_receipt_and_once(redis: Redis) -> None:
    # Clocks differ, and some events were spooled for days: positions do not follow times.
    at = [NOON + timedelta(hours=hours) for hours in (9, 2, 30, 2, 5, 0, 50, 7, 40, 1)]
    for number, moment in enumerate(at):
        mine, other = (
            histories.failed(number),
            histories.failed(100 + number, key="EWR"),
        )
        fold(redis, [replace(each, occurred_at=moment) for each in (other, mine)])
    for until in (None, NOON + timedelta(hours=6), NOON + timedelta(hours=31), NOON):
        wanted = FailureFilter(task=JFK.digest, until=until)

        def read(cursor: str | None, wanted: FailureFilter = wanted) -> Page[StoredEvent]:
            return queries.failures(wanted, cursor=cursor, limit=2)

        of_task = [number for number, moment in enumerate(at) if until is None or moment < until]
        assert positions(all_pages(read)) == of_task[::-1]
    assert not queries.failures(FailureFilter(task=JFK.digest, application="other")).rows


def test_a_condition_in_exceptions_of_two_classes_is_found_by_either(redis: Redis) -> None:
    failure = replace(FAILURE, condition="CAST_INVALID_INPUT", exception_class="NumberFormat")
    failures = [
        RecordFailed(task="JFK", position=position, failure=each, response=FinalResponse.CONTINUE)
        for position, each in enumerate([failure, replace(failure, exception_class="DateTime")])
    ]
    fold(redis, [histories.event(data) for data in failures])
    for position, data in enumerate(failures):
        wanted = FailureFilter(exception_class=data.failure.exception_class)
        assert positions(queries.failures(wanted).rows) == [position]


def test_a_class_of_many_groups_is_found_page_by_page(redis: Redis) -> None:
    failures = [replace(FAILURE, fingerprint=f"1-{number:04x}") for number in range(60)]
    events = [
        RecordFailed(task="JFK", position=position, failure=each, response=FinalResponse.CONTINUE)
        for position, each in enumerate(failures)
    ]
    fold(redis, [histories.event(data) for data in events])
    wanted = FailureFilter(exception_class=FAILURE.exception_class)
    assert len(queries.failures(wanted, limit=100).rows) == len(events)


def test_a_stage_too_long_for_its_column_is_found(redis: Redis) -> None:
    long = replace(FAILURE, stage="process:" + "x" * 1000)
    data = RecordFailed(task="JFK", position=1, failure=long, response=FinalResponse.CONTINUE)
    fold(redis, [histories.event(data)])
    assert len(queries.failures(FailureFilter(stage=long.stage)).rows) == 1


@pytest.mark.parametrize("cursor", ["", "???", "bm90IGpzb24", "W10", "é"])
def test_an_invalid_cursor_is_refused(redis: Redis, cursor: str) -> None:
    with pytest.raises(InvalidValue, match="cursor"):
        queries.failures(FailureFilter(), cursor=cursor)


def test_a_limit_out_of_bounds_is_refused() -> None:
    for limit in (0, -1, 1001):
        with pytest.raises(InvalidValue, match="limit"):
            queries.failures(FailureFilter(), limit=limit)


def test_the_history_of_a_task_has_its_commands_and_their_answers(redis: Redis) -> None:
    fold(
        redis,
        [
            *histories.started(),
            *histories.paused(),
            histories.failed(1, key="EWR"),
        ],
    )
    command = actions.resume_task(JFK.digest, actor="ana")
    done = CommandApplied(command=command.id)
    fold(redis, [histories.event(done, run=None)])

    def read(cursor: str | None) -> Page[StoredEvent]:
        return queries.task_history(JFK.digest, cursor=cursor, limit=2)

    assert [each.event.type for each in all_pages(read)] == [
        "CommandApplied", "CommandIssued", "RecordsHeld", "TaskPaused", "RecordFailed",
    ]  # fmt: skip
    with pytest.raises(NotFound):
        queries.task_history("0" * 32)


def test_a_paused_task_shows_the_record_and_the_trace(redis: Redis) -> None:
    fold(redis, [*histories.started(), *histories.paused()])
    detail = queries.task(JFK.digest)
    assert detail.state.status is TaskStatus.PAUSED
    assert detail.thread is not None
    assert detail.failure is not None
    assert detail.failure.event == histories.failed(7, response=FinalResponse.PAUSE)
    with pytest.raises(NotFound):
        queries.task("nothing")


def test_groups_have_an_example_and_their_stopped_tasks(redis: Redis) -> None:
    fold(
        redis,
        [
            *histories.started(),
            histories.failed(1, key="EWR"),
            *histories.paused(),
        ],
    )
    (state,) = queries.groups().rows
    assert (state.count, state.fingerprint) == (2, FAILURE.fingerprint)
    detail = queries.group(APPLICATION, state.fingerprint)
    assert detail.example is not None
    assert detail.example.event.body == histories.failed(7).body
    assert [each.id for each in detail.stopped] == [JFK]
    of_group = FailureFilter(application=APPLICATION, fingerprint=state.fingerprint)
    occurrences = queries.failures(of_group).rows
    assert positions(occurrences) == [7, 1]
    with pytest.raises(NotFound):
        queries.group(APPLICATION, "1-none")


def test_text_is_searched_in_the_newest_message_of_each_group(redis: Redis) -> None:
    for position, delay in enumerate((1301, 1402)):
        failure = replace(FAILURE, message=f"delay of {delay} minutes")
        data = RecordFailed(
            task="JFK", position=position, failure=failure, response=FinalResponse.CONTINUE
        )
        fold(redis, [histories.event(data)])
    assert [len(queries.groups(GroupFilter(text=text)).rows) for text in ("1402", "1301")] == [1, 0]


def test_counts_per_minute_add_up_to_the_failed_records(redis: Redis) -> None:
    fold(redis, [histories.failed(position) for position in (1, 1, 2)])
    until, step = NOON + timedelta(hours=1), timedelta(minutes=1)
    counts = queries.failed_by_application(since=NOON, until=until, step=step)
    assert [(each.moment, each.count) for each in counts] == [
        (NOON + timedelta(minutes=1), 2),
        (NOON + timedelta(minutes=2), 1),
    ]
    assert queries.application(APPLICATION).state.failed == 3


def test_commands_by_page_and_by_id(redis: Redis) -> None:
    actions.open_application(APPLICATION, actor="up")
    ids = []
    for number in range(3):
        off = actions.shut_down_application(APPLICATION, actor="ben", reason=f"night {number}")
        on = actions.start_application(APPLICATION, actor="ana")
        ids += [off.id, on.id]

    def read(cursor: str | None) -> Page[CommandState]:
        return queries.commands(APPLICATION, cursor=cursor, limit=2)

    assert [each.id for each in all_pages(read)] == ids[::-1]
    assert queries.command(ids[0]).status is CommandStatus.APPLIED
    with pytest.raises(NotFound):
        queries.command(UUID(int=1))


def test_the_grid_shows_stopped_tasks_first(redis: Redis) -> None:
    fold(
        redis,
        [
            *histories.started(),
            histories.failed(1, key="EWR"),
            *histories.paused(),
        ],
    )
    (pipeline,) = queries.pipelines(APPLICATION).pipelines
    assert [each.id.key for each in pipeline.tasks] == ["JFK", "EWR"]
    assert not pipeline.has_other_checkpoint
    summary = queries.application(APPLICATION)
    assert (summary.paused, summary.dead, summary.held, summary.instances) == (1, 0, 3, 1)
    overview = queries.overview()
    assert [each.name for each in overview.applications] == [APPLICATION]
    assert [each.id for each in queries.held().rows] == [JFK]


def test_lag_has_the_number_and_age_of_waiting_batches(redis: Redis) -> None:
    fold(redis, [histories.failed(1)])
    streams.send(redis, [histories.failed(2)])
    lag = queries.lag(APPLICATION)
    assert (lag.sequence, lag.waiting) == (1, 1)
    assert lag.waiting_seconds is not None
    with pytest.raises(NotFound):
        queries.lag("other")
