from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from arrester.agents.transport.spool import Spool
from arrester.agents.transport.spool_ownership import open_spool
from arrester.domain.events import Event, FailuresCounted, TaskPaused
from arrester.domain.identity.uuids import uuid7
from arrester.domain.wire import limits, received_batch
from tests.agents.sample_events import NOW, batch_id, failed, paused, some_events

GIB = 2**30


def open_at(path: Path, *, limit_bytes: int = GIB) -> Spool:
    return Spool(path / "spool.sqlite", id=batch_id(0), limit_bytes=limit_bytes)


def unsent(spool: Spool) -> list[int]:
    return [batch.id.int - 1 for batch in spool.unsent(most=10_000, most_bytes=GIB)]


class SpoolKeepsItsPromises(RuleBasedStateMachine):
    """Compare the spool with a list: unconfirmed batches stay in order after any operations."""

    def __init__(self) -> None:
        super().__init__()
        self.spool = Spool(Path(":memory:"), id=batch_id(0), limit_bytes=GIB)
        self.waiting: list[int] = []
        self.sent: set[int] = set()
        self.confirmed: set[int] = set()

    def teardown(self) -> None:
        self.spool.close()

    @rule(number=st.integers(0, 30))
    def put(self, number: int) -> None:
        self.spool.put(batch_id(number), some_events(number))
        if number not in self.waiting and number not in self.confirmed:
            self.waiting.append(number)

    @rule(most=st.integers(1, 5))
    def send(self, most: int) -> None:
        batches = self.spool.unsent(most=most, most_bytes=GIB)
        self.spool.mark_sent(batches, [f"{batch.number}-0" for batch in batches])
        self.sent |= {batch.id.int - 1 for batch in batches}

    @rule()
    def lose(self) -> None:
        assert self.spool.mark_lost() == len(self.sent)
        self.sent.clear()

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.sent)))
        self.spool.confirm([batch_id(number)])
        self.sent.remove(number)
        self.waiting.remove(number)
        self.confirmed.add(number)

    @invariant()
    def what_is_unsent_waits_in_order(self) -> None:
        assert unsent(self.spool) == [each for each in self.waiting if each not in self.sent]

    @invariant()
    def what_was_sent_last_is_known(self) -> None:
        last = self.spool.last_sent()
        expected = [batch_id(each) for each in self.waiting if each in self.sent]
        assert ([] if last is None else [last]) == expected[-1:]

    @invariant()
    def counts_agree(self) -> None:
        assert self.spool.events == 2 * len(self.waiting)
        assert (self.spool.size_bytes == 0) == (not self.waiting)
        assert {n for n in range(31) if self.spool.is_confirmed(batch_id(n))} == self.confirmed


TestSpoolKeepsItsPromises = SpoolKeepsItsPromises.TestCase
TestSpoolKeepsItsPromises.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)


