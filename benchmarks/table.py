"""Medians of rounds and the ratios between them, as tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One measured figure beside its yardstick, and the least that we want."""

    figure: str
    yardstick: str
    goal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Something measured once, or a median already, and what we want of it."""

    name: str
    value: float
    goal: str = ""


#: Values of each round by what was measured.
Rounds = Mapping[str, Sequence[float]]


def rounds_of(
    measurements: Mapping[str, Callable[[], float]],
    *,
    rounds: int,
    random: Random,
    say: Callable[[str], None],
) -> Rounds:
    """Measure everything once in each round, each time in another order."""
    values: dict[str, list[float]] = {name: [] for name in measurements}
    for number in range(1, rounds + 1):
        for name in random.sample(list(measurements), len(measurements)):
            values[name].append(measurements[name]())
            say(f"round {number} of {rounds}: {name}: {values[name][-1]:,.0f}/s")
    return values


def rates(rounds: Rounds, unit: str) -> str:
    """Return the median, least and greatest of each measurement."""
    lines = [
        f"| {name} | {median(values):,.0f} | {min(values):,.0f} to {max(values):,.0f} |"
        for name, values in rounds.items()
    ]
    return "\n".join([f"| what | {unit} | least to most |", "|---|---:|---:|", *lines])


def ratios(rounds: Rounds, wanted: Sequence[Ratio]) -> str:
    """Return the median of the ratio within each round: what both have met cancels out."""
    lines = [
        f"| {each.figure} ÷ {each.yardstick} | {_ratio(rounds, each):.3g} | {each.goal} |"
        for each in wanted
    ]
    return "\n".join(["| ratio | measured | goal |", "|---|---:|---:|", *lines])


def figures(found: Sequence[Figure]) -> str:
    """Return figures of several kinds as a table."""
    lines = [f"| {each.name} | {each.value:,.3g} | {each.goal} |" for each in found]
    return "\n".join(["| what | measured | goal |", "|---|---:|---:|", *lines])


def _ratio(rounds: Rounds, ratio: Ratio) -> float:
    pairs = zip(rounds[ratio.figure], rounds[ratio.yardstick], strict=True)
    return median(figure / yardstick for figure, yardstick in pairs)
