"""The native expression of framed values, which follows the versions of the registry."""

from __future__ import annotations

import logging
import time
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.schema_registry.errors import (
    InvalidFrame,
    SchemaRegistryUnavailable,
    UnknownSchemaId,
    raised,
)
from arrester.agents.schema_registry.framed_values import FramedValues
from arrester.agents.spark.jvm.plans.prepared_expressions import PreparedExpressions

_log = logging.getLogger("arrester.thread")

#: A zero byte and four bytes of schema id.
_HEADER_BYTES: Final = 5
#: A registry that does not answer is not asked again before each micro-batch.
_ASK_AGAIN_SECONDS: Final = 10.0


class FramedExpression:
    """The expression of a step; `refresh` replaces it when the registry has further versions."""

    def __init__(self, name: str, framed: FramedValues, shape: DataFrame) -> None:
        """Ask for the schemas.

        Raises SchemaRegistryUnavailable; LookupError if there are none; TypeError for a column of
        another type, and PySparkException for an unknown one.
        """
        [value] = shape.select(framed.value).schema
        if value.dataType != T.BinaryType():
            raise TypeError(
                f"{value.name} is {value.dataType.simpleString()}; framed values are binary"
            )
        self._name = name
        self._framed = framed
        self._shape = shape
        self._known = dict(framed.look_up())
        if not self._known:
            raise LookupError(f"{framed.origin} has no {framed.format} schema")
        #: The newest schema at the start; it stays the same until the pipeline is defined again.
        self._newest = list(self._known.values())[-1]
        #: Why the last question was not answered.
        self.unavailable: SchemaRegistryUnavailable | None = None
        self._ask_at = 0.0
        self.column = self._column()
        #: The column, analysed once; None: it is analysed for each micro-batch.
        self.prepared: PreparedExpressions | None = None

    def prepare(self) -> None:
        """Analyse the column; raises PySparkException if Spark refuses it."""
        self.prepared = PreparedExpressions.of(self._shape, {self._name: self.column})

    def refresh(self) -> bool:
        """Ask for further schemas; return whether the expression has changed."""
        if self.unavailable is not None and time.monotonic() < self._ask_at:
            return False
        try:
            found = self._framed.look_up()
        except SchemaRegistryUnavailable as exc:
            if self.unavailable is None:
                _log.warning("%s; %s known schemas are used", exc, len(self._known))
            self.unavailable, self._ask_at = exc, time.monotonic() + _ASK_AGAIN_SECONDS
            return False
        self.unavailable = None
        new = found.keys() - self._known.keys()
        if not new:
            return False
        _log.info(
            "deserialize %r: new schema ids %s of %s", self._name, sorted(new), self._framed.origin
        )
        # A registry may forget a version, but its id keeps its meaning.
        self._known |= found
        self.column = self._column()
        self.prepare()
        return True

    def raise_if_unavailable(self) -> None:
        """Raise why the last question was not answered; the next `refresh` asks again."""
        if self.unavailable is not None:
            self._ask_at = 0.0
            raise self.unavailable

    def _column(self) -> Column:
        value = self._framed.value
        header = F.substring(value, 1, _HEADER_BYTES)
        content = value.substr(F.lit(_HEADER_BYTES + 1), F.length(value))
        size = F.length(value).cast("string")
        no_frame = raised(
            InvalidFrame,
            F.lit("a framed value begins with a zero byte and a schema id of 4 bytes; this has "),
            size,
            F.lit(" bytes and begins with "),
            F.hex(header),
        )
        unknown = raised(
            UnknownSchemaId,
            F.lit("the schema id "),
            F.conv(F.hex(F.substring(value, 2, _HEADER_BYTES - 1)), 16, 10),
            F.lit(f" is unknown: {self._framed.origin} does not have it"),
        )
        is_framed = (F.length(value) >= _HEADER_BYTES) & (F.hex(F.substring(value, 1, 1)) == "00")
        cases = F.when(value.isNull(), F.lit(None)).when(~is_framed, no_frame)
        by_schema: dict[str, list[str]] = {}
        for id, text in self._known.items():
            by_schema.setdefault(text, []).append(f"{id:010X}")
        for text, headers in by_schema.items():
            parsed = self._framed.parsed(content, text, newest=self._newest)
            cases = cases.when(F.hex(header).isin(*headers), parsed)
        return cases.otherwise(unknown)
