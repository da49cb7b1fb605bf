"""How a text or a number is made to fit a column; whole values are in packed states and events."""

from __future__ import annotations

#: The greatest number of PostgreSQL's bigint.
MOST = 2**63 - 1
#: Stages, exception classes and keys are cut here: an index row must stay small.
TEXT_LIMIT = 300

#: In the place of texts that are not known: it may be any.
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
    return min(number, MOST)
