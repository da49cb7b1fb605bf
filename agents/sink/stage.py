"""The sink stage: write a batch, or send its records one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.definition.sinks import Producer
from arrester.agents.failures.aggregate_in_spark import Coordinates
from arrester.agents.sink.batch_writer import BatchWriter
from arrester.agents.sink.probe import SinkProbes
from arrester.agents.sink.record_sender import RecordSender
from arrester.agents.sink.stage_rules import StageRules, UndeliveredRows


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStage(StageRules):
    """Write the rows that passed the steps of one pipeline in one run."""

    probes: SinkProbes

    def write(
        self, evaluated: Evaluated, held: Column | None, number: int, blamed: Sequence[Coordinates]
    ) -> Iterator[UndeliveredRows]:
        """Write the rows that passed and are not `held`; yield each decision about rejected rows.

        None: nothing is held. The caller commits a decision before it requests the next. Raises
        SinkFailed, RecordFatal, SelfHealing, or an exception of `check`.
        """
        sink = self.pipeline.sink
        if isinstance(sink, Producer):
            held = F.lit(False) if held is None else held
            yield from RecordSender(rules=self, producer=sink).run(evaluated, held, blamed)
            return
        probe = self.probes.start_probe(sink, self.stage.policy)
        atomic = sink.is_atomic(self.pipeline.source.sparkSession)
        writing = BatchWriter(rules=self, sink=sink, number=number, probe=probe, atomic=atomic)
        yield from writing.run(evaluated, held, blamed)
