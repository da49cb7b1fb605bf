"""Medians of rounds and the ratios between them, as tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A measured figure, its yardstick and the goal."""

    figure: str
    yardstick: str
    goal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A single measurement, or a median, and its goal."""

    name: str
    value: float
    goal: str = ""


#: The values of each round, by measurement.
Rounds = Mapping[str, Sequence[float]]


def rounds_of(
    measurements: Mapping[str, Callable[[], float]],
    *,
    rounds: int,
    random: Random,
    report: Callable[[str], None],
) -> Rounds:
    """Measure everything once per round, in random order."""
    values: dict[str, list[float]] = {name: [] for name in measurements}
    for number in range(1, rounds + 1):
        for name in random.sample(list(measurements), len(measurements)):
            values[name].append(measurements[name]())
            report(f"round {number} of {rounds}: {name}: {values[name][-1]:,.0f}/s")
    return values


def rates(rounds: Rounds, unit: str) -> str:
    """Return the median, least and greatest of each measurement."""
    lines = [
        f"| {name} | {median(values):,.0f} | {min(values):,.0f} to {max(values):,.0f} |"
        for name, values in rounds.items()
    ]
    return "\n".join([f"| measurement | {unit} | least to most |", "|---|---:|---:|", *lines])


def ratios(rounds: Rounds, wanted: Sequence[Ratio]) -> str:
    """Return the median of the ratios within each round: the load of the machine cancels out."""
    lines = [
        f"| {each.figure} ÷ {each.yardstick} | {_ratio(rounds, each):.3g} | {each.goal} |"
        for each in wanted
    ]
    return "\n".join(["| ratio | measured | goal |", "|---|---:|---:|", *lines])


def figures(found: Sequence[Figure]) -> str:
    """Return figures as a table."""
    lines = [f"| {each.name} | {each.value:,.3g} | {each.goal} |" for each in found]
    return "\n".join(["| measurement | measured | goal |", "|---|---:|---:|", *lines])


def _ratio(rounds: Rounds, ratio: Ratio) -> float:
    pairs = zip(rounds[ratio.figure], rounds[ratio.yardstick], strict=True)
    return median(figure / yardstick for figure, yardstick in pairs)
