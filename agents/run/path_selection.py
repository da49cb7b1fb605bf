"""Which way a micro-batch takes: in one pass while all is well, with care otherwise."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from arrester.agents.batch.fast_path import FastPath
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Sink
from arrester.agents.journal.entries import Kind
from arrester.agents.journal.journal import Journal

_log = logging.getLogger("arrester.thread")

#: So many clean micro-batches after a failure are done with care: failures come in swarms, and
#: doing a micro-batch twice costs more than care.
SLOW_PATH_BATCHES = 8


@dataclass(slots=True, kw_only=True)
class PathSelection:
    """Chooses the way of each micro-batch of a run, and tries the quick one."""

    pipeline: Pipeline
    journal: Journal
    #: None: the sink may leave half of what it was given.
    fast_path: FastPath | None
    #: errors.decisions=always: a decision stands before the sink is called.
    always_decides: bool
    #: So many clean micro-batches are still to be done with care.
    careful: int = 0

    def takes_slow_path(self, batch: int) -> bool:
        """Whether the micro-batch cannot, or had better not, be tried in one pass."""
        return (
            self.fast_path is None
            or self.always_decides
            or self.fails
            or bool(self.journal.ledger.blocked(batch))
            or self.is_decided(batch)
        )

    def is_decided(self, batch: int) -> bool:
        """Whether there is a decision about a micro-batch that Spark has not committed."""
        kept = self.journal.unsettled
        return any(entry.kind is Kind.BATCH and entry.batch == batch for entry in kept)

    @property
    def fails(self) -> bool:
        """Whether records of the next micro-batch are likely to fail: some did lately."""
        return self.careful > 0

    def done_on_slow_path(self, *, clean: bool) -> None:
        """Count the micro-batches without a failure."""
        self.careful = max(0, self.careful - 1) if clean else SLOW_PATH_BATCHES

    def wrote_on_fast_path(
        self, source: DataFrame, number: int, *, check: Callable[[], None]
    ) -> bool:
        """Guard and write at once; False when anything failed: then nothing is written.

        Nobody can tell for certain whether the source, a step or the sink has failed. The careful
        way can: it evaluates before it writes. `check` raises when the run is to end.
        """
        sink = self.pipeline.sink
        assert self.fast_path is not None and isinstance(sink, Sink)
        try:
            sink(self.fast_path.frame(source), number)
        except BaseException as exc:  # SystemExit would hang the query for ever
            check()
            failed = self.fast_path.is_failed_record(exc)
            who = "a record has failed" if failed else f"{type(exc).__name__} was raised"
            message = "%s, number %s: %s in one pass; doing the micro-batch again with care"
            _log.info(message, self.pipeline.name, number, who)
            self.careful = SLOW_PATH_BATCHES
            return False
        return True
