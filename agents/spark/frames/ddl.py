"""Schemas written as text."""

from __future__ import annotations

from pyspark.sql import types as T


def parse_ddl(text: str) -> T.DataType:
    """Return the type of a text such as 'a INT, b STRING'; raises PySparkException."""
    # `StructType.fromDDL` exists since 4.0 and calls this.
    return T._parse_datatype_string(text)
