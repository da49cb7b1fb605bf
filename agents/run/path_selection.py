"""Choose the execution path of a micro-batch: fast path while healthy, slow path after a
failure."""

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

#: Clean micro-batches on the slow path after a failure. Failures cluster, and a micro-batch that is
#: done twice costs more than the slow path.
SLOW_PATH_BATCHES = 8


@dataclass(slots=True, kw_only=True)
class PathSelection:
    """Choose the path of each micro-batch of a run, and try the fast one."""

    pipeline: Pipeline
    journal: Journal
    #: None if the sink may leave part of what it was given.
    fast_path: FastPath | None
    #: errors.decisions=always: a decision is durable before the sink is called.
    always_decides: bool
    #: Clean micro-batches that still take the slow path.
    careful: int = 0

    def takes_slow_path(self, batch: int) -> bool:
        """Whether the micro-batch cannot or should not be tried on the fast path."""
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
        """Whether records of the next micro-batch are likely to fail, because some failed
        recently."""
        return self.careful > 0

    def done_on_slow_path(self, *, clean: bool) -> None:
        """Count the micro-batches without a failure."""
        self.careful = max(0, self.careful - 1) if clean else SLOW_PATH_BATCHES

    def wrote_on_fast_path(
        self, source: DataFrame, number: int, *, check: Callable[[], None]
    ) -> bool:
        """Evaluate and write in one pass; return False, with nothing written, if anything failed.

        The fast path cannot tell whether the source, a step or the sink failed. The slow path can:
        it evaluates before it writes. `check` raises if the run is to end.
        """
        sink = self.pipeline.sink
        assert self.fast_path is not None and isinstance(sink, Sink)
        try:
            sink(self.fast_path.frame(source), number)
        except BaseException as exc:  # SystemExit would hang the query for ever
            check()
            failed = self.fast_path.is_failed_record(exc)
            who = "a record failed" if failed else f"{type(exc).__name__} was raised"
            message = "pipeline %r, batch %s: %s on the fast path; repeating it on the slow path"
            _log.info(message, self.pipeline.name, number, who)
            self.careful = SLOW_PATH_BATCHES
            return False
        return True
