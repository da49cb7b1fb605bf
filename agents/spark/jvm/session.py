"""Facts about a session that its JVM has."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import jvm_class

_DATA_SOURCE = "org.apache.spark.sql.execution.datasources.DataSource"


def session_id(spark: SparkSession) -> str:
    """Return the unique ID of a session."""
    session: Any = spark._jsparkSession
    return str(session.sessionUUID())


def has_data_source(spark: SparkSession, name: str) -> bool:
    """Whether Spark finds a data source of this name."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    try:
        jvm_class(jvm, _DATA_SOURCE).lookupDataSource(name, session.sessionState().conf())
    except (Py4JJavaError, PySparkException):
        return False
    return True