def test_batches_are_there_after_reopening(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    for number in range(5):
        spool.put(batch_id(number), some_events(number))
    batches = spool.unsent(most=2, most_bytes=GIB)
    spool.mark_sent(batches, ["1-0", "1-1"])
    spool.confirm([batch_id(0)])
    spool.close()
    again = open_at(tmp_path)
    assert unsent(again) == [2, 3, 4]
    assert again.last_sent() is not None
    assert again.events == 8
    assert again.is_confirmed(batch_id(0))
    again.close()


def test_a_repeated_put_has_no_effect(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    for events in (some_events(1), some_events(2)):
        spool.put(batch_id(1), events)
    (batch,) = spool.unsent(most=10, most_bytes=GIB)
    assert received_batch.decode_batch(batch.events) == some_events(1)
    spool.close()


def test_the_byte_limit_of_a_read_returns_at_least_one_batch(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    for number in range(3):
        spool.put(batch_id(number), some_events(number))
    assert len(spool.unsent(most=10, most_bytes=1)) == 1
    spool.close()


def test_the_time_of_the_oldest_batch_comes_from_its_id(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    assert spool.oldest() is None
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    first, second = uuid7(noon), uuid7(noon + timedelta(minutes=1))
    for id in (first, second):
        spool.put(id, [paused(1)])
    assert spool.oldest() == noon
    spool.confirm([first])
    assert spool.oldest() == noon + timedelta(minutes=1)


def test_a_full_spool_counts_failures_only(tmp_path: Path) -> None:
    spool = open_at(tmp_path, limit_bytes=1000)
    noise = [failed(n, text=os.urandom(100).hex()) for n in range(50)]
    spool.put(batch_id(1), [*noise, paused(50)])
    (batch,) = spool.unsent(most=10, most_bytes=GIB)
    first, second = received_batch.decode_batch(batch.events)
    assert isinstance(first, Event)
    assert isinstance(second, Event)
    assert isinstance(first.data, FailuresCounted)
    assert first.data.count == 50
    assert (first.data.first_position, first.data.last_position) == (0, 49)
    assert isinstance(second.data, TaskPaused)
    assert spool.counted_only == 50
    spool.close()


def test_a_batch_that_is_too_large_for_an_entry_counts_failures_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = open_at(tmp_path)
    noise = [failed(n, text=os.urandom(100).hex()) for n in range(50)]
    monkeypatch.setattr(limits, "PACKED_BYTES", 2_000)
    spool.put(batch_id(1), [*noise, paused(50)])
    (batch,) = spool.unsent(most=10, most_bytes=GIB)
    assert len(batch.events) <= 2_000
    assert spool.counted_only == 50
    spool.close()


def test_a_record_that_cannot_be_packed_does_not_break_its_pipeline(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    monster = failed(1)
    assert monster.body is not None
    assert monster.body.record is not None
    monster.body.record["number"] = 2**80
    spool.put(batch_id(1), [monster, paused(1)])
    (batch,) = spool.unsent(most=10, most_bytes=GIB)
    assert len(received_batch.decode_batch(batch.events)) == 2
    spool.close()


def test_a_batch_that_cannot_be_unpacked_is_stored_without_bodies(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    text = "x" * 2**20
    spool.put(batch_id(1), [*(failed(n, text=text) for n in range(65)), paused(1)])
    (batch,) = spool.unsent(most=10, most_bytes=GIB)
    counted, stopped = received_batch.decode_batch(batch.events)
    assert isinstance(counted, Event) and isinstance(counted.data, FailuresCounted)
    assert counted.data.count == 65
    assert isinstance(stopped, Event) and isinstance(stopped.data, TaskPaused)
    spool.close()


def test_the_file_shrinks_after_confirmations(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    for number in range(100):
        spool.put(batch_id(number), [failed(n, text=os.urandom(500).hex()) for n in range(20)])
    spool.confirm([batch_id(number) for number in range(100)])

    def pages() -> int:
        (count,) = spool._database.execute("PRAGMA page_count").fetchone()
        assert isinstance(count, int)
        return count

    before = pages()
    spool.shrink()
    assert pages() < before / 2
    spool.close()


def test_batches_that_the_disk_refuses_wait_in_memory_in_order(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    spool.put(batch_id(0), some_events(0))
    pages = spool._database.execute("PRAGMA page_count").fetchone()[0]
    spool._database.execute(f"PRAGMA max_page_count = {pages}")
    noise = [failed(n, text=os.urandom(5000).hex()) for n in range(10)]
    spool.put(batch_id(1), noise)
    spool.put(batch_id(2), some_events(2))
    assert spool.write_failures > 0
    assert unsent(spool) == [0]
    assert spool.events == 14
    assert not spool.is_confirmed(batch_id(1))
    spool._database.execute("PRAGMA max_page_count = 100000")
    spool.write()
    assert unsent(spool) == [0, 1, 2]
    spool.close()


def test_a_confirmation_that_the_disk_refuses_has_no_effect(tmp_path: Path) -> None:
    own = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
    spool = own.spool
    for number in range(2):
        spool.put(batch_id(number), some_events(number))
    size = spool.size_bytes
    spool._database.execute(
        "CREATE TEMP TRIGGER full BEFORE INSERT ON confirmed"
        " BEGIN SELECT RAISE(FAIL, 'disk full'); END"
    )
    for _ in range(2):
        with pytest.raises(sqlite3.Error, match="disk full"):
            spool.confirm([batch_id(0)])
    assert (spool.events, spool.size_bytes) == (4, size)
    assert unsent(spool) == [0, 1]

    spool._database.execute("DROP TRIGGER full")
    spool.confirm([batch_id(0)])
    assert spool.events == 2
    own.close()
    heir = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
    assert unsent(heir.spool) == [1]
    heir.close()


def test_a_wrong_count_deletes_nothing(tmp_path: Path) -> None:
    own = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
    own.spool.put(batch_id(0), some_events(0))
    own.spool._events = 0
    own.close()
    heir = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
    assert unsent(heir.spool) == [0]
    heir.close()


def test_a_closed_spool_does_not_raise_and_confirms_nothing(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    spool.close()
    spool.put(batch_id(0), some_events(0))
    assert not spool.is_confirmed(batch_id(0))


def test_threads_may_put_concurrently(tmp_path: Path) -> None:
    spool = open_at(tmp_path)

    def put(start: int) -> None:
        for number in range(start, 200, 4):
            spool.put(batch_id(number), some_events(number))

    threads = [threading.Thread(target=put, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(unsent(spool)) == list(range(200))
    spool.close()


PUTTER = """
    import sys
    from datetime import UTC, datetime
    from pathlib import Path
    from arrester.agents.transport.spool_ownership import open_spool
    from tests.agents.sample_events import batch_id, some_events

    own = open_spool(Path(sys.argv[1]), "flights", limit_bytes=2**30, now=datetime.now(UTC))
    for number in range(1_000_000):
        own.spool.put(batch_id(number), some_events(number))
        print(number, flush=True)
"""


def putting_process(folder: Path) -> subprocess.Popen[str]:
    code = textwrap.dedent(PUTTER)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True
    )


def lines(process: subprocess.Popen[str], *, least: int) -> list[int]:
    """Return the numbers that the process has printed, then kill it in the middle of its work."""
    assert process.stdout is not None
    printed = [int(process.stdout.readline()) for _ in range(least)]
    process.send_signal(signal.SIGKILL)
    printed += [int(line) for line in process.stdout if line.endswith("\n")]
    process.stdout.close()
    process.wait()
    return printed


@pytest.mark.chaos
def test_a_kill_during_a_put_keeps_complete_batches(tmp_path: Path) -> None:
    for _ in range(3):
        process = putting_process(tmp_path)
        printed = lines(process, least=50)
        own = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
        kept = unsent(own.spool)
        assert kept == list(range(len(kept)))
        assert len(kept) >= len(printed)
        own.spool.confirm([batch_id(number) for number in kept])
        own.spool._database.execute("DELETE FROM confirmed")
        own.close()


@pytest.mark.chaos
def test_a_dead_instances_spool_is_adopted(tmp_path: Path) -> None:
    process = putting_process(tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    mine = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
    assert mine.spool.events == 0
    printed = lines(process, least=1)
    mine.spool.put(batch_id(2_000_000), some_events(1))
    mine.close()
    heir = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
    kept = unsent(heir.spool)
    assert set(range(len(printed))) < set(kept)
    assert kept.count(2_000_000) == 1
    assert len(list((tmp_path / "flights").glob("*.sqlite"))) == 1
    heir.close()


def test_spools_of_dead_instances_are_adopted_oldest_first_in_order(tmp_path: Path) -> None:
    first = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
    second = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW.replace(year=2027))
    third = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW.replace(year=2028))
    for spool, numbers in ((third, [5, 6]), (first, [2, 1]), (second, [4, 3])):
        for number in numbers:
            spool.spool.put(batch_id(number), some_events(number))
    for each in (third, second, first):
        each.close()
    heir = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
    assert heir.spool.id == first.spool.id
    assert unsent(heir.spool) == [2, 1, 4, 3, 5, 6]
    assert heir.spool.events == 12
    heir.close()


def test_a_disk_smaller_than_the_limit_is_reported_at_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    open_spool(tmp_path, "flights", limit_bytes=2**20, now=NOW).close()
    assert caplog.messages == []
    open_spool(tmp_path, "flights", limit_bytes=2**62, now=NOW).close()
    [message] = caplog.messages
    assert f"spool {tmp_path}/flights has " in message
    assert f"less than spool.bytes.limit ({2**42} MiB)" in message


def test_an_empty_spool_leaves_no_file(tmp_path: Path) -> None:
    open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW).close()
    assert list((tmp_path / "flights").iterdir()) == []


def test_applications_have_separate_spools(tmp_path: Path) -> None:
    flights = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
    flights.spool.put(batch_id(1), some_events(1))
    flights.close()
    trains = open_spool(tmp_path, "trains", limit_bytes=GIB, now=NOW)
    assert trains.spool.events == 0
    trains.close()


@pytest.mark.parametrize("name", ["00000000-0000-7000-8000-000000000001", "foreign"])
def test_an_unreadable_file_is_renamed(tmp_path: Path, name: str) -> None:
    place = tmp_path / "flights"
    place.mkdir()
    (place / f"{name}.sqlite").write_bytes(b"not a database, and longer than its header is" * 99)
    own = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
    own.spool.put(batch_id(1), some_events(1))
    assert unsent(own.spool) == [1]
    assert (place / f"{name}.sqlite.broken").exists()
    own.close()


@pytest.mark.parametrize("own", [True, False], ids=["own", "adopted"])
def test_a_spool_of_another_format_is_renamed(tmp_path: Path, own: bool) -> None:
    folder = tmp_path / "flights"
    folder.mkdir()
    if not own:
        first = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
        first.spool.put(batch_id(1), some_events(1))
        first.close()
    # By its name it is the newest: the file before it is continued.
    other = folder / f"{uuid7(NOW + timedelta(days=1))}.sqlite"
    with Spool(other, id=batch_id(0), limit_bytes=GIB)._database as database:
        database.execute("PRAGMA user_version = 0")
    second = open_spool(tmp_path, "flights", limit_bytes=GIB, now=NOW)
    second.spool.put(batch_id(2), some_events(2))
    assert Path(f"{other}.broken").exists()
    assert unsent(second.spool) == ([2] if own else [1, 2])
    second.close()


def test_an_interrupted_adoption_is_repeated_without_duplicates(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    other = Spool(tmp_path / "other.sqlite", id=batch_id(1), limit_bytes=GIB)
    for number in (3, 4):
        other.put(batch_id(number), some_events(number))
    other.close()
    spool.adopt(tmp_path / "other.sqlite")
    spool.adopt(tmp_path / "other.sqlite")
    assert unsent(spool) == [3, 4]
    with sqlite3.connect(tmp_path / "other.sqlite") as database:
        assert database.execute("SELECT count(*) FROM batch").fetchone() == (2,)
    database.close()
    spool.close()


FULL_DISK = """
    import os, resource, sys
    from pathlib import Path
    from uuid import uuid4

    from arrester.agents.transport import spool_ownership as spool_files
    from tests.agents.sample_events import NOW, failed

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    spool_files.UNWRITTEN_BYTES = 2**18
    spool = spool_files.open_spool(Path(sys.argv[1]), "a", limit_bytes=2**30, now=NOW).spool
    for number in range(20):
        spool.put(uuid4(), [failed(number, text=os.urandom(2**15).hex())])
    print(spool.path, spool.size_bytes < 2**19, spool.counted_only > 0, spool.is_stored(uuid4()))
"""


def test_a_spool_in_memory_has_a_lower_limit(tmp_path: Path) -> None:
    """The disk is full when the agent starts, and there is no server."""
    code = [sys.executable, "-c", textwrap.dedent(FULL_DISK), str(tmp_path)]
    printed = subprocess.run(code, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == [":memory:", "True", "True", "False"]


def test_a_reason_of_any_length_is_sent_as_the_server_accepts_it(tmp_path: Path) -> None:
    spool = open_at(tmp_path)
    event = paused(1)
    assert isinstance(event.data, TaskPaused)
    long = replace(event, data=replace(event.data, reason="x" * 50_000))
    for counts_only in (False, True):
        spool.counts_only = counts_only
        spool.put(uuid7(NOW), [long])
    for batch in spool.unsent(most=10, most_bytes=GIB):
        (received,) = received_batch.decode_batch(batch.events)
        assert isinstance(received, Event) and isinstance(received.data, TaskPaused)
        reason = received.data.reason or ""
        assert len(reason) == limits.TEXT_CHARACTERS and reason.endswith("x…[cut]")
