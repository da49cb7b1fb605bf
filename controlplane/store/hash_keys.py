"""Hash keys: numbers that stand for names in the rows of events.

A number finds a row, and needs no dictionary table. Keys of error groups have 64 bits, so they do
not collide. Two pipelines, stages or classes can share a 32-bit key, so readers compare the event
itself (`FailureQuery.matches`, `log.filled`).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache


@lru_cache(maxsize=100_000)
def of_cause(application: str, fingerprint: str) -> int:
    """Return the number of an error group."""
    # The name of an application has no space.
    return _first(f"{application} {fingerprint}", 8)


@lru_cache(maxsize=10_000)
def of_text(text: str) -> int:
    """Return the number of a type, pipeline, stage or exception class."""
    return _first(text, 4)


def _first(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size], signed=True)
