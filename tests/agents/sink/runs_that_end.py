"""Runs that end around the entry of a micro-batch whose rows are staged in a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.stores.staged_write import StagedWrite
from arrester.agents.journal.journal import Journal
from arrester.agents.run.micro_batch.slow_path_writer import SlowPathWriter
from arrester.domain.events import RecordFailed
from tests.agents.pipeline_bench import Bench
from tests.patience import wait_until


def end_before_entry_and_publication(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    write: type[StagedWrite],
    *,
    pipeline: Callable[[], Pipeline],
    visible: Callable[[], tuple[list[int], int]],
    data_files: Callable[[], list[str]],
) -> None:
    """Let a run end before its entry, and the next one before the publication; then one ends well.

    `write` is the staged write of the sink; `visible` returns the positions in the table and the
    number of its commits; `data_files` the files in its folder.
    """
    append, ends = Journal.append, ["entry", "publication"]

    def dying(self: Journal, entry: Any) -> Any:
        if entry.batch is not None and ends == ["entry", "publication"]:
            del ends[0]
            assert visible() == ([], 0)
            assert len(data_files()) == 1
            raise SystemExit("killed")
        return append(self, entry)

    def dying_publication(*_: object) -> None:
        assert visible() == ([], 0)
        raise SystemExit("killed")

    monkeypatch.setattr(Journal, "append", dying)
    monkeypatch.setattr(write, "publish", dying_publication)
    monkeypatch.setattr(write, "discard", lambda self: None)
    bench.add(("a", 0, "0"), ("a", 1, "x"))
    bench.start(pipeline())
    wait_until(lambda: len(bench.ends) == 1, what="an end")
    monkeypatch.setattr(SlowPathWriter, "write", dying_publication)
    bench.start(pipeline())
    wait_until(lambda: len(bench.ends) == 2, what="an end")
    assert (ends, visible()[0]) == (["publication"], [])

    monkeypatch.undo()
    bench.start(pipeline())
    wait_until(lambda: bench.committed() == 0)
    bench.stop()
    assert visible() == ([0], 1)
    assert len(bench.outbox.of(RecordFailed)) == 1
    assert len(bench.dead_letters()) == 1
