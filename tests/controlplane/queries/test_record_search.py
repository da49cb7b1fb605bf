"""Failed records are found by key, position, the value of a field, and words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from arrester.controlplane import models, queries, store
from arrester.controlplane.history import retention
from arrester.controlplane.queries import FoundRecords, RecordFilter, RecordOutcome
from arrester.controlplane.queries.failure_history import (
    record_history,
    record_outcomes,
    record_search,
)
from arrester.controlplane.store import batches
from arrester.controlplane.store.record_index import (
    blocks,
    candidates,
    filters,
    groups,
    read_blocks,
)
from arrester.controlplane.store.record_index.terms import RecordQuery, fields_of, terms_of
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    Body,
    Event,
    FinalResponse,
    RecordFailed,
    ResumeHow,
    TaskPaused,
    TaskResumed,
)
from arrester.domain.wire import bodies
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def failed(position: int, record: dict[str, Any] | None = None, **values: Any) -> Event:
    """Return a failed record with these fields."""
    key, message = values.pop("key", None), values.pop("message", "no delay")
    data = RecordFailed(
        task="JFK",
        position=position,
        failure=replace(FAILURE, message=message),
        response=values.pop("response", FinalResponse.CONTINUE),
        key=key,
    )
    body = Body(record=record, **values) if record is not None else None
    return histories.event(data, minute=position % 60, body=body)


def append(
    *events: Event, minute: int = 0, application: str = APPLICATION, indexed: bool = True
) -> None:
    received_at = NOON + timedelta(minutes=minute)
    streams.append(events, received_at=received_at, application=application)
    if indexed:
        index(application)


def index(application: str = APPLICATION) -> None:
    while store.index_records(store.read_stream(application)):
        pass


def find(q: str, **wanted: Any) -> FoundRecords:
    page = {name: wanted.pop(name) for name in ("cursor", "limit") if name in wanted}
    return queries.find_records(RecordFilter(q=q, **wanted), **page)


def positions(q: str, **wanted: Any) -> list[int | None]:
    return [position_of(each) for each in find(q, **wanted).rows]


def position_of(found: queries.FoundRecord) -> int | None:
    data = found.failure.event.data
    assert isinstance(data, RecordFailed)
    return data.position


RECORDS: Sequence[Event] = (
    failed(1, {"invoice": "INV-001-0017", "dep_delay": 12}, key="B6 1"),
    failed(2, {"invoice": "INV-001-0018", "note": "Crew was LATE, twice", "paid": True}),
    failed(3, {"value": json.dumps({"order": {"id": "A-7", "items": [{"sku": "x1"}]}})}),
    failed(4, {"order": {"id": "A-7"}, "nothing": None}, message="left 1,301 minutes late"),
    failed(5, {"order no": 7, '2nd "name"': "a b", "place": "CAFE\u0301 Nord"}),
)


@pytest.mark.parametrize(
    ("q", "found"),
    [
        ("invoice:INV-001-0017", [1]),
        ("INV-001-0017", [1]),
        ("inv-001", [2, 1]),
        # A word is found as a whole.
        ("INV-001-001", []),
        ("invoice:inv-001-0017", []),
        ("invoice:INV-001", []),
        ('key:"B6 1"', [1]),
        ("position:4", [4]),
        ("task:JFK position:5", [5]),
        ("late", [4, 2]),
        ('"crew was late"', [2]),
        ('"late crew"', []),
        ("late crew", [2]),
        ("paid:true", [2]),
        ("dep_delay:12", [1]),
        ("id:A-7", [4, 3]),
        ("order.id:A-7", [4, 3]),
        ("value.order.id:A-7", [3]),
        ("sku:x1", [3]),
        ("nothing:null", []),
        ('message:"left 1,301 minutes late"', [4]),
        ('"1,301 minutes"', [4]),
        ("invoice:INV-001-0018 late", [2]),
        ('"order no":7', [5]),
        ('"2nd \\"name\\"":"a b"', [5]),
        ("Café", [5]),
        ("cafe\u0301", [5]),
        ("invoice:INV-001-0017 late", []),
    ],
)
@pytest.mark.parametrize("indexed", [True, False])
def test_records_are_found_by_fields_and_words(q: str, found: list[int], indexed: bool) -> None:
    append(*RECORDS, indexed=indexed)
    assert positions(q) == found


def test_the_matching_fields_are_named() -> None:
    append(*RECORDS)
    assert find("id:A-7 x1").rows[0].matches == ("value.order.id", "value", "value.order.items.sku")
    assert find("late").rows[0].matches == ("message",)


@pytest.mark.parametrize("q", ["", "  ", '""', "—", "x" * 501])
def test_a_query_without_a_word_or_too_long_is_refused(q: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        find(q)
    assert caught.value.name == "q"


def test_each_match_is_found_once_over_pages_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a search through all records, with small blocks and few of them in a page."""
    monkeypatch.setattr(blocks, "TERMS_PER_BLOCK", 12)
    monkeypatch.setattr(groups, "SIZE", 8)
    monkeypatch.setattr(candidates, "_NEWEST", 1)
    monkeypatch.setattr(read_blocks, "_BLOCKS", 3)
    monkeypatch.setattr(record_search, "_BLOCKS", 4)
    random = Random(7)
    for minute in range(30):
        for application in (APPLICATION, "billing"):
            some = [
                failed(minute * 10 + n, {"n": random.randrange(3), "x": random.randrange(500)})
                for n in range(random.randrange(1, 4))
            ]
            append(*some, minute=minute, application=application, indexed=random.random() < 0.5)
    assert models.RecordBlock.objects.filter(closed=False).count() <= 2
    assert models.RecordGroup.objects.count() > 2
    assert models.RecordBlock.objects.count() < 2 * 8

    everything = [
        each
        for application in (APPLICATION, "billing")
        for each in store.read_failed_records(application, after=0, until=10**6, most=10**6)[0]
    ]
    for q in ("n:1", "n:2 x:7", "2", "task:JFK", "x:499"):
        query = RecordQuery.parse(q)
        expected = [
            (each.received_at, each.application, each.sequence)
            for each in everything
            if query.matched(fields_of(each.event.data, each.event.body)) is not None  # type: ignore[arg-type]
        ]
        found, cursor = [], None
        for _ in range(200):
            page = find(q, limit=5, cursor=cursor)
            found += [
                (each.failure.received_at, each.failure.application, each.failure.sequence)
                for each in page.rows
            ]
            cursor = page.next
            if cursor is None:
                break
        assert sorted(found) == sorted(expected)
        assert [each[0] for each in found] == sorted((each[0] for each in found), reverse=True)


