"""Addresses in object stores: as Spark has them, and as pyarrow reads them."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import urlsplit

#: pyarrow's scheme of each scheme of Spark.
SCHEMES: Final = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    "gs": "gs",
    **dict.fromkeys(("abfs", "abfss"), "abfss"),
}


def store_address(place: str) -> str | None:
    """Return an address with pyarrow's scheme; None if it is not in an object store."""
    scheme, _, rest = place.partition("://")
    return f"{SCHEMES[scheme]}://{rest}" if rest and scheme in SCHEMES else None


def is_plain(place: str) -> bool:
    """Whether no part of a path or an address leads to another place, and it has no options."""
    path = place if place.startswith("/") else urlsplit(place).path
    return "?" not in place and "#" not in place and os.path.normpath(path or "/") == (path or "/")
