"""Numbers with their noun, in messages."""

from __future__ import annotations


def plural(number: int, noun: str, many: str = "") -> str:
    """Return a number with its noun, as "1 task" or "2,000 tasks"; `many`: an irregular plural."""
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"
