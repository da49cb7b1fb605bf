"""The definition of a pipeline, and the arguments of its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame

from arrester.agents.arguments import check_known, check_mapping, checked_path, wrong_type
from arrester.agents.definition.coordinates import SourceCoordinates
from arrester.agents.definition.sinks import Producer, Sink
from arrester.agents.definition.steps import DeserializeFramed, Native, Step, Transform
from arrester.agents.handlers import Handler
from arrester.agents.schema_registry.framed_expression import FramedExpression
from arrester.domain.errors import ArresterError, InvalidValue

#: Keyword arguments of Spark's `DataStreamWriter.trigger`.
Trigger = Mapping[str, Any]
#: The triggers with which Spark calls a function for each micro-batch.
TRIGGERS = ("processingTime", "availableNow", "once")
#: The methods that finish a pipeline, as messages name them.
SINKS = ".write, .write_files, .write_delta, .write_iceberg, .write_jdbc, .write_kafka or .produce"


class PipelineInvalid(ArresterError):
    """The definition of a pipeline is inconsistent. The message names the step and the reason."""


def checked_start(pipeline: object, checkpoint: object, trigger: object) -> str:
    """Return the checkpoint as text; raises for an invalid argument of a start."""
    if not isinstance(pipeline, Pipeline):
        raise wrong_type("pipeline", pipeline, f"a pipeline that {SINKS} has returned")
    if trigger is not None:
        _check_trigger(pipeline.source, trigger)
    return checked_path("checkpoint", checkpoint, "a folder of its own for each pipeline")


def _check_trigger(source: DataFrame, trigger: object) -> None:
    allowed = 'a mapping: {"processingTime": "10 seconds"} or {"availableNow": True}'
    check_mapping("trigger", trigger, allowed)
    given: Any = trigger
    for name in given:
        check_known("trigger", name, TRIGGERS, f"one of the keys {', '.join(TRIGGERS)}")
    try:
        source.writeStream.trigger(**given)
    except Exception as exc:  # PySpark's own checks and Java's
        reason = next(filter(None, str(exc).splitlines()), type(exc).__name__)
        raise InvalidValue("trigger", trigger, allowed, reason=f"{trigger!r}: {reason}") from exc


class Runner(Protocol):
    """Starts finished pipelines: the agent."""

    def start_pipeline(
        self, pipeline: Pipeline, checkpoint: str, *, trigger: Trigger | None, adopt: bool = False
    ) -> object:
        """Start one run of `pipeline` at `checkpoint`."""
        ...


# Compared by identity, since columns have no equality.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Definition:
    """The parts of a pipeline that its author defines before the sink."""

    name: str
    source: DataFrame
    #: The key of a record's task; None: the pipeline has one task, the global one.
    task: Column | None
    position: Column
    key: Column | None
    value: Column | None
    #: The source column that `key=` named, which redaction leaves visible.
    key_name: str | None
    #: All columns, fields and string literals in `key=`.
    key_names: tuple[str, ...]
    #: Decides about a record without a usable task or position.
    on_error: Handler | None
    steps: tuple[Step, ...] = ()
    runner: Runner | None = None
    #: Names and paths that do not leave the driver, in addition to the configuration's.
    redact: Sequence[str] = ()
    #: The fields of which values may leave the driver; None: all.
    show: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pipeline(Definition):
    """A finished definition. Only the schemas of framed values change while it runs."""

    #: The names of the columns that the sink gets.
    columns: tuple[str, ...]
    sink: Sink | Producer
    #: Set if task and position are plain columns of the source.
    source_coordinates: SourceCoordinates | None = None

    @property
    def final_transform(self) -> Transform | None:
        """The last step if it is a transform: its rows go to the sink only."""
        last = self.steps[-1] if self.steps else None
        return last if isinstance(last, Transform) else None

    @property
    def guarded_steps(self) -> tuple[Step, ...]:
        """The steps before the final transform. Their rows keep the record that they belong to."""
        return self.steps if self.final_transform is None else self.steps[:-1]

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of its stages, by number: first the source, last the sink."""
        return ("source", *[step.stage for step in self.steps], "produce")

    @property
    def produce_number(self) -> int:
        """The number of the sink, which follows the steps."""
        return len(self.steps) + 1

    def at(self, checkpoint: str) -> Pipeline:
        """Return the pipeline for a checkpoint, by its id."""
        return replace(self, sink=self.sink.at(checkpoint))

    def is_native(self, number: int) -> bool:
        """Whether the step is an expression, whose exception is reproduced on the driver."""
        if not 0 < number < self.produce_number:
            return False
        return isinstance(self.steps[number - 1], Native)

    @property
    def framed(self) -> Mapping[int, FramedExpression]:
        """The expressions that change with the schemas of a registry, by number of their step."""
        return {
            number: step.framed
            for number, step in enumerate(self.steps, 1)
            if isinstance(step, DeserializeFramed)
        }

    def start(
        self, checkpoint: str, *, trigger: Trigger | None = None, adopt: bool = False
    ) -> object:
        """Start the pipeline as a streaming query with its state at `checkpoint`.

        `trigger` has the arguments of `DataStreamWriter.trigger`: `{"availableNow": True}`. `adopt`
        accepts a checkpoint of another name, which it renames with its held records and tasks, and
        the checkpoint of a plain Spark query. Without it both raise CheckpointUnusable.
        """
        if not self.source.isStreaming:
            raise PipelineInvalid(
                f"pipeline {self.name} has a static source: run(checkpoint=…) takes it once through"
            )
        return self._runner().start_pipeline(self, checkpoint, trigger=trigger, adopt=adopt)

    def run(self, checkpoint: str, *, adopt: bool = False) -> object:
        """Process a static source once, with the state at `checkpoint`.

        All of it is one micro-batch, decided as in a stream. Afterwards tasks with held records
        wait for an operator, and `agent.await_termination()` returns. A second run on the same
        checkpoint repeats an unfinished pass by the recorded decisions. After a finished pass it
        gives the sink no source rows, only processes held records, and ends as ALREADY_FINISHED.
        A repeated run over another source raises CheckpointUnusable: new input needs a new
        checkpoint. `adopt` is that of `start`; it also accepts another source after a finished
        pass.
        """
        if self.source.isStreaming:
            raise PipelineInvalid(
                f"pipeline {self.name} has a stream as its source: start(checkpoint=…) runs it"
            )
        return self._runner().start_pipeline(self, checkpoint, trigger=None, adopt=adopt)

    def _runner(self) -> Runner:
        if self.runner is None:
            raise PipelineInvalid(f"pipeline {self.name} was not made by agent.pipeline()")
        return self.runner