@pytest.mark.parametrize("read_bytes", [batches.READ_BYTES, 1])
def test_words_and_keys_of_failures_are_found_once_over_full_pages(
    monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    """In batches as columns and as single events, indexed and not; some blocks are large."""
    monkeypatch.setattr(blocks, "TERMS_PER_BLOCK", 12)
    monkeypatch.setattr(read_blocks, "_BLOCKS", 3)
    monkeypatch.setattr(read_blocks, "READ_BYTES", read_bytes)
    monkeypatch.setattr(batches, "READ_BYTES", read_bytes)
    monkeypatch.setattr(record_search, "_TAIL", 20)
    random, position = Random(7), 0
    expected: dict[tuple[str | None, str | None], list[int]] = {}
    for minute in range(20):
        some = []
        for _ in range(random.randrange(1, 9)):
            words, key = f"Left {random.randrange(3)} min. late", f"B6 {random.randrange(3)}"
            # The words are also in the record, which no text finds.
            some.append(failed(position, {"x": f"left {position % 3} min"}, message=words, key=key))
            text = words.lower().removesuffix(". late")
            causes: tuple[tuple[str | None, str | None], ...]
            causes = ((text, None), (None, key), (text, key))
            for found_by in causes:
                expected.setdefault(found_by, []).insert(0, position)
            position += 1
        append(*some, minute=minute, indexed=minute < 18)
    assert len(expected) == 3 + 3 + 9
    for (words_of, record_key), wanted in expected.items():
        for until in (None, NOON + timedelta(minutes=30)):
            filter = queries.FailureFilter(text=words_of, record_key=record_key, until=until)
            found: list[int | None] = []
            cursor = None
            for _ in range(200):
                page = queries.failures(filter, limit=4, cursor=cursor)
                for each in page.rows:
                    assert isinstance(each.event.data, RecordFailed)
                    assert each.event.body is None
                    found.append(each.event.data.position)
                cursor = page.next
                if cursor is None:
                    break
                assert len(page.rows) == 4
            assert found == [each for each in wanted if until is None or (each % 60) < 30], (
                words_of,
                record_key,
            )


def test_a_filter_has_all_bits_of_its_terms_and_few_of_others() -> None:
    append(*(failed(n, {"id": f"{n:08x}"}) for n in range(400)))
    whole = models.RecordBlock.objects.count()
    assert whole == -(-400 * 4 // blocks.TERMS_PER_BLOCK) or whole <= 3
    streams_of = [store.read_stream(APPLICATION).id]
    for n in range(0, 400, 40):
        terms = terms_of([("id", f"{n:08x}")])
        found = list(store.candidate_blocks(streams_of, terms, before=None, most=10))
        assert any(each.first <= n + 1 <= each.last for each in found)
    missing = sum(
        len(list(store.candidate_blocks(streams_of, {f"missing{n}"}, before=None, most=10)))
        for n in range(200)
    )
    assert missing <= 5


def test_a_record_with_more_terms_than_a_block_is_found() -> None:
    append(failed(1, {"text": " ".join(f"w{n}" for n in range(3_000))}), failed(2, {"a": "b"}))
    assert positions("w0 w2999") == [1]
    assert positions("a:b") == [2]


def test_only_the_newest_events_that_are_not_indexed_are_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_search, "_TAIL", 3)
    append(*(failed(n, {"a": "b"}) for n in range(8)), indexed=False)
    page = find("a:b")
    assert [position_of(each) for each in page.rows] == [7, 6, 5]
    assert page.not_indexed == {APPLICATION: 5}
    index()
    assert positions("a:b") == [7, 6, 5, 4, 3, 2, 1, 0]
    assert find("a:b").not_indexed == {}


def test_blocks_are_dropped_with_their_events() -> None:
    streams.append_late(5)
    index()
    before = models.RecordBlock.objects.count()
    retention.retain(days=30, replay_days=30)
    assert 0 < models.RecordBlock.objects.count() <= before
    assert len(find("task:JFK").rows) == 5


def test_an_application_filters() -> None:
    append(failed(1, {"a": "b"}))
    append(failed(2, {"a": "b"}), application="billing")
    assert positions("a:b") == [2, 1]
    assert positions("a:b", application="billing") == [2]


def test_an_interrupted_run_of_the_index_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    append(*RECORDS[:2])
    streams.append(RECORDS[2:], received_at=NOON)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(blocks, "_insert", killed)
        with pytest.raises(KeyboardInterrupt):
            index()
    assert positions("id:A-7") == [4, 3]
    index()
    assert positions("id:A-7") == [4, 3]
    assert positions("late") == [4, 2]


def event_of_pause(position: int) -> Event:
    return histories.event(TaskPaused(task="JFK", position=position, failure=FAILURE))


def test_what_became_of_a_record() -> None:
    def outcome(position: int) -> RecordOutcome:
        return find(f"position:{position}").rows[0].outcome

    append(*histories.started(), failed(1), failed(2), histories.dead_lettered([2]))
    assert (outcome(1), outcome(2)) == (RecordOutcome.SKIPPED, RecordOutcome.DEAD_LETTER)
    append(histories.redriven([2]))
    assert outcome(2) is RecordOutcome.REDRIVEN

    paused = event_of_pause(7)
    append(failed(7, response=FinalResponse.PAUSE), paused, histories.held(3))
    append(failed(8, response=FinalResponse.PAUSE))
    assert (outcome(7), outcome(8)) == (RecordOutcome.STOPS_TASK, RecordOutcome.HELD)
    skip = TaskResumed(task="JFK", how=ResumeHow.SKIP, position=7, actor="ada")
    append(histories.event(skip), histories.held(0))
    assert outcome(7) is RecordOutcome.SKIPPED

    append(failed(9, response=FinalResponse.PAUSE))
    assert outcome(9) is RecordOutcome.UNKNOWN
    append(event_of_pause(9))
    retry = TaskResumed(task="JFK", how=ResumeHow.RETRY, position=9, actor="ada")
    append(histories.event(retry), histories.held(0))
    assert outcome(9) is RecordOutcome.PROCESSED


def test_a_position_also_finds_dead_letters_whose_records_were_only_counted() -> None:
    append(*histories.started(), failed(3), histories.dead_lettered([3, 4, 5]))

    def found(q: str, **wanted: str) -> list[int | None]:
        return [each.position for each in find(q, **wanted).dead_letters]

    assert found("position:4") == [4]
    assert found("position:4 task:JFK", application=APPLICATION) == [4]
    # Its record was reported in full.
    assert (found("position:3"), positions("position:3")) == ([], [3])
    for q in (
        "position:6",
        "position:4 task:EWR",
        "position:4 late",
        "position:x",
        "4",
        "id:4",
        "position:٤",
        "position:3 position:4",
    ):
        assert found(q) == []
    assert found("position:4", application="billing") == []
    assert found(f"position:{10**30}") == []


def test_a_log_of_many_batches_in_one_open_block_is_indexed() -> None:
    """Each run reads new events, also if the open block begins long before them."""
    append(failed(1, {"a": "b"}))
    for _ in range(3 * 2):
        streams.append([histories.held(0)], received_at=NOON)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_BATCHES", 3)
        stream = store.read_stream(APPLICATION)
        runs = [store.index_records(stream) for _ in range(6)]
    assert runs[-1] is False
    assert store.indexed_positions([stream.id]) == {stream.id: stream.sequence}
    assert positions("a:b") == [1]


def test_a_dropped_log_counts_as_indexed() -> None:
    old = datetime.now(UTC) - timedelta(days=40)
    store.ensure_partitions(old.date(), days=1)
    streams.append(RECORDS, received_at=old)
    retention.retain(days=30, replay_days=30)
    stream = store.read_stream(APPLICATION)
    assert store.read_failed_records(APPLICATION, after=0, until=stream.sequence, most=9)[0] == []
    assert find("task:JFK").rows == ()
    assert store.index_records(stream) is False
    assert store.indexed_positions([stream.id]) == {stream.id: stream.sequence}


def test_two_open_blocks_are_both_indexed_again() -> None:
    append(failed(1, {"a": "b"}))
    models.RecordBlock.objects.update(closed=True)
    append(failed(2, {"a": "b"}))
    models.RecordBlock.objects.update(closed=False)
    append(failed(3, {"a": "b"}))
    assert positions("a:b") == [3, 2, 1]


def test_large_records_that_are_not_indexed_are_all_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "READ_BYTES", 1)
    for position in range(3):
        append(failed(position, {"a": "b"}), indexed=False)
    assert positions("a:b") == [2, 1, 0]


