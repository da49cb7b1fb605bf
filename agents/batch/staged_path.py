"""The staged path: evaluate each record once, stage the rows that pass, collect the others.

One job does both. The sink shows the staged rows once the decision about the others is durable.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.batch.record_columns import with_internal_columns, with_outcome
from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.definition.checks import empty_frame
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Sink
from arrester.agents.definition.steps import Native, Process, Step
from arrester.agents.definition.stores.staged_write import StagedWrite
from arrester.agents.execution.row_steps import (
    after_steps,
    is_internal,
    packed_after_python,
    source_columns,
)
from arrester.agents.execution.step_runner import segments
from arrester.agents.failures.failure_set import DRIVER_LIMIT, fits_driver
from arrester.agents.failures.record_hash import RecordHash
from arrester.agents.spark.frames.column_names import quoted, with_columns_named
from arrester.agents.spark.frames.local_checkpoint import ID
from arrester.agents.spark.jvm.plans.row_collector import RowCollector
from arrester.agents.spark.jvm.plans.row_counter import RowCounter
from arrester.agents.spark.jvm.stored_rows import of_arrow_streams, partitions_of_input
from arrester.agents.spark.sources.source_reads import SourceReads
from arrester.agents.worker.columns import HELD, OUTCOME, PACKED, RETRIES, SOURCE
from arrester.domain.error_policy.policy import Policy

#: At most this many bytes of rows are collected on the driver.
_BYTES: Final = 32 * 2**20


@dataclass(slots=True, kw_only=True)
class StagedPath:
    """The steps of a pipeline as a plan that leaves the rows for the sink.

    One object serves all micro-batches.
    """

    pipeline: Pipeline
    policy: Policy
    collector: RowCollector
    #: Counts the records of all micro-batches.
    counter: RowCounter
    #: An empty frame with the columns of collected rows.
    shape: DataFrame = field(init=False)
    #: The schema of the records in PACKED; None: the rows are collected themselves.
    packed: T.StructType | None = field(init=False)
    #: The conditions of the filter that leaves the rows for the sink, by the limit of a Spark task.
    _conditions: dict[int, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        marked, self.packed = self._marked(empty_frame(self.pipeline.source), ())
        columns = [column.alias(name) for name, column in self._collected(marked).items()]
        self.shape = marked.select(*columns)

    @classmethod
    def of(cls, pipeline: Pipeline, policy: Policy) -> StagedPath | None:
        """Return the staged path; None if the sink cannot stage, or for some steps.

        It goes on after a failed record. Expressions that then need a new copy take more time for
        each record, so their pipelines end a micro-batch at the first one. So do native steps after
        Python ones: Python would have to return the source's columns with each row.
        """
        spark, sink = pipeline.source.sparkSession, pipeline.sink
        if not isinstance(sink, Sink) or not sink.store.can_stage(spark):
            return None
        *first, last = [(), *(steps for _, steps in segments(pipeline.steps, first=0))]
        if pipeline.source_coordinates is None or not all(map(_goes_on, chain(*first))):
            return None
        if not all(isinstance(step, Process) or _goes_on(step) for step in last):
            return None
        return cls(
            pipeline=pipeline,
            policy=policy,
            collector=RowCollector(spark),
            counter=RowCounter(spark, name=None, counts_failed_tasks=False),
        )

    def open_staged_write(self) -> StagedWrite:
        """Return a new write of the sink."""
        assert isinstance(self.pipeline.sink, Sink)
        return self.pipeline.sink.store.open_staged_write(self.pipeline.source.sparkSession)

    def reads(self, source: DataFrame) -> SourceReads:
        """Return a counter of the records that the next job reads."""
        return SourceReads(source, counter=self.counter)

    def frame(self, source: DataFrame, blocked: Collection[str | None]) -> DataFrame:
        """Return the rows for the sink. The job that evaluates them collects the others."""
        self.collector.begin()
        marked, _ = self._marked(source, blocked)
        left = marked.where(self._is_left(marked, partitions_of_input(source)))
        return with_columns_named(left, self.pipeline.columns)

    def evaluated(self, *, records: int, record_hash: RecordHash) -> Evaluated | None:
        """Return the records that the last job collected, of all `records`; None: too many."""
        if not self.collector.count:
            return Evaluated(rows=self.shape, blocks=(), records=records)
        rows = self.collector.rows(self.shape)
        if rows is None:
            return None
        if self.packed is not None:
            ids = [row[ID] for row in rows.select(ID).collect()]
            rows = of_arrow_streams(rows, PACKED, self.packed)
            found = rows.select(*self._counted(rows)).collect()
        else:
            found = rows.select(ID, *self._counted(rows)).collect()
            ids = [row[ID] for row in found]
        if len(set(ids)) < len(ids):
            # Spark repeated a part of this job, whose result may have changed.
            return None
        if not fits_driver(len(found)):
            return None
        held = sum(row[OUTCOME] == HELD for row in found)
        return Evaluated(
            rows=rows,
            add_internal_columns=partial(
                with_internal_columns,
                source_names=self.pipeline.source.columns,
                coordinates=self.pipeline.source_coordinates,
            ),
            blocks=(),
            records=records,
            failed=sum(row[OUTCOME] is not None for row in found) - held,
            held=held,
            retries=sum(row[RETRIES] for row in found),
            on_driver=True,
            record_hash=record_hash,
            evaluated=records - held,
        )

    def _marked(
        self, source: DataFrame, blocked: Collection[str | None]
    ) -> tuple[DataFrame, T.StructType | None]:
        """Return all rows after the steps, each with its outcome; see `packed_after_python`."""
        names, packed = self.pipeline.source.columns, None
        frame = with_outcome(source, self.pipeline, blocked, None)
        for number, steps in segments(self.pipeline.steps, first=SOURCE + 1):
            if isinstance(steps[0], Process):
                frame, packed = packed_after_python(
                    frame, steps, policy=self.policy, first=number, source_names=names
                )
            else:
                frame = after_steps(
                    frame, steps, policy=self.policy, first=number, source_names=names
                )
        return frame, packed

    @staticmethod
    def _counted(rows: DataFrame) -> tuple[Column, Column]:
        """Return the columns of collected rows that the counts are made of."""
        retries = F.col(RETRIES) if RETRIES in rows.columns else F.lit(0)
        return F.col(OUTCOME), retries.alias(RETRIES)

    def _collected(self, marked: DataFrame) -> dict[str, Column]:
        """Return the columns of collected rows: those of the source, the internal ones, and ID."""
        if PACKED in marked.columns:
            return {ID: F.monotonically_increasing_id(), PACKED: F.col(PACKED)}
        sources = source_columns(marked.columns, self.pipeline.source.columns)
        copies = set(sources.values())
        internal = [name for name in marked.columns if is_internal(name) and name not in copies]
        return {
            ID: F.monotonically_increasing_id(),
            **{name: F.col(name) for name in internal},
            **{name: quoted(column) for name, column in sources.items()},
        }

    def _is_left(self, marked: DataFrame, partitions: int) -> Column:
        # Few limits, so that Spark compiles the condition rarely.
        tasks = 1 << max(0, partitions - 1).bit_length()
        if tasks not in self._conditions:
            self._conditions[tasks] = self.collector.is_left(
                F.col(OUTCOME if self.packed is None else PACKED).isNotNull(),
                self._collected(marked),
                rows=max(1, DRIVER_LIMIT // tasks),
                size=max(1, _BYTES // tasks),
            )
        return self._conditions[tasks]


def _goes_on(step: Step) -> bool:
    """Whether a step evaluates the record after a failed one as fast as any other."""
    if not isinstance(step, Native) or step.prepared is None:
        return False
    return step.prepared.isolated is None
