"""The text of a verdict: what an applied command has achieved."""

from __future__ import annotations

from arrester.domain.commands.verdict import NextStop, Outcome, Verdict

_ORDINALS = {1: "st", 2: "nd", 3: "rd"}


def sentence(verdict: Verdict) -> str:
    """Return the verdict without its time: `failed again at position 327,043 (8th attempt)`."""
    stop = verdict.stop
    if stop is None:
        held = f"; {verdict.held:,} held records left" if verdict.held else ""
        return f"no stop since{held}"
    if verdict.outcome is Outcome.FAILED_AGAIN:
        return f"failed again{_where(stop)}{_attempt(stop)}"
    return f"stopped again later{_where(stop)}"


def _where(stop: NextStop) -> str:
    return "" if stop.position is None else f" at position {stop.position:,}"


def _attempt(stop: NextStop) -> str:
    return "" if stop.stops is None else f" ({ordinal(stop.stops)} attempt)"


def ordinal(number: int) -> str:
    """Return a number as an ordinal: 1st, 2nd, 11th."""
    teen = number % 100 in (11, 12, 13)
    return f"{number:,}{'th' if teen else _ORDINALS.get(number % 10, 'th')}"
