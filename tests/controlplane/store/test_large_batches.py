"""Batches of the log that are larger than a read: read in portions, none is missed."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from redis import Redis

from arrester.controlplane import queries, store
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.queries import FailureFilter
from arrester.controlplane.store import batches
from arrester.domain.events import StoredEvent
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION

pytestmark = pytest.mark.usefixtures("fresh_database")
NUMBER = 5


@pytest.mark.parametrize("at_once", [1, 700, 2**20])
def test_large_batches_are_read_in_portions(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    ids = [uuid4() for _ in range(NUMBER)]
    sent = [[histories.failed(2 * each), histories.failed(2 * each + 1)] for each in range(NUMBER)]
    for id, events in zip(ids, sent, strict=True):
        streams.append(events, received_at=datetime.now(UTC))
        streams.send(redis, [histories.failed(100)], batch=id)
    fold_stream.fold_stream(APPLICATION)
    log = streams.log()
    monkeypatch.setattr(batches, "READ_BYTES", at_once)

    assert list(store.read(APPLICATION)) == log
    found = queries.failures(FailureFilter(application=APPLICATION)).rows
    assert {each.sequence for each in found} == {each.sequence for each in log}
    heads = dict(batches.heads_of_batches(APPLICATION, [*ids, uuid4()]))
    assert set(heads) == set(ids)
    followed: list[StoredEvent] = []
    cursor = None
    while (page := queries.feed(cursor=cursor)).events:
        followed += page.events
        cursor = page.next
    assert followed == log
