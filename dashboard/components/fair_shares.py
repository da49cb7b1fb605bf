"""The first items of several applications, of which one may have very many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def first(items: Sequence[T], most: int, *, application: Callable[[T], str]) -> list[T]:
    """Return `most` items in their order: the first of each application, then the second of each
    until the number is reached."""
    before: Counter[str] = Counter()
    rounds: list[tuple[int, int]] = []
    for place, each in enumerate(items):
        name = application(each)
        rounds.append((before[name], place))
        before[name] += 1
    return [items[place] for place in sorted(place for _, place in sorted(rounds)[:most])]
