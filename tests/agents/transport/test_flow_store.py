"""What flows through runs, on the local disk: each count becomes one event, also after a kill."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from arrester.agents.transport.flow_store import Measured, Pending, Waits, added
from arrester.agents.transport.spool import Spool
from arrester.agents.transport.spool_ownership import open_spool
from arrester.domain.events import Event, FlowMeasured
from arrester.domain.wire import received_batch
from tests.agents.sample_events import INSTANCE, RUN, batch_id

GIB = 2**30
MINUTE = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
LATER = MINUTE + timedelta(minutes=1)


def measured(records: int, minute: datetime = MINUTE) -> Measured:
    flow = FlowMeasured(
        minute=minute, micro_batches=1, records_in=records, records_out=records,
        durations={"write:3": 1}, last_batch_at=minute,
    )  # fmt: skip
    return Measured(instance=INSTANCE, run=RUN, flow=flow)


def pending(number: int, records: int = 5) -> Pending:
    return Pending(waits=Waits.BATCH, number=number, measured=measured(records))


def open_at(path: Path) -> Spool:
    return Spool(path / "spool.sqlite", id=batch_id(0), limit_bytes=GIB)


def sent(spool: Spool) -> list[FlowMeasured]:
    found = []
    for batch in spool.unsent(most=100, most_bytes=GIB):
        for event in received_batch.decode_batch(batch.events):
            assert isinstance(event, Event)
            assert (event.instance, event.run) == (INSTANCE, RUN)
            assert isinstance(event.data, FlowMeasured)
            found.append(event.data)
    return found


def test_a_minute_is_one_event_when_it_is_over(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    spool.flow.add(measured(5))
    spool.flow.add(measured(7))
    spool.put_flow(MINUTE + timedelta(seconds=59))
    assert sent(spool) == []

    spool.put_flow(LATER)
    spool.put_flow(LATER)

    [flow] = sent(spool)
    assert (flow.minute, flow.micro_batches, flow.records_in) == (MINUTE, 2, 12)
    assert flow.durations == {"write:3": 2}
    assert spool.events == 1
    assert spool.size_bytes > 0


def test_the_end_of_a_connection_puts_the_minute_in_progress(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    spool.put_flow(MINUTE, all=True)
    spool.flow.add(measured(5))
    spool.put_flow(MINUTE, all=True)

    assert [flow.records_in for flow in sent(spool)] == [5]


def test_a_clock_that_was_set_back_delays_no_minute(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    spool.flow.add(measured(5, LATER))
    spool.flow.add(measured(6))
    spool.put_flow(MINUTE)

    assert [(flow.minute, flow.records_in) for flow in sent(spool)] == [(LATER, 5)]


def test_a_killed_process_loses_neither_sums_nor_pending_counts(tmp_path: Path) -> None:
    killed = open_at(tmp_path)
    killed.flow.add(measured(5))
    killed.flow.add_pending(pending(3))

    spool = open_at(tmp_path)
    assert spool.flow.pending(RUN.checkpoint) == [pending(3)]
    spool.put_flow(LATER)
    assert [flow.records_in for flow in sent(spool)] == [5]


def test_pending_counts_are_settled_once(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    spool.flow.add_pending(pending(3, records=4))
    spool.flow.add_pending(pending(3, records=5))
    spool.flow.add_pending(pending(4))
    [third, fourth] = spool.flow.pending(RUN.checkpoint)
    spool.flow.settle([third], repeated=[fourth])
    spool.flow.settle([third, fourth])

    assert spool.flow.pending(RUN.checkpoint) == []
    spool.put_flow(LATER)
    assert [flow.records_in for flow in sent(spool)] == [5]


def test_a_refused_event_leaves_the_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = open_at(tmp_path)
    spool.flow.add(measured(5))

    def refuse(batch: object) -> bool:
        raise sqlite3.OperationalError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(spool, "_insert_row", refuse)
        spool.put_flow(LATER)
    assert (sent(spool), spool.events, spool.size_bytes) == ([], 0, 0)
    spool.put_flow(LATER)

    assert [flow.records_in for flow in sent(spool)] == [5]


def test_the_flow_of_a_dead_instance_is_adopted(tmp_path: Path) -> None:
    """The oldest spool is continued, and takes over a further one; a spool of an earlier version
    has no tables of flow."""
    spools = []
    for seconds in range(3):
        now = MINUTE + timedelta(seconds=seconds)
        spools.append(open_spool(tmp_path, "flights", limit_bytes=GIB, now=now))
    for number, own in enumerate(spools):
        own.spool.flow.add_pending(pending(number))
    spools[1].spool.flow.add(measured(6))
    spools[2].spool._database.executescript("DROP TABLE flow; DROP TABLE flow_pending")
    for own in spools:
        own.spool._database.close()
        own.claim.release()

    heir = open_spool(tmp_path, "flights", limit_bytes=GIB, now=LATER)
    numbers = [each.number for each in heir.spool.flow.pending(RUN.checkpoint)]
    assert numbers == [0, 1]
    heir.spool.put_flow(LATER)
    assert [flow.records_in for flow in sent(heir.spool)] == [6]
    heir.close()
    assert len(list(tmp_path.glob("flights/*.sqlite"))) == 1


def test_a_spool_with_pending_counts_only_is_kept(tmp_path: Path) -> None:
    own = open_spool(tmp_path, "flights", limit_bytes=GIB, now=MINUTE)
    own.spool.flow.add_pending(pending(1))
    own.close()
    heir = open_spool(tmp_path, "flights", limit_bytes=GIB, now=LATER)
    [waiting] = heir.spool.flow.pending(RUN.checkpoint)
    heir.spool.flow.settle([], repeated=[waiting])
    heir.close()

    assert list(tmp_path.glob("flights/*.sqlite")) == []


def test_the_spool_of_an_earlier_version_gets_the_tables(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    spool._database.executescript("DROP TABLE flow; DROP TABLE flow_pending")
    spool.close()
    spool = open_at(tmp_path)
    spool.flow.add(measured(5))
    spool.put_flow(LATER)

    assert [flow.records_in for flow in sent(spool)] == [5]


def test_a_sum_has_the_newest_backlog_that_is_known() -> None:
    one = FlowMeasured(minute=MINUTE, backlog=7, backlog_unit="records", watermark=MINUTE)
    other = FlowMeasured(minute=MINUTE, records_in=2, last_batch_at=LATER)

    total = added(added(one, other), FlowMeasured(minute=MINUTE, last_batch_at=MINUTE))
    assert (total.backlog, total.backlog_unit, total.watermark) == (7, "records", MINUTE)
    assert (total.records_in, total.last_batch_at) == (2, LATER)
    files = FlowMeasured(minute=MINUTE, backlog=0, backlog_unit="files")
    assert (added(one, files).backlog, added(one, files).backlog_unit) == (0, "files")
