"""Kills at any point, on two hosts: what is counted is what was committed."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from arrester.agents.journal.entries import Entry, EntryKind
from arrester.agents.journal.fencing import claim
from arrester.agents.journal.storage import LocalStorage, checkpoint_id, last_committed
from arrester.agents.run.micro_batch.flow_meter import FlowMeter
from arrester.agents.transport.spool import Spool
from tests.agents.measured_flow import flow_in
from tests.agents.sample_events import batch_id
from tests.histories import POLICY

_clock = partial(datetime.now, UTC)


class Killed(Exception):
    """The process ends here."""


def records_of(batch: int) -> int:
    return batch % 4 + 1


class Host:
    """A machine with its spool."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "spool.sqlite"
        folder.mkdir()

    def open(self) -> Spool:
        return Spool(self._path, id=batch_id(0), limit_bytes=2**20)


class CountsWhatIsCommitted(RuleBasedStateMachine):
    """One checkpoint, whose runs are killed at any point and go on on either host."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.files = LocalStorage(str(self.folder / "checkpoint"))
        self.hosts = [Host(self.folder / name) for name in ("a", "b")]
        self.read = self.skipped = 0
        self.spool: Spool | None = None
        self.written = False

    def teardown(self) -> None:
        self.kill()
        total = [0, 0]
        for host in self.hosts:
            # A last run on each host judges what was left there.
            self._start(host)
            assert self.spool is not None
            self.meter.end()
            flow = flow_in(self.spool)
            total = [total[0] + flow.records_in, total[1] + flow.drained]
            assert self.spool.flow.is_empty()
            self.kill()
        shutil.rmtree(self.folder)
        assert total == [self.read, self.skipped]

    @precondition(lambda self: self.spool is None)
    @rule(host=st.sampled_from([0, 1]))
    def start(self, host: int) -> None:
        self._start(self.hosts[host])

    def _start(self, host: Host) -> None:
        self.spool = host.open()
        instance = uuid4()
        journal, run = claim(
            self.files,
            application="tests",
            pipeline="lines",
            checkpoint=checkpoint_id(self.files),
            instance=instance,
            policy=POLICY,
            now=_clock(),
            committed=last_committed(self.files),
        )
        self.meter = FlowMeter(
            store=self.spool.flow,
            run=run,
            instance=instance,
            journal=journal,
            progress=self.files,
            clock=_clock,
        )
        self.meter.judge(last_committed(self.files))
        self.written = False

    @precondition(lambda self: self.spool is not None and not self.written)
    @rule()
    def write(self) -> None:
        batch = last_committed(self.files) + 1
        self.meter.settle(batch - 1)
        self.meter.wrote(batch, lambda: records_of(batch), {})
        self.written = True

    @precondition(lambda self: self.spool is not None and self.written)
    @rule(is_reported=st.booleans())
    def commit(self, is_reported: bool) -> None:
        batch = last_committed(self.files) + 1
        self.files.create(f"commits/{batch}", b"")
        self.read += records_of(batch)
        self.written = False
        if is_reported:
            self.meter.settle(batch)

    @precondition(lambda self: self.spool is not None)
    @rule(records=st.integers(1, 3), killed=st.sampled_from(["before", "after", "no"]))
    def skip(self, records: int, killed: str) -> None:
        with suppress(Killed), self.meter.skipping(records):
            if killed == "before":
                raise Killed
            self.meter.journal.append(
                Entry(kind=EntryKind.RESUME, at=_clock(), epoch=self.meter.run.epoch)
            )
            self.skipped += records
            if killed == "after":
                raise Killed
        if killed != "no":
            self.kill()

    @precondition(lambda self: self.spool is not None)
    @rule()
    def compact(self) -> None:
        self.meter.journal.compact(is_settled=lambda entry: True, is_needed=lambda saved: True)

    @rule()
    def kill(self) -> None:
        if self.spool is not None:
            self.spool._database.close()
        self.spool = None


def test_counts_what_is_committed() -> None:
    run_state_machine_as_test(
        CountsWhatIsCommitted,
        settings=settings(max_examples=30, stateful_step_count=25, deadline=None),
    )
