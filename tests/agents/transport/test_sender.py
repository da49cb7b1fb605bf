from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from arrester.agents.config import AgentConfig
from arrester.agents.transport.connection import Connection
from arrester.agents.transport.redis_client import AppendStatus, RedisClient
from arrester.agents.transport.sender import Sender
from arrester.agents.transport.spool import Spool
from arrester.domain.errors import RedisUnavailable
from arrester.domain.identity import redis_keys
from arrester.domain.wire import append_script
from tests.agents.pipeline_bench import levels_of
from tests.agents.redis_server import FoldingSide, Server
from tests.agents.sample_events import INSTANCE, batch_id, failed, paused, some_events
from tests.patience import PATIENCE_SECONDS, wait_until

GIB = 2**30
EVENTS = redis_keys.events("flights")


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool.sqlite", id=UUID(int=1), limit_bytes=GIB)
    yield spool
    spool.close()


@contextmanager
def connected(server: Server, **limits: int) -> Iterator[RedisClient]:
    url, application = server.url, "flights"
    transport = RedisClient(url, application=application, instance=INSTANCE, keys=None, **limits)
    yield transport
    transport.close()


@contextmanager
def sending(spool: Spool, server: Server, **limits: int) -> Iterator[Sender]:
    with connected(server, **limits) as transport:
        sender = Sender(spool, transport, heartbeat=lambda: b"alive")
        sender.start()
        yield sender
        sender.stop(flush_seconds=1)


def put(spool: Spool, numbers: range) -> None:
    for number in numbers:
        spool.put(batch_id(number), some_events(number))


def batches(folding: FoldingSide) -> list[int]:
    return [entry.batch.int - 1 for entry in folding.entries()]


def folded(folding: FoldingSide) -> list[int]:
    return [entry.batch.int - 1 for entry in folding.folded]


def all_sent(spool: Spool) -> bool:
    return not spool.unsent(most=1, most_bytes=1)


def looked_again(server: Server) -> None:
    """Wait until the sender has appended twice more."""

    def tries() -> int:
        return int(server.client.info("commandstats")["cmdstat_evalsha"]["calls"])

    before = tries()
    wait_until(lambda: tries() >= before + 2)


