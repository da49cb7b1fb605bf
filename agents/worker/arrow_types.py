"""Arrow's schema for a Spark schema, with each version of PySpark."""

from __future__ import annotations

from inspect import signature
from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

# Before 4.2, PySpark marks timestamps with UTC instead. The instants are the same.
_TAKES_TIMEZONE = "timezone" in signature(to_arrow_schema).parameters


def arrow_schema(schema: StructType, *, timezone: str) -> Any:
    """Return the Arrow schema; raises PySparkException for a type that Arrow cannot carry."""
    options: dict[str, Any] = {"timezone": timezone} if _TAKES_TIMEZONE else {}
    return to_arrow_schema(schema, **options)