HOSTILE_RECORDS: Sequence[dict[str, Any]] = (
    {"value": "[" * 980 + "1" + "]" * 980},
    {"value": '{"a":' * 500 + json.dumps("[" * 400 + "]" * 400) + "}" * 500},
    {"value": "[" * 100_000},
    {"." * 100_000: "x"},
    {"value": json.dumps({"a" * 100_000: {str(n): n for n in range(10_000)}})},
    {"value": '{"n":1,"n":2,"big":' + "9" * 4_000 + ',"e":1e308}'},
    {"": "", "key": {"position": {"message": None}}, "a.b": {"": "\0 \u202e é"}},
    {"n": float("inf"), "raw": b"\xff", "surrogate": '"\\ud800"'},
)


@pytest.mark.parametrize("record", HOSTILE_RECORDS)
def test_a_hostile_record_neither_stops_the_index_nor_fills_memory(record: dict[str, Any]) -> None:
    fields = fields_of(failed(1).data, Body(record=record))  # type: ignore[arg-type]
    assert sum(len(path) for path, _ in fields) < 2**24
    assert sum(map(len, terms_of(fields))) < 2**24
    append(failed(1, record), failed(2, {"a": "b"}))
    assert positions("a:b") == [2]
    assert positions("task:JFK") == [2, 1]


