"""Numbers in the place of names: what the rows that are searched by keep of texts.

A number is enough to find a row, and a dictionary would have to be looked up, locked and kept in
step. Of causes it has 64 bits, which do not meet. Two pipelines, stages or classes may share one:
who reads looks at the event itself (`FailureQuery.has`, `log.filled`).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache


@lru_cache(maxsize=100_000)
def of_cause(application: str, fingerprint: str) -> int:
    """Return the number of an error group."""
    # An application's name has no space in it.
    return _first(f"{application} {fingerprint}", 8)


@lru_cache(maxsize=10_000)
def of_text(text: str) -> int:
    """Return the number of a type, pipeline, stage or exception class."""
    return _first(text, 4)


def _first(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size], signed=True)
