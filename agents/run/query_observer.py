"""Report what flows through the unguarded streaming queries of a session, and how they end."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from arrester.agents.failures.fingerprints import failure_at
from arrester.agents.spark.jvm.exceptions.problems import problem_of_query
from arrester.agents.spark.query_progress import Progress, progress_of
from arrester.agents.transport.flow_store import FlowStore, Measured, minute_of
from arrester.domain.durations import Phase, key_of
from arrester.domain.events import (
    Body,
    EventData,
    FlowMeasured,
    Run,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.identity.names import NAME

_log = logging.getLogger("arrester.agent")

_INVALID = re.compile(r"[^a-z0-9.-]+")


class Emit(Protocol):
    """Emits one event of a run."""

    def __call__(self, *data: EventData, run: Run, body: Body | None = None) -> None:
        """Emit it."""


class QueryObserver(StreamingQueryListener):
    """Adds each progress report of an unguarded query to the flow of its minute, and reports how
    the query ended.

    Spark delivers reports later, and may drop some if its queue is full.
    """

    def __init__(
        self, spark: SparkSession, *, store: FlowStore, instance: UUID, emit: Emit
    ) -> None:
        self._spark = spark
        self._store = store
        self._instance = instance
        self._emit = emit
        #: The queries that run, by the id of their run, and the name of each.
        self._queries: dict[str, tuple[StreamingQuery, Run]] = {}

    def start(self) -> None:
        """Begin to observe; also the queries that run already."""
        self._spark.streams.addListener(self)
        for query in self._spark.streams.active:
            self._begin(query)

    def stop(self) -> None:
        """End the observation; never raises, because the session may have been stopped."""
        _try(lambda: self._spark.streams.removeListener(self))
        # A copy: Spark's thread may still report the end of one.
        for id, (_, run) in list(self._queries.items()):
            if self._queries.pop(id, None) is not None:
                self._emit(ThreadDied(reason="the agent that observed it has ended"), run=run)

    def onQueryStarted(self, event: Any) -> None:
        """Report the start of a query."""
        _try(lambda: self._begin(self._spark.streams.get(str(event.id))))

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """Add a report."""
        _try(lambda: self._add(event.progress.json))

    def onQueryTerminated(self, event: Any) -> None:
        """Report the end of a query, with its exception if it has one."""
        query, run = self._queries.pop(str(event.runId), (None, None))
        if query is not None and run is not None:
            _try(lambda: self._end(query, run))

    def _begin(self, query: StreamingQuery | None) -> None:
        if query is None or str(query.id) in self._store.guarded:
            return
        run = _run_of(query.name, str(query.id))
        if self._queries.setdefault(str(query.runId), (query, run))[0] is query:
            self._emit(ThreadStarted(observed=True), run=run)

    def _end(self, query: StreamingQuery, run: Run) -> None:
        problem = problem_of_query(self._spark, query)
        if problem is None:
            self._emit(ThreadDied(reason="the query has come to its end, or was stopped"), run=run)
            return
        died = ThreadDied(
            reason=problem.line, failure=failure_at("unknown", problem), recordless=True
        )
        body = None if problem.stack is None else Body(stack=problem.stack)
        self._emit(died, run=run, body=body)

    def _add(self, report: str) -> None:
        query, progress = str(json.loads(report)["id"]), progress_of(report)
        if query in self._store.guarded or not progress.is_batch:
            return
        run = _run_of(progress.name, query)
        measured = Measured(instance=self._instance, run=run, flow=_flow_of(progress))
        self._store.add(measured)


def _try(report: Callable[[], None]) -> None:
    """Do it; never raises: Spark would log it as an error of its own, and a guest may not break the
    end of its driver."""
    try:
        report()
    except Exception:
        _log.debug("a query cannot be observed", exc_info=True)


def _run_of(name: str | None, query: str) -> Run:
    return Run(pipeline=_pipeline_of(name, query), checkpoint=query, epoch=0)


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
    )
