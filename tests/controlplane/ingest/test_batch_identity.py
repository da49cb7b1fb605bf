"""A batch is a repetition only if it has the events of the batch with its id in the log."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import models, store
from arrester.controlplane.actions import quarantine
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.ingest.batch_identity import REUSED
from arrester.domain.events import Event
from arrester.domain.identity import uuids
from arrester.domain.wire import codec
from arrester.domain.wire.counted_only import counted_only
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION

pytestmark = pytest.mark.usefixtures("fresh_database")

FORGED = [histories.failed(1), histories.failed(1)]
GENUINE = [histories.failed(2), histories.failed(3)]


def send(redis: Redis, batch: UUID, *deliveries: Sequence[Event] | bytes, together: bool) -> None:
    """Send a batch several times, folded together or one by one."""
    for each in deliveries:
        packed = each if isinstance(each, bytes) else codec.encode_batch(each)
        streams.put(redis, streams.fields(batch, packed))
        if not together:
            fold_stream.fold_stream(APPLICATION)
    fold_stream.fold_stream(APPLICATION)


def reasons() -> list[str]:
    return [each.reason for each in models.Quarantine.objects.order_by("id")]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("forged", [FORGED, [], GENUINE[:1], b"nonsense"])
def test_a_batch_with_the_id_of_another_is_quarantined_and_can_be_requeued(
    redis: Redis, forged: list[Event] | bytes, together: bool
) -> None:
    batch = uuid4()
    # The agent repeats the batch until it is confirmed.
    send(redis, batch, forged, GENUINE, GENUINE, together=together)

    assert reasons()[-1:] == [REUSED]
    assert reasons().count(REUSED) == 1
    assert streams.confirmed(redis) == {batch}
    quarantine.requeue(APPLICATION, actor="ana")
    events = [each for each in streams.events() if each.body is not None]
    assert events[-2:] == GENUINE


@pytest.mark.parametrize("together", [True, False])
def test_a_batch_that_is_repeated_in_another_form_counts_once(redis: Redis, together: bool) -> None:
    full = [*GENUINE, *histories.paused()]
    reduced = counted_only(full)
    without_bodies = [replace(each, body=None) for each in full]
    for first, *others in ((full, reduced, without_bodies), (reduced, full)):
        send(redis, uuid4(), first, *others, first, together=together)
    packed = codec.encode_batch(histories.started())
    repacked = codec.FORMAT + zlib.compress(zlib.decompress(packed[1:]), level=9)
    assert repacked != packed
    send(redis, uuid4(), packed, repacked, together=together)

    assert reasons() == []
    assert len(streams.log()) == len(full) + len(reduced) + len(histories.started())


def test_a_repeated_batch_that_is_too_old_or_invalid_is_quarantined_once(redis: Redis) -> None:
    old = uuids.uuid7(datetime.now(UTC) - timedelta(days=100))
    send(redis, old, GENUINE, GENUINE, together=False)
    send(redis, uuid4(), b"nonsense", b"nonsense", together=False)
    assert len(reasons()) == 2


def test_a_repeated_batch_whose_events_were_dropped_is_confirmed(redis: Redis) -> None:
    batch = uuid4()
    store.open_stream(APPLICATION)
    with streams.locked(APPLICATION) as stream:
        new = store.NewBatch(id=batch, events=GENUINE)
        store.record_batches(stream, [new], received_at=datetime.now(UTC))
    send(redis, batch, FORGED, together=False)
    assert reasons() == []
    assert streams.confirmed(redis) == {batch}
