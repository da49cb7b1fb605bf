"""Large entries: read in smaller portions, or only in part and quarantined; others are folded."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from msgspec.structs import replace
from redis import Redis

from arrester.agents.transport.redis_client import AppendStatus, RedisClient
from arrester.agents.transport.spool import SpooledBatch
from arrester.controlplane import models, queries
from arrester.controlplane.celery import STREAM_FOLDS
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.management.commands import wake
from arrester.controlplane.outbound import backpressure
from arrester.controlplane.redis import event_streams, redis_client
from arrester.controlplane.redis.heartbeats import is_folded
from arrester.domain.events import Body
from arrester.domain.identity import redis_keys
from arrester.domain.wire import codec, limits
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("fresh_database")
STREAM = redis_keys.events(APPLICATION)


def send_several(redis: Redis, number: int) -> list[UUID]:
    """Send batches of one event each."""
    return [streams.send(redis, [histories.failed(position)]) for position in range(number)]


def at_once() -> list[int]:
    """Return the numbers of batches that had one transaction, largest first."""
    moments = Counter(models.BatchSeen.objects.values_list("received_at", flat=True))
    return sorted(moments.values(), reverse=True)


@pytest.mark.parametrize("limit", ["received", "unpacked"])
def test_a_transaction_takes_entries_up_to_a_number_of_bytes(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    send_several(redis, 5)
    ((_, fields), *_) = event_streams.decoded(event_streams.read(redis, STREAM, count=1))
    if limit == "received":
        size = sum(len(name) + len(value) for name, value in fields.items())
        monkeypatch.setattr(event_streams, "READ_BYTES", 2 * size + size // 2)
    else:
        heads = codec.inflated(codec.without_format(fields[b"events"]))[0]
        monkeypatch.setattr(fold_stream, "UNPACKED_PER_READ", len(heads) + 1)
    assert fold_stream.fold_stream(APPLICATION).events == 5
    assert at_once() == [2, 2, 1]
    streams.assert_exact()


def test_an_entry_that_is_larger_than_a_read_is_read_alone(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "READ_BYTES", 1)
    batches = send_several(redis, 3)
    assert fold_stream.fold_stream(APPLICATION).events == 3
    assert streams.confirmed(redis) == set(batches)


@pytest.mark.parametrize("form", ["batch", "foreign"])
def test_an_entry_that_is_too_large_is_quarantined_with_its_size(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(event_streams, "ENTRY_BYTES", 5_000)
    monkeypatch.setattr(event_streams, "CUT_BYTES", 100)
    batch = uuid4()
    fields = streams.fields(batch, os.urandom(10_000))
    if form == "foreign":
        foreign: dict[str, str | bytes] = {
            f"field {number:2}": b"x" * 1_000 for number in range(20)
        }
        fields = foreign | fields
    size = sum(len(name) + len(value) for name, value in fields.items())
    send_several(redis, 1)
    streams.put(redis, fields)
    send_several(redis, 1)

    assert fold_stream.fold_stream(APPLICATION).events == 2

    assert redis.xlen(STREAM) == 0
    (entry,) = queries.quarantine(APPLICATION).rows
    assert entry.cut_from == size
    assert f"{size:,} bytes" in entry.reason
    assert len(entry.raw) < 5_000
    # A sender whose batch is known can delete it.
    assert (batch in streams.confirmed(redis)) == (form == "batch")


def test_the_largest_entry_of_an_agent_is_read_whole_and_deleted(redis: Redis) -> None:
    batch = SpooledBatch(number=1, id=uuid4(), events=os.urandom(limits.PACKED_BYTES))
    url = str(settings.REDIS_URL)
    agent = RedisClient(url, application=APPLICATION, instance=uuid4())
    # A foreign entry, which is read whole too: all of its first field is sent back to Redis.
    streams.put(redis, {"x" * event_streams.ENTRY_BYTES: ""})
    status, ids = agent.append(streams.SPOOL, [batch], last=None)
    agent.close()

    assert status is AppendStatus.DONE
    read = event_streams.decoded(event_streams.read(redis, STREAM, begin=ids[0], count=1))
    assert read[0][1][b"events"] == batch.events
    fold_stream.fold_stream(APPLICATION, budget_seconds=PATIENCE_SECONDS)
    assert redis.xlen(STREAM) == 0


def test_an_entry_that_is_named_as_a_cut_one_is_deleted(redis: Redis) -> None:
    for value in ("7", "x", "99999999999999999999"):
        streams.put(redis, {"cut-from": value})
    fold_stream.fold_stream(APPLICATION)
    assert redis.xlen(STREAM) == 0
    assert len(queries.quarantine(APPLICATION).rows) == 3


def test_looking_at_a_stream_reads_no_entry(redis: Redis) -> None:
    assert event_streams.read_ends(redis, STREAM) == (0, None, None)
    assert event_streams.last_id(redis, STREAM) is None
    first, last = (
        str(redis.xadd(STREAM, {"events": b"x" * 10**6}), "ascii")  # type: ignore[arg-type]
        for _ in range(2)
    )
    sent = redis.info("stats")["total_net_output_bytes"]
    assert event_streams.read_ends(redis, STREAM) == (2, first, last)
    assert event_streams.last_id(redis, STREAM) == last
    (load,) = backpressure.loads([APPLICATION])
    assert not isinstance(load, redis_client.ResponseError)
    assert (load.waiting, load.oldest, load.newest) == (2, first, last)
    assert is_folded(APPLICATION, now=datetime.now(UTC))
    assert redis.info("stats")["total_net_output_bytes"] - sent < 100_000


def test_wake_reads_no_entry(redis: Redis) -> None:
    streams.send(redis, [histories.failed(1)])
    waker = wake.Waker()
    waker.poll()
    redis.delete(redis_keys.pending_fold(APPLICATION), STREAM_FOLDS)
    sent = redis.info("stats")["total_net_output_bytes"]
    streams.put(redis, {"events": b"x" * 10**6})
    waker.next_sweep = float("inf")
    waker.poll()
    assert redis.llen(STREAM_FOLDS) == 1
    assert redis.info("stats")["total_net_output_bytes"] - sent < 100_000


def test_a_large_body_is_folded_and_its_page_has_the_reason(redis: Redis) -> None:
    large = Body(stack="x" * 300_000)
    streams.send(redis, [replace(histories.failed(1), body=large), histories.failed(2)])
    assert fold_stream.fold_stream(APPLICATION).events == 2
    first, second = streams.events()
    assert first.body is not None
    assert first.body.unreadable == "it has 300,012 bytes; at most 262,144 are read"
    assert second == histories.failed(2)


def test_a_fold_reads_an_entry_once(redis: Redis) -> None:
    """Not for the last id of its stream: the entries that were read have newer ones."""
    for position in (1, 2):
        streams.send(redis, [histories.failed(position)])
        redis.config_resetstat()
        assert fold_stream.fold_stream(APPLICATION).events == 1
    assert "cmdstat_xinfo|stream" not in redis.info("commandstats")
