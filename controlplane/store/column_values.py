"""Values of columns: hash keys in place of names, and texts and numbers cut to fit.

A hash key finds a row, and needs no dictionary table. Keys of error groups have 64 bits, so they do
not collide. Two pipelines, stages or classes can share a 32-bit key, so readers compare the event
itself (`FailureQuery.matches`, `log.filled`). Packed states and events have the full values.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

#: The greatest number of PostgreSQL's bigint.
MAX_BIGINT = 2**63 - 1
#: Stages, exception classes and keys are cut at this length: index rows have a limit.
TEXT_LIMIT = 300

#: Represents unknown texts: any text matches.
ANY = "*"


def fit(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return `text` fit for a text column: no NUL, which PostgreSQL refuses, and not too long."""
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def fit_or_none(text: str | None) -> str | None:
    """Return `text` fit for a text column that may be empty."""
    return None if text is None else fit(text)


def saturated(number: int) -> int:
    """Return `number`, or the greatest that a column holds."""
    return min(number, MAX_BIGINT)


@lru_cache(maxsize=100_000)
def hash_group(application: str, fingerprint: str) -> int:
    """Return the number of an error group."""
    # The name of an application has no space.
    return _hash(f"{application} {fingerprint}", 8)


@lru_cache(maxsize=10_000)
def hash_text(text: str) -> int:
    """Return the number of a type, pipeline, stage or exception class."""
    return _hash(text, 4)


def _hash(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size], signed=True)
