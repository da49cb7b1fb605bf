"""Delta Lake for the Spark of the tests, from `scripts/jars`."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.services import REPOSITORY


def archives() -> list[Path]:
    """Return the archives for this Spark; none if they are not downloaded."""
    minor = ".".join(version("pyspark").split(".")[:2])
    return sorted((REPOSITORY / f"build/jars/delta-{minor}").glob("*.jar"))


def configuration() -> dict[str, Any]:
    """Return the settings of a session with Delta tables; none without the archives."""
    if not archives():
        return {}
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # The state of a table is small here.
        "spark.databricks.delta.snapshotPartitions": "1",
    }