def test_batches_arrive_in_order_and_unchanged(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    put(spool, range(100))
    with sending(spool, redis_server):
        put(spool, range(100, 200))
        wait_until(lambda: len(folding.entries()) == 200)
    assert batches(folding) == list(range(200))
    assert folding.entries()[7].events == some_events(7)
    assert {entry.spool for entry in folding.entries()} == {spool.id}


def test_a_put_wakes_the_sender(
    spool: Spool, redis_server: Server, folding: FoldingSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Until its next heartbeat it has nothing else to do.
    heartbeat_seconds = "arrester.agents.transport.sender.HEARTBEAT_SECONDS"
    monkeypatch.setattr(heartbeat_seconds, 2 * PATIENCE_SECONDS)
    with sending(spool, redis_server) as sender:
        wait_until(lambda: sender.reachable)
        put(spool, range(1))
        wait_until(folding.entries)


def test_confirmed_batches_are_deleted_from_the_spool_and_then_from_redis(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    with sending(spool, redis_server) as sender:
        put(spool, range(10))
        wait_until(lambda: len(folding.entries()) == 10)
        assert spool.events == 20
        folding.confirm()
        wait_until(lambda: spool.events == 0)
        wait_until(
            lambda: not redis_server.client.exists(redis_keys.confirmed("flights", spool.id))
        )
        wait_until(lambda: sender.confirmed == 10)
    assert all(spool.is_confirmed(batch_id(number)) for number in range(10))


def test_flushall_sends_again_in_order(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    with sending(spool, redis_server) as sender:
        put(spool, range(20))
        wait_until(lambda: all_sent(spool))
        redis_server.client.flushall()
        put(spool, range(20, 25))
        wait_until(lambda: len(folding.entries()) == 25)
        assert sender.lost == 20
    assert batches(folding) == list(range(25))


def test_an_emptied_redis_is_detected_at_the_heartbeat(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    with sending(spool, redis_server) as sender:
        put(spool, range(3))
        wait_until(lambda: all_sent(spool))
        redis_server.client.flushall()
        sender._next_beat = 0
        spool.wake.set()
        wait_until(lambda: batches(folding) == [0, 1, 2])


def test_lost_entries_are_detected_before_the_next_append(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    keys = [EVENTS, redis_keys.sent("flights", spool.id)]
    with sending(spool, redis_server):
        put(spool, range(4))
        wait_until(lambda: all_sent(spool))
        # What Redis has if it loses the last entry.
        kept = [redis_server.client.dump(key) for key in keys]
        put(spool, range(4, 5))
        wait_until(lambda: all_sent(spool))
        for key, value in zip(keys, kept, strict=True):
            assert value is not None
            redis_server.client.restore(key, 0, value, replace=True)
        put(spool, range(5, 7))
        wait_until(lambda: len(folding.entries()) == 4 + 7)
        folding.confirm()
        wait_until(lambda: spool.events == 0)
    assert folded(folding) == list(range(7))


def test_a_deleted_stream_is_sent_again(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    with sending(spool, redis_server):
        put(spool, range(5))
        wait_until(lambda: all_sent(spool))
        redis_server.client.delete(EVENTS)
        put(spool, range(5, 7))
        wait_until(lambda: batches(folding) == list(range(7)))


def test_batches_of_a_call_without_an_answer_are_not_lost(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    put(spool, range(6))
    first, *others = spool.unsent(most=10, most_bytes=GIB)
    with connected(redis_server) as transport:
        transport.append(spool.id, [first], last=None)
        # The sender has no answer of this call, and repeats it.
        transport.append(spool.id, others[:3], last=None)
        status, entries = transport.append(spool.id, others, last=first.id)
    assert (status, len(entries)) == (AppendStatus.DONE, 5)
    folding.take()
    assert folded(folding) == list(range(6))


def test_a_call_of_too_many_batches_is_refused(spool: Spool, redis_server: Server) -> None:
    put(spool, range(append_script.MOST_BATCHES + 1))
    unsent = spool.unsent(most=10**6, most_bytes=GIB)
    with connected(redis_server) as transport:
        with pytest.raises(RedisUnavailable, match="more than 1000 batches"):
            transport.append(spool.id, unsent, last=None)
        status, entries = transport.append(spool.id, unsent[:-1], last=None)
    assert (status, len(entries)) == (AppendStatus.DONE, append_script.MOST_BATCHES)


def test_batches_confirmed_during_an_absence_are_not_sent_again(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    with sending(spool, redis_server):
        put(spool, range(5))
        wait_until(lambda: all_sent(spool))
    folding.confirm()
    with sending(spool, redis_server) as sender:
        put(spool, range(5, 6))
        wait_until(lambda: batches(folding) == [5])
        assert sender.lost == 0


def test_a_lost_confirmation_leads_to_duplicates_only(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    with sending(spool, redis_server):
        put(spool, range(5))
        wait_until(lambda: all_sent(spool))
    folding.confirm()
    redis_server.client.flushall()
    with sending(spool, redis_server):
        put(spool, range(5, 6))
        wait_until(lambda: batches(folding) == [0, 1, 2, 3, 4, 5])
        folding.confirm()
        wait_until(lambda: spool.events == 0)
    assert folded(folding) == list(range(6))


def test_an_outage_of_redis_delays_and_loses_nothing(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    with sending(spool, redis_server) as sender:
        put(spool, range(10))
        wait_until(lambda: all_sent(spool))
        redis_server.stop()
        # A put that waited for Redis would not return: it is started below.
        put(spool, range(10, 210))
        wait_until(lambda: sender.reachable is False)
        redis_server.start()
        wait_until(lambda: len(folding.entries()) == 210)
        assert sender.internal_errors == 0
    assert batches(folding) == list(range(210))


def test_a_sender_may_start_without_redis(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    redis_server.stop()
    with sending(spool, redis_server) as sender:
        put(spool, range(3))
        wait_until(lambda: sender.reachable is False)
        redis_server.start()
        wait_until(lambda: batches(folding) == [0, 1, 2])


def test_a_full_stream_makes_the_sender_wait(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    put(spool, range(10))
    with sending(spool, redis_server, stream_limit=4):
        wait_until(lambda: len(folding.entries()) == 4)
        looked_again(redis_server)
        assert batches(folding) == [0, 1, 2, 3]
        folding.confirm()
        wait_until(lambda: len(folding.entries()) == 4)
        folding.confirm()
        wait_until(lambda: len(folding.entries()) == 2)
        folding.confirm()
        wait_until(lambda: spool.events == 0)
    assert folded(folding) == list(range(10))


def test_a_stream_that_takes_too_much_memory_makes_the_sender_wait(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    def confirmed() -> bool:
        folding.confirm()
        return spool.events == 0

    for number in range(10):
        # It cannot be compressed, so its size in Redis is its own size.
        spool.put(batch_id(number), [failed(number, message=os.urandom(10_000).hex())])
    with sending(spool, redis_server, stream_bytes=50_000):
        wait_until(lambda: len(folding.entries()) > 0)
        looked_again(redis_server)
        assert (redis_server.client.memory_usage(EVENTS) or 0) < 100_000
        assert len(folding.entries()) < 5
        wait_until(confirmed)
    assert folded(folding) == list(range(10))


def test_agents_leave_memory_in_redis_for_the_broker(
    spool: Spool, redis_server: Server, folding: FoldingSide, caplog: pytest.LogCaptureFixture
) -> None:
    # Compared with this, what earlier tests free meanwhile is nothing.
    redis_server.client.setrange("ballast", 2**25, b"x")
    used = int(redis_server.client.info("memory")["used_memory"])
    redis_server.client.set(redis_keys.memory_limit("flights"), used * 15 // 16)
    put(spool, range(10))
    with sending(spool, redis_server):
        wait_until(lambda: batches(folding) == [0])
        wait_until(lambda: "no space" in caplog.text)
        looked_again(redis_server)
        # Folded entries free memory, although others fill it.
        assert batches(folding) == [0]
        folding.confirm()
        wait_until(lambda: batches(folding) == [1])
        redis_server.client.lpush("celery", b"a message")
        redis_server.client.set(redis_keys.memory_limit("flights"), used * 10)
        wait_until(lambda: batches(folding) == list(range(1, 10)))
    assert caplog.text.count("no space") == 1


def test_a_redis_user_without_info_can_send(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    redis_server.client.acl_setuser(
        "agent",
        enabled=True,
        passwords=["+secret"],
        keys=["arrester:flights:*"],
        categories=["+@all", "-@dangerous", "-@admin"],
        commands=["-memory"],
    )
    _, _, place = redis_server.url.partition("@")
    url = f"unix://agent:secret@{place}"
    put(spool, range(3))
    with sending(spool, replace(redis_server, url=url)):
        wait_until(lambda: batches(folding) == [0, 1, 2])


def test_two_senders_share_a_stream_and_each_keeps_its_order(
    spool: Spool, redis_server: Server, folding: FoldingSide, tmp_path: Path
) -> None:
    other = Spool(tmp_path / "other.sqlite", id=UUID(int=2), limit_bytes=GIB)
    with sending(spool, redis_server), sending(other, redis_server):
        for number in range(50):
            put(spool, range(number, number + 1))
            put(other, range(1000 + number, 1001 + number))
        wait_until(lambda: len(folding.entries()) == 100)
        folding.confirm()
        wait_until(lambda: spool.events == other.events == 0)
    for name, expected in ((spool.id, range(50)), (other.id, range(1000, 1050))):
        mine = [entry.batch.int - 1 for entry in folding.folded if entry.spool == name]
        assert mine == list(expected)
    other.close()


def test_failures_are_counted_only_while_the_server_requests_it(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    key = redis_keys.overload("flights")
    redis_server.client.set(key, redis_keys.OverloadLevel.COUNTS, ex=redis_keys.OVERLOAD_SECONDS)
    with sending(spool, redis_server) as sender:
        wait_until(lambda: spool.counts_only)
        spool.put(batch_id(1), [failed(1, text="a"), failed(2, text="b"), paused(3)])
        wait_until(lambda: all_sent(spool))
        redis_server.client.delete(key)
        sender._next_beat = 0
        spool.wake.set()
        wait_until(lambda: not spool.counts_only)
        spool.put(batch_id(2), [failed(4, text="c")])
        wait_until(lambda: all_sent(spool))
    folding.take()
    types = [type(event.data).__name__ for event in folding.events]
    assert types == ["FailuresCounted", "TaskPaused", "RecordFailed"]
    assert [event.body is None for event in folding.events] == [True, True, False]
    assert spool.counted_only == 2


def test_a_requested_report_is_sent_once(spool: Spool, redis_server: Server) -> None:
    requested: list[str] = []
    with connected(redis_server) as transport:
        sender = Sender(spool, transport, heartbeat=lambda: b"alive", report=requested.append)
        redis_server.client.set(redis_keys.report("flights", INSTANCE), "r1")
        for _ in range(2):
            sender._next_beat = 0
            sender._beat_when_due()
        redis_server.client.set(redis_keys.report("flights", INSTANCE), "r2")
        sender._next_beat = 0
        sender._beat_when_due()
    assert requested == ["r1", "r2"]


def test_the_heartbeat_is_sent_and_deleted_at_the_end(spool: Spool, redis_server: Server) -> None:
    key = redis_keys.heartbeat("flights", INSTANCE)
    with sending(spool, redis_server):
        wait_until(lambda: redis_server.client.get(key) == b"alive")
        assert 25 <= redis_server.client.ttl(key) <= 30
    with connected(redis_server) as transport:
        transport.delete_heartbeat()
    assert not redis_server.client.exists(key)


def test_the_end_waits_for_sendable_batches_and_not_for_an_absent_redis(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    with connected(redis_server) as transport:
        sender = Sender(spool, transport, heartbeat=lambda: b"alive")
        sender.start()
        put(spool, range(500))
        assert sender.stop(flush_seconds=10)
    assert len(folding.entries()) == 500
    redis_server.stop()
    with connected(redis_server) as transport:
        sender = Sender(spool, transport, heartbeat=lambda: b"alive")
        sender.start()
        put(spool, range(500, 501))
        begin = time.monotonic()
        assert not sender.stop(flush_seconds=2 * PATIENCE_SECONDS)
        assert time.monotonic() - begin < PATIENCE_SECONDS
    assert not all_sent(spool)


def test_a_sent_batch_without_a_record_is_sent_again_under_its_id(
    spool: Spool, redis_server: Server, folding: FoldingSide
) -> None:
    put(spool, range(2))
    with connected(redis_server) as transport:
        transport.append(spool.id, spool.unsent(most=10, most_bytes=GIB), last=None)
    with sending(spool, redis_server):
        wait_until(lambda: len(folding.entries()) == 4)
        folding.confirm()
        wait_until(lambda: spool.events == 0)
    assert folded(folding) == [0, 1]


def test_a_key_of_another_type_counts_as_unavailable_redis(
    spool: Spool, redis_server: Server
) -> None:
    redis_server.client.set(EVENTS, "not a stream")
    put(spool, range(1))
    with connected(redis_server) as transport, pytest.raises(RedisUnavailable):
        transport.append(spool.id, spool.unsent(most=1, most_bytes=GIB), last=None)


def test_the_error_names_redis_without_its_password() -> None:
    url = "redis://me:hunter2@127.0.0.1:1/0?socket_timeout=1"
    transport = RedisClient(url, application="flights", instance=INSTANCE)
    with pytest.raises(RedisUnavailable, match=r"^Redis at 127\.0\.0\.1:1/0: ") as caught:
        transport.is_latched()
    assert "hunter2" not in str(caught.value)


def test_a_refused_login_is_one_error_and_an_outage_one_warning(
    spool: Spool, redis_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = replace(redis_server, url=redis_server.url.replace("only-for-tests", "wrong-one"))
    with sending(spool, wrong) as sender:
        wait_until(lambda: sender._failures >= 2)
    assert levels_of("correct the user and the password in REDIS_URL", caplog) == ["ERROR"]
    assert "wrong-one" not in caplog.text

    redis_server.stop()
    with sending(spool, redis_server) as sender:
        wait_until(lambda: sender._failures >= 2)
    assert levels_of("the pipeline continues, events wait", caplog) == ["ERROR", "WARNING"]


def test_a_plain_port_in_place_of_tls_is_explained() -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        closing = threading.Thread(target=lambda: plain.accept()[0].close())
        closing.start()
        url = f"rediss://127.0.0.1:{plain.getsockname()[1]}/0"
        transport = RedisClient(url, application="flights", instance=INSTANCE)
        with pytest.raises(RedisUnavailable, match=r"a plain port needs redis://"):
            transport.is_latched()
        closing.join()


@pytest.mark.parametrize("url", [None, "redis://127.0.0.1:1/0"])
def test_a_missing_redis_url_is_one_line_with_the_place_of_the_events(
    url: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    config = AgentConfig.read(
        "flights", {}, environment={"ARRESTER_SPOOL": str(tmp_path), "REDIS_URL": url or ""}
    )
    Connection(config, INSTANCE).close()
    expected = ["INFO"] if url is None else []
    line = f"REDIS_URL is not set: no server shows this instance, events stay in {tmp_path}"
    assert levels_of(line, caplog) == expected


def test_the_check_alone_appends_nothing(spool: Spool, redis_server: Server) -> None:
    with connected(redis_server) as transport:
        assert transport.append(spool.id, [], last=None)[0] is AppendStatus.DONE
    assert not redis_server.client.exists(EVENTS)