def test_fields_of_nested_json_are_found_at_any_depth() -> None:
    append(failed(1, {"value": '{"a":' * 600 + "7" + "}" * 600}))
    assert positions("a:7") == positions("a.a.a:7") == [1]


@pytest.mark.parametrize(
    "q",
    ["a:\0", "\ud800x", "'", "%s", "\\", '"\\', "a:",
     "a:b:c", ":", "::", "https://example.com/a?b=c%20d", "\u202eabc", "é", "e\u0301", "position:٤",
     "position:-1", "position:1e3", f"position:{'9' * 480}", "x " * 250, '"' * 499],
)  # fmt: skip
def test_no_query_fails_other_than_by_a_refusal(q: str) -> None:
    append(*RECORDS)
    try:
        find(q)
    except InvalidValue as exc:
        assert exc.name == "q"  # also a result is right


def test_a_skip_leaves_out_only_the_record_that_stopped_the_task() -> None:
    append(*histories.started(), failed(7, response=FinalResponse.PAUSE))
    append(failed(8, response=FinalResponse.PAUSE), event_of_pause(7))
    skip = TaskResumed(task="JFK", how=ResumeHow.SKIP, position=7, actor="ada")
    append(histories.event(skip), histories.held(0))
    found = [find(f"position:{each}").rows[0].outcome for each in (7, 8)]
    assert found == [RecordOutcome.SKIPPED, RecordOutcome.PROCESSED]


