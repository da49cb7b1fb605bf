"""The run events of one run: its start, its failed records and its end."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from pyspark.sql import SparkSession

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.lineage.datasets import Dataset, inputs_of, outputs_of
from arrester.agents.lineage.emitter import Emitter, emitter_of, namespace_of
from arrester.agents.lineage.reports import ParentRun, Report, StageResult, State
from arrester.agents.runtime.thread_protocol import ThreadEnd
from arrester.domain.events import Event, FailuresCounted, FinalResponse, RecordFailed, Run
from arrester.domain.identity import uuids

_log = logging.getLogger("arrester.lineage")

#: RUNNING is reported at most so often, and only after failed records.
INTERVAL: Final = timedelta(minutes=1)
#: From the weakest to the strongest.
_STRENGTH: Final = (FinalResponse.CONTINUE, FinalResponse.PAUSE, FinalResponse.FAIL)
#: The settings by which Airflow and others name the run that submits a Spark application.
_PARENT: Final = tuple(
    f"spark.openlineage.{name}" for name in ("parentJobNamespace", "parentJobName", "parentRunId")
)


@dataclass(slots=True, kw_only=True)
class RunLineage:
    """Reports one run to OpenLineage."""

    emitter: Emitter
    run: UUID
    job: str
    streaming: bool
    spark: str
    parent: ParentRun | None
    inputs: list[Dataset]
    outputs: list[Dataset]
    stages: tuple[str, ...]
    _failed: Counter[str] = field(default_factory=Counter, init=False)
    _responses: dict[str, FinalResponse] = field(default_factory=dict, init=False)
    _reported_at: datetime | None = field(default=None, init=False)

    def decided(self, events: Sequence[Event], at: datetime) -> None:
        """Count the failed records of a durable decision, and report RUNNING from time to time."""
        before = self._failed.total()
        for event in events:
            if isinstance(event.data, RecordFailed | FailuresCounted):
                self._count(event.data)
        is_due = self._reported_at is None or at - self._reported_at >= INTERVAL
        if self._failed.total() > before and is_due:
            self._reported_at = at
            self.emit("RUNNING", at)

    def end(self, end: ThreadEnd, *, at: datetime) -> None:
        """Report the end: ABORT if data is left that the run was to process."""
        if end.failure is not None:
            error = f"{end.failure.exception_class} at {end.failure.stage}"
            self.emit("FAIL", at, error=error)
        elif end.finished or (self.streaming and not end.superseded):
            self.emit("COMPLETE", at)
        else:
            self.emit("ABORT", at)

    def _count(self, data: RecordFailed | FailuresCounted) -> None:
        stage, response = data.failure.stage, data.response
        self._failed[stage] += data.count
        earlier = self._responses.get(stage, FinalResponse.CONTINUE)
        self._responses[stage] = max(earlier, response, key=_STRENGTH.index)

    def emit(self, state: State, at: datetime, *, error: str | None = None) -> None:
        """Report a state of the run, with its failed records so far."""
        names = dict.fromkeys([*self.stages, *self._failed])
        report = Report(
            state=state,
            at=at,
            run=self.run,
            namespace=namespace_of(os.environ),
            job=self.job,
            streaming=self.streaming,
            spark=self.spark,
            parent=self.parent,
            inputs=self.inputs,
            outputs=self.outputs,
            results=[
                StageResult(
                    stage, self._failed[stage], self._responses.get(stage, FinalResponse.CONTINUE)
                )
                for stage in names
            ],
            error=error,
        )
        self.emitter.emit(report)


def begin_lineage(
    pipeline: Pipeline, run: Run, *, application: str, at: datetime
) -> RunLineage | None:
    """Report that a run begins, and return its lineage; None if no run events are wanted."""
    emitter = emitter_of(application)
    if emitter is None:
        return None
    spark = pipeline.source.sparkSession
    lineage = RunLineage(
        emitter=emitter,
        run=run_id(application, run, at),
        job=f"{application}.{pipeline.name}",
        streaming=pipeline.source.isStreaming,
        spark=spark.version,
        parent=_parent(spark),
        inputs=_named(pipeline, inputs_of),
        outputs=_named(pipeline, outputs_of),
        stages=pipeline.stages,
    )
    lineage.emit("START", at)
    return lineage


def run_id(application: str, run: Run, at: datetime) -> UUID:
    """Return the id of a run: a UUID, since OpenLineage has no other ids."""
    return uuids.commit_id(
        at,
        application=application,
        pipeline=run.pipeline,
        checkpoint=run.checkpoint,
        entry=run.epoch,
        part="run",
    )


def _named(pipeline: Pipeline, find: Callable[[Pipeline], list[Dataset]]) -> list[Dataset]:
    try:
        return find(pipeline)
    except Exception:  # of the plan of a source that is not known
        _log.debug("%s: its datasets are not known", pipeline.name, exc_info=True)
        return []


def _parent(spark: SparkSession) -> ParentRun | None:
    namespace, job, run = (spark.conf.get(name, None) for name in _PARENT)
    with suppress(ValueError):
        if namespace and job and run:
            return ParentRun(namespace, job, UUID(run))
    return None
