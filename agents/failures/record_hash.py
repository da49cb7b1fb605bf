"""The hash of a source record, which differs between two records at the same position."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame

from arrester.agents.spark.frames.column_names import in_quotes
from arrester.agents.spark.jvm.plans.determinism import repeatable_columns
from arrester.agents.worker.columns import POSITION, ROW, TASK


@dataclass(frozen=True)
class RecordHash:
    """Hashes task, position and all repeatable columns of the records of a source."""

    source: DataFrame

    # Needed only after a failure: the search in the plan takes many calls to the JVM.
    @cached_property
    def _columns(self) -> tuple[str, ...]:
        return repeatable_columns(self.source)

    @cached_property
    def sql(self) -> str:
        """The hash of a row of an evaluated frame, a `bigint`."""
        # As SQL: Columns of many fields would take a hundred JVM calls.
        values = [TASK, POSITION, *(f"{ROW}.{in_quotes(name)}" for name in self._columns)]
        return f"xxhash64({', '.join(values)})"

    @cached_property
    def columns_digest(self) -> str:
        """Identifies the types of the hashed columns: hashes of others cannot be compared."""
        types = [self.source.schema[name].simpleString() for name in self._columns]
        return hashlib.sha256("\0".join(types).encode()).hexdigest()[:16]