def test_changes_long_after_a_failure_are_not_taken_for_its_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_outcomes, "_CHANGES", 3)
    append(*histories.started())
    for position, how in ((7, ResumeHow.SKIP), (8, ResumeHow.RETRY), (9, ResumeHow.SKIP)):
        append(failed(position, response=FinalResponse.PAUSE), event_of_pause(position))
        resumed = TaskResumed(task="JFK", how=how, position=position, actor="ada")
        append(histories.event(resumed), histories.held(0))
    found = [find(f"position:{each}").rows[0].outcome for each in (7, 9)]
    assert found == [RecordOutcome.UNKNOWN, RecordOutcome.SKIPPED]


def test_the_history_of_a_record_is_not_hidden_by_other_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_history, "_FAILURES", 3)
    key = 'J "F\\K:'
    first = failed(7)
    own = [replace(first, data=replace(first.data, task=key)) for _ in range(2)]
    append(*own, *(failed(7) for _ in range(9)))
    history = queries.record_history(APPLICATION, 1)
    assert [each.sequence for each in history.events] == [2, 1]


def test_the_history_of_a_record_of_a_task_with_a_long_key() -> None:
    first = failed(7)
    append(replace(first, data=replace(first.data, task="x" * 600)))
    assert [each.sequence for each in queries.record_history(APPLICATION, 1).events] == [1]


def test_a_url_is_found_by_its_words() -> None:
    append(failed(1, {"link": "see https://example.com/a?b=7"}), failed(2, {"link": "//x"}))
    assert positions("https://example.com/a?b=7") == [1]
    assert positions('link:"//x"') == [2]


def test_a_record_that_failed_again_has_one_outcome() -> None:
    append(*histories.started())
    for how in (ResumeHow.RETRY, ResumeHow.SKIP):
        append(failed(7, response=FinalResponse.PAUSE), event_of_pause(7))
        append(histories.event(TaskResumed(task="JFK", how=how, position=7, actor="ada")))
    assert [each.outcome for each in find("position:7").rows] == [RecordOutcome.SKIPPED] * 2


def test_a_table_of_bits_is_transposed() -> None:
    random = Random(3)
    rows = [random.randbytes(5) for _ in range(16)]
    columns = filters.transposed(rows)
    assert [len(each) for each in columns] == [2] * 40
    for row, column in ((0, 0), (3, 7), (15, 39), (9, 21)):
        bit = rows[row][column // 8] >> column % 8 & 1
        assert columns[column][row // 8] >> row % 8 & 1 == bit
    assert filters.transposed(columns) == rows


def test_an_erased_record_of_a_group_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "TERMS_PER_BLOCK", 12)
    monkeypatch.setattr(groups, "SIZE", 8)
    append(*(failed(n, {"invoice": f"INV-{n}"}) for n in range(30)))
    stream = store.read_stream(APPLICATION)
    before = models.RecordGroup.objects.count()
    assert before
    found = find("invoice:INV-4").rows[0].failure
    with monkeypatch.context() as patch:
        patch.setattr(bodies, "_body", lambda _: None)
        store.index_again(stream, found.sequence)
    assert models.RecordGroup.objects.count() == before - 1
    streams_of, terms = [stream.id], RecordQuery.parse("invoice:INV-4").terms()
    assert list(store.candidate_blocks(streams_of, terms, before=None, most=9)) == []
    index()
    assert models.RecordGroup.objects.count() == before
    assert positions("invoice:INV-29") == [29]
