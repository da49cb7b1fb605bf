"""The steps of a pipeline, as its author gave them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as T

from agents.handlers import Handler

Row = dict[str, Any]
UserFunction = Callable[[Row], Row | Iterable[Row] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deserialize:
    """A native step: one expression whose result becomes the column `name`."""

    name: str
    expression: Column
    #: What the author gave; None: the configuration's handler, else FAIL.
    on_error: Handler | None

    @property
    def stage(self) -> str:
        """The stage that failures of this step are told under."""
        return "deserialize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A Python step: a function from a row to a row, to None or to several rows."""

    name: str
    function: UserFunction
    #: The columns that the function returns.
    schema: T.StructType
    on_error: Handler | None

    @property
    def stage(self) -> str:
        """The stage that failures of this step are told under."""
        return f"process:{self.name}"


Step = Deserialize | Process
