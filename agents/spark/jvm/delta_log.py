"""The log of a Delta table: the numbers of its idempotent writes."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.catalyst import to_list
from arrester.agents.spark.jvm.classes import jvm_class

_DELTA_LOG = "org.apache.spark.sql.delta.DeltaLog"


def last_version(spark: SparkSession, location: str, application: str) -> int | None:
    """Return the last `txnVersion` that a table has of a `txnAppId`, None if it has none."""
    log: Any = jvm_class(spark._jvm, _DELTA_LOG).forTable(spark._jsparkSession, location)
    transactions = to_list(log.unsafeVolatileSnapshot().setTransactions())
    versions = [each.version() for each in transactions if each.appId() == application]
    return max(versions, default=None)
