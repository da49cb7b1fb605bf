"""UTF-8 in columns of text."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def is_valid_utf8(text: Column) -> Column:
    """Return whether a string is valid UTF-8, NULL for NULL."""
    if hasattr(F, "is_valid_utf8"):
        return F.is_valid_utf8(text)
    # Before 4.0, decoding replaces invalid bytes.
    raw = text.cast("binary")
    return F.encode(F.decode(raw, "UTF-8"), "UTF-8") == raw
