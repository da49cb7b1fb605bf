"""Numbers with their noun, in messages."""

from __future__ import annotations


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, as "1 task" or "2,000 tasks"."""
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"
