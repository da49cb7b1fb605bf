"""Failed records received as columns: folded, stored and read like single events."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, models, queries, store
from arrester.controlplane.history import state_at_position
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.store.stream_entry import DecodedEntry
from arrester.domain.events import Event, FailuresCounted, FinalResponse, RecordFailed
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from arrester.domain.state.states import GroupStatus
from arrester.domain.state.stream_state import empty
from arrester.domain.wire import codec
from arrester.domain.wire.failure_columns import FailedRecords, to_columns
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE

pytestmark = pytest.mark.usefixtures("fresh_database")


def many(first: int, *, keys: str = "ABA") -> list[Event]:
    """Return six failed records of some tasks, not in the order of their times."""
    order = [first + each for each in (5, 0, 1, 4, 2, 3)]
    found = [histories.failed(each, key=keys[each % len(keys)]) for each in order]
    heads = [replace(event, body=None) for event in found]
    assert [type(each) for each in to_columns(heads)] == [FailedRecords]
    return found


@pytest.fixture
def sent(redis: Redis) -> list[Event]:
    """Send five batches, columns between events that depend on the order; return the events."""
    counted = FailuresCounted(
        task="A",
        failure=FAILURE,
        response=FinalResponse.CONTINUE,
        count=3,
        first_position=1,
        last_position=9,
    )
    batches = [
        [*histories.started(), *many(0), histories.event(counted), *many(10)],
        [*many(20), *histories.paused(30, key="A"), *many(40)],
        many(50),
        [*many(60), histories.event(counted)],
        [histories.failed(70), *many(80, keys="C")],
    ]
    for number, events in enumerate(batches):
        streams.send(redis, events)
        if number == 2:
            fold_stream.fold_stream(APPLICATION)
            requested = GroupRequest(
                id=uuid4(), act=GroupAct.RESOLVE, fingerprint=FAILURE.fingerprint, actor="ana"
            )
            actions.act_on_group(APPLICATION, requested)
    fold_stream.fold_stream(APPLICATION)
    return [event for events in batches for event in events]


def test_the_log_has_the_sent_events_and_the_views_their_fold(sent: list[Event]) -> None:
    assert [event for event in streams.events() if event.type != "ErrorGroupResolved"] == sent
    streams.assert_exact()
    group = queries.group(APPLICATION, FAILURE.fingerprint).state
    assert (group.status, group.recurred) == (GroupStatus.UNRESOLVED, True)


def test_a_past_state_can_end_within_columns(sent: list[Event]) -> None:
    log = streams.log()
    for position in range(len(log) + 1):
        assert state_at_position.at(APPLICATION, position) == empty(APPLICATION).fold(
            log[:position]
        )


@pytest.mark.parametrize("at_once", [store.log.EVENTS_PER_READ, 7])
def test_any_range_of_the_log_can_be_read(
    sent: list[Event], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = streams.log()
    monkeypatch.setattr(store.log, "EVENTS_PER_READ", at_once)
    assert len(log) == len(sent) + 1
    for after in range(0, len(log), 3):
        for until in range(after, len(log) + 1, 4):
            assert list(store.read(APPLICATION, after=after, until=until)) == log[after:until]


def test_columns_that_an_older_server_quarantined_are_requeued(redis: Redis) -> None:
    events = [*many(0), histories.failed(6), *histories.paused(7)]
    batch = uuid4()
    # It cannot inflate them, so it kept the entry as it came.
    fields = {
        name.encode(): value if isinstance(value, bytes) else value.encode()
        for name, value in streams.fields(batch, codec.encode_batch(events)).items()
    }
    refused = DecodedEntry(application=APPLICATION, id="1-0", fields=fields, batch=batch).refused(
        "old"
    )
    store.open_stream(APPLICATION)
    store.add_to_quarantine(refused.quarantined, received_at=datetime.now(UTC))

    assert actions.requeue(APPLICATION, actor="ana") == actions.Requeued(requeued=1, invalid=0)
    assert streams.events()[: len(events)] == events
    streams.assert_exact()


def test_a_transaction_takes_entries_up_to_its_limit(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_stream, "EVENTS_PER_READ", 10)
    sent = [many(10 * each) for each in range(5)]
    for events in sent:
        streams.send(redis, events)
    fold_stream.fold_stream(APPLICATION)
    assert streams.events() == [event for events in sent for event in events]
    moments = Counter(models.BatchSeen.objects.values_list("received_at", flat=True))
    assert max(moments.values()) == 2


def test_an_invalid_event_among_columns_is_quarantined(redis: Redis) -> None:
    good = many(0)
    data = good[2].data
    assert isinstance(data, RecordFailed)
    other = replace(data, failure=replace(data.failure, fingerprint="no token"))
    strange = [*good[:2], replace(good[2], data=other), *good[3:]]
    streams.put(redis, streams.fields(uuid4(), codec.encode_batch(strange)))
    fold_stream.fold_stream(APPLICATION)
    assert streams.events() == [*good[:2], *good[3:]]
    assert queries.lag(APPLICATION).quarantined == 1
    streams.assert_exact()
