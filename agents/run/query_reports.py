"""Read what Spark reports about the query of a run: commits, durations and the backlog."""

from __future__ import annotations

import logging
import time
from datetime import datetime
from typing import Final

from arrester.agents.run.micro_batch.flow_meter import FlowMeter
from arrester.agents.run.query import Query
from arrester.agents.spark.query_progress import Backlog, Progress
from arrester.domain.wire.codec import RunFlow

_log = logging.getLogger("arrester.thread")

#: The interval at which the reports are read.
_SECONDS: Final = 1.0


class QueryReports:
    """The reports of one run's queries, read by the thread of the run."""

    def __init__(self, meter: FlowMeter) -> None:
        self._meter = meter
        self._next_at = 0.0
        self._last: Progress | None = None
        #: How many milliseconds micro-batches waited, by their number.
        self._waits: dict[int, float] = {}
        self._last_batch_at: datetime | None = None

    def flow(self, rows_per_second: float | None) -> RunFlow:
        """Return what flows through the run now; callable from any thread."""
        backlog = Backlog() if self._last is None else self._last.backlog
        return RunFlow(
            pipeline=self._meter.run.pipeline,
            checkpoint=self._meter.run.checkpoint,
            rows_per_second=rows_per_second,
            last_batch_at=self._last_batch_at,
            backlog=backlog.size,
            backlog_unit=backlog.unit,
        )

    def waited(self, batch: int, seconds: float) -> None:
        """Exclude a wait for a resume or for held records from the duration of a micro-batch."""
        if self._meter.is_on:
            self._waits[batch] = seconds * 1_000

    def read(self, query: Query, *, now: bool = False) -> None:
        """Read the new reports, at most once a second unless it is to be `now`; never raises."""
        if not self._meter.is_on or (not now and time.monotonic() < self._next_at):
            return
        self._next_at = time.monotonic() + _SECONDS
        try:
            for progress in query.progress_after(self._last):
                self._last = progress
                if progress.is_batch:
                    self._last_batch_at = progress.ended_at
                    waited = self._waits.pop(progress.committed, 0)
                    progress = progress._replace(
                        total=max(progress.source, progress.total - waited)
                    )
                self._meter.reported(progress)
        except Exception:  # of a query that ends meanwhile, or a stopped session
            _log.debug("the progress of %s cannot be read", self._meter.run.pipeline, exc_info=True)
