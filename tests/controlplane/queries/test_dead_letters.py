"""Lists and totals of dead letters: each once, in order, page by page, by any filter."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import queries
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.queries import DeadLetterFilter
from arrester.controlplane.views.dead_letter_selection import open_dead_letters
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.events import Event, RecordFailed
from tests import histories
from tests.controlplane import streams
from tests.histories import (
    APPLICATION,
    FAILURE,
    JFK,
    NOON,
    dead_lettered,
    failed,
    held,
    redriven,
)

Found = list[tuple[str, str | None, int | None]]
#: Of one application, by key and position.
OF_ONE = [("EWR", 5), ("EWR", 4), ("JFK", 9), ("JFK", 5), ("JFK", 3), (None, 2), (None, 1)]


@pytest.fixture(autouse=True)
def of_two_applications(fresh_database: object, redis: Redis) -> None:
    """Have dead letters of two applications: some at the same time, some without a cause."""
    for name in (APPLICATION, "orders"):
        events = [
            *histories.started(),
            failed(3),
            dead_lettered([3, 5, 9], causes=[1, 0, 1]),
            dead_lettered([4, 5], key="EWR"),
            dead_lettered([1, 2], key=None, minute=-3),
        ]
        streams.send(redis, events, application=name)
        fold_stream.fold_stream(name)


def found(*, limit: int = 50, **wanted: object) -> Found:
    """Return the dead letters of a filter, read page by page."""
    rows: Found = []
    cursor = None
    while True:
        page = queries.dead_letters(
            DeadLetterFilter(**wanted),  # type: ignore[arg-type]  # fields by name
            cursor=cursor,
            limit=limit,
        )
        rows += [(each.application, each.task.key, each.position) for each in page.rows]
        if (cursor := page.next) is None:
            return rows


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_pages_continue_after_the_last_row(limit: int) -> None:
    flights = [(APPLICATION, *each) for each in OF_ONE]
    assert found(limit=limit, application=APPLICATION) == flights
    orders = [("orders", *each) for each in OF_ONE]
    # At the same time, those of a stream are together.
    assert found(limit=limit) == [*orders[:5], *flights[:5], *orders[5:], *flights[5:]]
    assert found(limit=limit, task=JFK.digest) == flights[2:5]


def test_filters_are_combined() -> None:
    of_cause = [each for each in OF_ONE if each != ("JFK", 5)]
    for rows in (
        found(application=APPLICATION, fingerprint=FAILURE.fingerprint),
        found(application=APPLICATION, stage=FAILURE.stage),
        found(application=APPLICATION, exception_class="ValueError", pipeline="delays"),
    ):
        assert [each[1:] for each in rows] == of_cause
    assert len(found(fingerprint=FAILURE.fingerprint)) == 2 * len(of_cause)
    earlier = found(application="orders", since=NOON - timedelta(minutes=3), until=NOON)
    assert [each[1:] for each in earlier] == OF_ONE[5:]
    assert found(task=JFK.digest, stage=FAILURE.stage, until=NOON) == []
    assert found(pipeline="other") == found(stage="produce") == found(application="none") == []


def test_a_filter_by_status_is_combined_with_pages_and_others(redis: Redis) -> None:
    events = [redriven([3, 9]), held(1), dead_lettered([9], minute=1), redriven([4], key="EWR")]
    streams.send(redis, events)
    fold_stream.fold_stream(APPLICATION)
    of_one = [each for each in OF_ONE if each not in (("JFK", 3), ("JFK", 9), ("EWR", 4))]
    waits = [(APPLICATION, *each) for each in of_one]
    for limit in (1, 50):
        assert found(limit=limit, application=APPLICATION, status="WAITING") == waits
        again = (APPLICATION, "JFK", 9)
        assert found(limit=limit, application=APPLICATION, status="open") == [again, *waits]
        assert found(limit=limit, task=JFK.digest, status="REDRIVEN") == [(APPLICATION, "JFK", 3)]
        assert found(limit=limit, task=JFK.digest, status="PROCESSED") == []
    assert found(status="FAILED_AGAIN", fingerprint=FAILURE.fingerprint) == [again]
    open_ones = DeadLetterFilter(application=APPLICATION, status="open")
    assert queries.count_dead_letters(open_ones) == 5
    assert queries.count_dead_letters(DeadLetterFilter(status="REDRIVEN")) is None
    with pytest.raises(InvalidValue, match="open, WAITING, REDRIVEN"):
        found(status="LOST")


def test_totals_are_those_of_the_lists() -> None:
    by_group = queries.dead_letter_totals(DeadLetterFilter(), by="group").rows
    found = [(each.application, each.group and each.group.stage, each.count) for each in by_group]
    assert found == [
        ("orders", FAILURE.stage, 6),
        (APPLICATION, FAILURE.stage, 6),
        ("orders", None, 1),
        (APPLICATION, None, 1),
    ]
    of_one = DeadLetterFilter(application=APPLICATION)
    counts: dict[str | None, int] = {}
    cursor = None
    while True:
        page = queries.dead_letter_totals(of_one, by="task", cursor=cursor, limit=1)
        counts |= {each.task.key: each.count for each in page.rows if each.task}
        if (cursor := page.next) is None:
            break
    assert counts == {"JFK": 3, "EWR": 2, None: 2}
    assert queries.count_dead_letters(of_one) == 7
    assert queries.count_dead_letters(DeadLetterFilter(stage="produce")) == 0
    with pytest.raises(InvalidValue, match="by"):
        queries.dead_letter_totals(of_one, by="hour")


def test_one_has_its_event_and_its_failure() -> None:
    page = queries.dead_letters(DeadLetterFilter(task=JFK.digest))
    first = page.rows[-1]
    assert queries.dead_letter(APPLICATION, first.id) == first
    assert (first.place, first.format, first.size) == ("/data/dlq/day=2026-11-20/7", "parquet", 100)
    failure = queries.failure_of_dead_letter(first)
    assert failure is not None and failure.event.body is not None
    assert queries.failure_of_dead_letter(page.rows[0]) is None
    for application, id in (("orders", first.id), ("none", first.id), (APPLICATION, "no id")):
        with pytest.raises(NotFound):
            queries.dead_letter(application, id)


def test_one_that_failed_again_has_its_first_and_its_newest_failure(redis: Redis) -> None:
    again = [redriven([3]), failed(3), dead_lettered([3], minute=1), failed(3)]
    streams.send(redis, again)
    fold_stream.fold_stream(APPLICATION)
    one = queries.dead_letters(DeadLetterFilter(task=JFK.digest)).rows[0]
    assert (one.status.name, one.redrives, one.first_sequence) == ("FAILED_AGAIN", 1, 4)
    first, newest = queries.first_failure_of_dead_letter(one), queries.failure_of_dead_letter(one)
    assert first is not None and newest is not None
    assert (first.sequence, newest.sequence, one.sequence) == (3, 8, 9)


def failed_with(message: str, position: int, *, key: str | None = "JFK") -> Event:
    """Return a failed record of the error group with a message of its own."""
    one = failed(position, key=key)
    assert isinstance(one.data, RecordFailed)
    return replace(one, data=replace(one.data, failure=replace(FAILURE, message=message)))


def messages(**wanted: object) -> dict[tuple[str | None, int | None], str | None]:
    found = queries.dead_letters(DeadLetterFilter(**wanted))  # type: ignore[arg-type]  # by name
    return {(each.task.key, each.position): each.message for each in found.rows}


def test_each_has_its_own_message_or_none(redis: Redis) -> None:
    events = [
        *(failed_with(f"ann-{n}@x.org", n) for n in range(101, 106)),
        dead_lettered([101, 102, 103, 104, 105, 106], minute=1),
        failed_with("of bob", 101, key="BOS"),
        dead_lettered([101], key="BOS", minute=1),
        # The newest example of the group is of a record that is no dead letter.
        failed_with("of carl", 107),
    ]
    streams.send(redis, events)
    fold_stream.fold_stream(APPLICATION)
    assert messages(application=APPLICATION, since=NOON + timedelta(seconds=1)) == {
        ("BOS", 101): "of bob",
        ("JFK", 106): None,
        **{("JFK", n): f"ann-{n}@x.org" for n in range(101, 106)},
    }
    of_all = messages(application=APPLICATION)
    # Reported by the events of the fixture: one failure in full.
    assert of_all["JFK", 3] == FAILURE.message
    assert (of_all["JFK", 5], of_all["EWR", 5], of_all[None, 1]) == (None, None, None)
    for each in queries.dead_letters(DeadLetterFilter(application=APPLICATION)).rows:
        assert queries.dead_letter(APPLICATION, each.id) == each


def test_one_that_failed_again_has_its_newest_message(redis: Redis) -> None:
    again = [redriven([3]), failed_with("second", 3), dead_lettered([3], minute=1)]
    streams.send(redis, [*again, failed_with("a later attempt", 3)])
    fold_stream.fold_stream(APPLICATION)
    assert messages(task=JFK.digest)["JFK", 3] == "second"


def test_a_redriven_dead_letter_no_longer_waits(redis: Redis) -> None:
    of_task = DeadLetterFilter(application=APPLICATION, task=JFK.digest)
    streams.send(redis, [redriven([3, 9]), held(1)])
    fold_stream.fold_stream(APPLICATION)
    streams.send(redis, [dead_lettered([9], minute=1), held(0)])
    fold_stream.fold_stream(APPLICATION)
    rows = queries.dead_letters(of_task).rows
    assert {each.position: each.status.name for each in rows} == {
        3: "PROCESSED",
        5: "WAITING",
        9: "FAILED_AGAIN",
    }
    totals = queries.dead_letter_totals(of_task, by="task").rows
    assert [(each.count, each.waiting) for each in totals] == [(3, 2)]


def test_open_ones_are_selected_by_task_and_position(redis: Redis) -> None:
    of_task = DeadLetterFilter(application=APPLICATION, task=JFK.digest)
    of_all = DeadLetterFilter(application=APPLICATION)
    selected = open_dead_letters(of_task, limit=10)
    assert [each.position for each in selected] == [3, 5, 9]
    assert {each.checkpoint for each in selected} == {JFK.checkpoint}
    oldest = open_dead_letters(of_all, limit=3)
    assert sorted(each.position or 0 for each in oldest) == [1, 2, 3]
    chosen = open_dead_letters(of_all, ids=[selected[1].id.hex], limit=10)
    assert chosen == [selected[1]]
    streams.send(redis, [redriven([3, 9]), held(1)])
    fold_stream.fold_stream(APPLICATION)
    assert open_dead_letters(of_task, limit=10) == [selected[1]]
    assert open_dead_letters(DeadLetterFilter(stage="produce"), limit=10) == []
    with pytest.raises(InvalidValue, match="id"):
        open_dead_letters(of_all, ids=["x"], limit=1)
