"""The session that is active in a thread."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.plans.catalyst import has_classic

_CLASSIC = "org.apache.spark.sql.classic.SparkSession"
_BEFORE_4 = "org.apache.spark.sql.SparkSession"


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread.

    Before Spark 4.0 a Column has the ANSI mode of the session that is active where it is made, and
    a thread that Python starts has none: an invalid cast would give NULL.
    """
    sessions: Any = jvm_class(spark._jvm, _CLASSIC if has_classic(spark) else _BEFORE_4)
    sessions.setActiveSession(spark._jsparkSession)
