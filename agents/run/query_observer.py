"""Report what flows through the unguarded streaming queries of a session."""

from __future__ import annotations

import json
import logging
import re
from typing import Any
from uuid import UUID

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from arrester.agents.spark.query_progress import Progress, progress_of
from arrester.agents.transport.flow_store import FlowStore, Measured, minute_of
from arrester.controlplane.domain.events import FlowMeasured, Run
from arrester.controlplane.domain.identity.names import NAME
from arrester.controlplane.domain.state.durations import Phase, key_of

_log = logging.getLogger("arrester.agent")

_INVALID = re.compile(r"[^a-z0-9.-]+")


class QueryObserver(StreamingQueryListener):
    """Adds each progress report of an unguarded query to the flow of its minute.

    Spark delivers reports later, and may drop some if its queue is full.
    """

    def __init__(self, spark: SparkSession, *, store: FlowStore, instance: UUID) -> None:
        self._spark = spark
        self._store = store
        self._instance = instance

    def start(self) -> None:
        """Begin to observe; also the queries that run already."""
        self._spark.streams.addListener(self)

    def stop(self) -> None:
        """End the observation; never raises, because the session may have been stopped."""
        try:
            self._spark.streams.removeListener(self)
        except Exception:
            _log.debug("the observation of queries ended with its session", exc_info=True)

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: a query without a micro-batch has no flow."""

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing: no more reports follow."""

    def onQueryProgress(self, event: Any) -> None:
        """Add a report; never raises, because Spark would log it as an error of its own."""
        try:
            self._add(event.progress.json)
        except Exception:
            _log.debug("a progress report cannot be read", exc_info=True)

    def _add(self, report: str) -> None:
        query, progress = str(json.loads(report)["id"]), progress_of(report)
        if query in self._store.guarded or not progress.is_batch:
            return
        run = Run(pipeline=_pipeline_of(progress.name, query), checkpoint=query, epoch=0)
        measured = Measured(instance=self._instance, run=run, flow=_flow_of(progress))
        self._store.add(measured)


def _pipeline_of(name: str | None, query: str) -> str:
    """Return a valid name of a pipeline: `Plain lines` becomes `plain-lines`."""
    found = NAME.search(_INVALID.sub("-", (name or "").lower()))
    return query if found is None else found.group()


def _flow_of(progress: Progress) -> FlowMeasured:
    times = {Phase.TOTAL: progress.total, Phase.SOURCE: progress.source}
    return FlowMeasured(
        minute=minute_of(progress.ended_at),
        micro_batches=1,
        records_in=progress.rows,
        durations={key_of(phase, taken): 1 for phase, taken in times.items()},
        last_batch_at=progress.ended_at,
        backlog=progress.backlog.size,
        backlog_unit=progress.backlog.unit,
        watermark=progress.watermark,
        observed=True,
    )
