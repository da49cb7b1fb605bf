"""A finished definition: a named, guarded dataflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame

from agents.handlers import Handler
from agents.sinks import Sink
from agents.steps import Step
from controlplane.domain.errors import ArresterError

#: Keyword arguments of Spark's `DataStreamWriter.trigger`.
Trigger = Mapping[str, Any]


class PipelineInvalid(ArresterError):
    """The definition of a pipeline does not hold together; the message names the step and why."""


class Runner(Protocol):
    """Starts finished pipelines: the agent."""

    def start_pipeline(
        self, pipeline: Pipeline, checkpoint: str, *, trigger: Trigger | None
    ) -> object:
        """Start one run of `pipeline` at `checkpoint`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A finished definition; it never changes."""

    name: str
    source: DataFrame
    #: None: the pipeline has one task, the global one.
    task: Column | None
    position: Column
    key: Column | None
    value: Column | None
    #: The source column that `key=` named, which redaction leaves visible.
    key_name: str | None
    #: What becomes of a record without a usable task or position.
    on_error: Handler | None
    steps: tuple[Step, ...]
    #: The names of the columns that the sink gets.
    columns: tuple[str, ...]
    sink: Sink
    runner: Runner | None = None

    def start(self, checkpoint: str, *, trigger: Trigger | None = None) -> object:
        """Start the pipeline as a streaming query with its state at `checkpoint`.

        `trigger` has the arguments of `DataStreamWriter.trigger`: `{"availableNow": True}`.
        """
        if self.runner is None:
            raise PipelineInvalid(f"pipeline {self.name} was not made by agent.pipeline()")
        return self.runner.start_pipeline(self, checkpoint, trigger=trigger)
