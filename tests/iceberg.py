"""Iceberg for the Spark of the tests, from `scripts/jars`, and catalogs in folders."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.services import REPOSITORY


def archives() -> list[Path]:
    """Return the archives for this Spark; none if they are not downloaded."""
    minor = ".".join(version("pyspark").split(".")[:2])
    return sorted((REPOSITORY / f"build/jars/iceberg-{minor}").glob("*.jar"))


def catalog(name: str, warehouse: Path) -> dict[str, Any]:
    """Return the settings of a catalog whose tables are folders below `warehouse`."""
    setting = f"spark.sql.catalog.{name}"
    return {
        setting: "org.apache.iceberg.spark.SparkCatalog",
        f"{setting}.type": "hadoop",
        f"{setting}.warehouse": str(warehouse),
    }
