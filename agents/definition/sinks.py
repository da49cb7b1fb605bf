"""The sinks of a pipeline: a store that gets micro-batches, or a function of single rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from arrester.agents.config import dotted_path
from arrester.agents.definition.stores.sink_store import (
    BatchStore,
    ProbeFunction,
    ScratchFolder,
    SinkStore,
)
from arrester.agents.handlers import Handler
from arrester.agents.spark.sources.rows_read import call_with_all_rows
from arrester.domain.error_policy.policy import Response
from arrester.domain.errors import InvalidValue

SinkFunction = Callable[[DataFrame, int], object]
#: Sends one row, a dict. Returns a future if the row has not arrived yet.
Send = Callable[[dict[str, Any]], object]
#: Opens a client for each Spark partition: a context manager that gives a `Send`.
Connect = Callable[[], AbstractContextManager[Send]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """The arguments of `.write`."""

    function: SinkFunction
    #: Whether a call that raises has left nothing behind.
    atomic: bool = False
    #: Whether the function may return without having read all rows.
    partial: bool = False
    #: The author's probe, which tries rows independently of any number.
    probe: ProbeFunction | None = None
    #: The production handler of the sink; None: the one of the configuration.
    on_error: Handler | None = None
    #: Responses by class or condition, before `on_error`.
    on: Mapping[str, Response] = field(default_factory=dict)

    @property
    def store(self) -> BatchStore:
        """What it writes into."""
        function = self.function
        return function if isinstance(function, BatchStore) else _AuthorsFunction(self)

    def __call__(self, df: DataFrame, number: int) -> None:
        """Write `df` under its number. The caller interprets exceptions of the sink.

        Raises RowsUnread if the author's function returns before it has read all rows.
        """
        self.store(df, number)

    def at(self, checkpoint: str) -> Sink:
        """Return the sink for the numbers of a checkpoint, by its id."""
        if isinstance(self.function, BatchStore):
            return replace(self, function=self.function.at(checkpoint))
        return self

    def is_atomic(self, spark: SparkSession) -> bool:
        """Whether writes in this session are all or nothing."""
        return self.atomic and self.store.is_atomic(spark)


@dataclass(frozen=True, slots=True)
class _AuthorsFunction(BatchStore):
    """The author's function, with what the author promises."""

    sink: Sink

    def __call__(self, df: DataFrame, number: int) -> None:
        if self.sink.partial:
            self.sink.function(df, number)
        else:
            call_with_all_rows(lambda rows: self.sink.function(rows, number), df)

    @property
    def label(self) -> str:
        return dotted_path(self.sink.function)

    def probe(self, scratch: ScratchFolder) -> ProbeFunction | None:
        return self.sink.probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer(SinkStore):
    """The arguments of `.produce`: a function that sends one row, or one that opens a client."""

    send: Send | None
    connect: Connect | None
    #: The production handler; None: the one of the configuration.
    on_error: Handler | None = None
    #: Responses by class or condition, before `on_error`.
    on: Mapping[str, Response] = field(default_factory=dict)

    @property
    def store(self) -> SinkStore:
        """What it writes into: itself."""
        return self

    @property
    def function(self) -> object:
        """The author's function."""
        return self.send if self.connect is None else self.connect

    @property
    def label(self) -> str:
        """The dotted path of the author's function."""
        return dotted_path(self.function)

    def at(self, checkpoint: str) -> Producer:
        """Return the same: it has no numbers."""
        return self

    def is_atomic(self, spark: SparkSession) -> bool:
        """Return False: a sent row cannot be withdrawn."""
        return False

    def check(self, spark: SparkSession) -> None:
        """Raise InvalidValue if Spark could send one record twice at the same time."""
        name = "spark.speculation"
        if spark.sparkContext.getConf().get(name, "false").lower() == "true":
            allowed = "false where a pipeline produces: the order of its records would be lost"
            raise InvalidValue(name, "true", allowed)
