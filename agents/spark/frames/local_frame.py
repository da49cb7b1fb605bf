"""Frames of rows that the driver has."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from arrester.agents.spark.jvm.plans.catalyst import has_classic
from arrester.agents.worker.arrow_types import arrow_schema


def local_frame(
    spark: SparkSession, rows: Sequence[tuple[object, ...]], schema: T.StructType
) -> DataFrame:
    """Return a frame of some rows, without timestamps; a struct is a dict.

    Since 4.0, Spark takes Arrow data as a local relation. To broadcast 1,000 rows of it takes half
    the time that Spark needs to unpickle them in a job.
    """
    if has_classic(spark):
        # A text may have an unpaired surrogate, which Arrow refuses.
        with suppress(UnicodeEncodeError):
            return spark.createDataFrame(_table(rows, schema), schema)
    return spark.createDataFrame(rows, schema)


def _table(rows: Sequence[tuple[object, ...]], schema: T.StructType) -> pa.Table:
    as_arrow = arrow_schema(schema, timezone="UTC")
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(values, each.type) for values, each in zip(columns, as_arrow, strict=True)]
    return pa.Table.from_arrays(arrays, schema=as_arrow)
