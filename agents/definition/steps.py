"""The steps of a pipeline, as given by its author."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from arrester.agents.handlers import Handler
from arrester.agents.schema_registry.framed_expression import FramedExpression
from arrester.agents.spark.jvm.plans.prepared_expressions import PreparedExpressions
from arrester.domain.error_policy.policy import Response

Row = dict[str, Any]
UserFunction = Callable[[Row], Row | Iterable[Row] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    name: str
    #: The author's handler; None: the one of the configuration, else FAIL.
    on_error: Handler | None
    #: Responses by class or condition, before `on_error`.
    on: Mapping[str, Response] = field(default_factory=dict)

    @property
    def stage(self) -> str:
        """The stage under which failures of this step are reported."""
        return f"process:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deserialize(_Step):
    """A native step: one expression whose result becomes the column `name`."""

    expression: Column
    #: The expressions, analysed once; None: they are analysed for each micro-batch.
    prepared: PreparedExpressions | None = field(default=None, repr=False, compare=False)

    @property
    def stage(self) -> str:
        """The stage under which failures of this step are reported."""
        return "deserialize"

    @property
    def expressions(self) -> Mapping[str, Column]:
        """The columns that the step makes."""
        return {self.name: self.expression}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeserializeFramed(_Step):
    """A native step over framed values: its expression changes with the schemas of a registry."""

    #: The expression as text, for messages.
    expression: str
    framed: FramedExpression = field(repr=False)

    @property
    def stage(self) -> str:
        """The stage under which failures of this step are reported."""
        return "deserialize"

    @property
    def expressions(self) -> Mapping[str, Column]:
        """The column that the step makes, by the schemas that are known now."""
        return {self.name: self.framed.column}

    @property
    def prepared(self) -> PreparedExpressions | None:
        """As in `Deserialize`, by the schemas that are known now."""
        return self.framed.prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns(_Step):
    """A native step: several expressions over the columns so far, which fail together."""

    #: The columns that the step makes. None of them can use another one.
    expressions: Mapping[str, Column]
    #: As in `Deserialize`.
    prepared: PreparedExpressions | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(_Step):
    """A Python step: a function from a row to a row, None or several rows."""

    function: UserFunction
    #: The columns that the function returns.
    schema: T.StructType

    @property
    def retriable(self) -> tuple[str, ...]:
        """The names of classes that `on` makes retriable at this step."""
        return tuple(name for name, answer in self.on.items() if answer is Response.RETRY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform(_Step):
    """A function of a DataFrame that works row by row, or is declared not to."""

    function: Callable[[DataFrame], DataFrame]
    #: The columns that it returned in the dry run.
    schema: T.StructType
    #: Whether rows depend on each other, so that no record can be isolated.
    stateful: bool
    #: Whether an additional column passes through it, so that its rows keep their record.
    carries: bool


Native = Deserialize | DeserializeFramed | Columns
Step = Native | Process | Transform
