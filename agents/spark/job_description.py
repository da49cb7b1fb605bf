"""The work in progress of a run: pipeline, input and phase, also as a description of Spark jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from msgspec.structs import replace
from pyspark.sql import SparkSession

from arrester.domain.durations import Phase
from arrester.domain.python_versions import UTC
from arrester.domain.wire.codec import InProgress

_DESCRIPTION: Final = "spark.job.description"
_GROUP: Final = "spark.jobGroup.id"
#: The input of jobs that process held records.
HELD_RECORDS: Final = "held records"
#: The measured phases, by their names in descriptions.
_PHASES: Final = {
    "evaluate": Phase.EVALUATE,
    "decide": Phase.DECIDE,
    "store decision": Phase.STORE,
    "write": Phase.WRITE,
    "fast path": Phase.WRITE,
}


@dataclass(slots=True)
class PhaseTimes:
    """How long each phase of one input took so far."""

    seconds: dict[Phase, float] = field(default_factory=dict)
    _phase: Phase | None = None
    _since: float = 0.0

    def begin(self, phase: Phase | None) -> None:
        """End the phase before, and begin this one."""
        now = time.monotonic()
        if self._phase is not None:
            earlier = self.seconds.get(self._phase, 0.0)
            self.seconds[self._phase] = earlier + now - self._since
        self._phase, self._since = phase, now


class JobDescription:
    """Describe the jobs of a run, as in "movies: batch 12, evaluate". The run lock is held."""

    def __init__(self, spark: SparkSession, pipeline: str) -> None:
        self._context = spark.sparkContext
        self._pipeline = pipeline
        #: The input that is processed; None between two. It can be read without the lock.
        self.in_progress: InProgress | None = None
        #: The durations of the input in progress, or of the last one.
        self.times = PhaseTimes()

    @contextmanager
    def of_batch(self, number: int) -> Iterator[None]:
        """Describe the jobs of this thread inside the block.

        Their job group stays Spark's own, by which it cancels the jobs of a micro-batch.
        """
        with self._of(f"batch {number}"):
            yield

    @contextmanager
    def of_held_records(self) -> Iterator[None]:
        """Describe the jobs of this thread inside the block; without a job group, they get one."""
        if self._context.getLocalProperty(_GROUP) is not None:
            with self._of(HELD_RECORDS):
                yield
            return
        self._context.setLocalProperty(_GROUP, f"{self._pipeline}: {HELD_RECORDS}")
        try:
            with self._of(HELD_RECORDS):
                yield
        finally:
            self._context.setLocalProperty(_GROUP, None)  # type: ignore[arg-type]  # removes it

    def phase(self, name: str) -> None:
        """Describe the next jobs of a block as a phase of its input."""
        if self.in_progress is not None:
            self.times.begin(_PHASES.get(name))
            self.in_progress = replace(self.in_progress, phase=name)
            text = f"{self._pipeline}: {self.in_progress.input}, {name}"
            self._context.setLocalProperty(_DESCRIPTION, text)

    @contextmanager
    def _of(self, input: str) -> Iterator[None]:
        before, outer = self._context.getLocalProperty(_DESCRIPTION), self.in_progress
        outer_times, self.times = self.times, PhaseTimes()
        self.in_progress = InProgress(pipeline=self._pipeline, input=input, since=datetime.now(UTC))
        try:
            yield
        finally:
            self.times.begin(None)
            if outer is not None:
                self.times = outer_times
            self.in_progress = outer
            self._context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None removes it
