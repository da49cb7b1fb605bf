"""Make texts and numbers fit columns; packed states and events have the full values."""

from __future__ import annotations

#: The greatest number of PostgreSQL's bigint.
MOST = 2**63 - 1
#: Stages, exception classes and keys are cut at this length: index rows have a limit.
TEXT_LIMIT = 300

#: Stands for unknown texts: any text matches.
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
