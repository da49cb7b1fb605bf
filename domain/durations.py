"""Durations of micro-batches as a histogram: sparse, and exact when histograms are added.

A bucket contains the durations that differ by a fifth at most; its middle represents them, so
percentiles are exact to a tenth. Events have a histogram as counts by `phase:bucket`; tables as one
number for each of them, which needs a third of the space.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from arrester.domain.python_versions import StrEnum

_GROWTH: Final = 1.2
#: The bucket of a hundred days; longer durations are counted there.
_LAST: Final = math.ceil(math.log(100 * 86_400_000, _GROWTH))


#: Above any bucket, above any key of a histogram, and the largest count of one.
BUCKETS: Final = 128
KEYS: Final = 1024
MOST: Final = 2**50


class Phase(StrEnum):
    """What a micro-batch uses its time for; their order is that of packed histograms."""

    #: The whole micro-batch, without the wait for new input.
    TOTAL = "total"
    #: Spark looks for new input and plans it.
    SOURCE = "source"
    #: The steps, unless they are one plan with the sink, on the fast path.
    EVALUATE = "evaluate"
    #: Handlers and rules decide about failed records.
    DECIDE = "decide"
    #: The decision is stored.
    STORE = "store"
    #: The sink, on the fast path with the steps.
    WRITE = "write"


def bucket_of(milliseconds: float) -> int:
    """Return the bucket of a duration: 0 up to a millisecond, then one for each further fifth."""
    if milliseconds <= 1:
        return 0
    return min(_LAST, math.ceil(math.log(milliseconds, _GROWTH) - 1e-9))


def middle_of(bucket: int) -> float:
    """Return the duration that represents those of a bucket, in milliseconds."""
    return 1.0 if bucket <= 0 else float(_GROWTH ** (min(bucket, _LAST) - 0.5))


def key_of(phase: Phase, milliseconds: float) -> str:
    """Return the key under which a duration is counted."""
    return f"{phase}:{bucket_of(milliseconds)}"


def packed(counted: Mapping[str, int]) -> list[int]:
    """Return a histogram as numbers, `count * KEYS + phase * BUCKETS + bucket`; unknown keys are
    ignored, and a count is at most `MOST`."""
    return [
        min(count, MOST) * KEYS + number * BUCKETS + bucket
        for number, phase in enumerate(Phase)
        for bucket, count in _buckets(counted, phase)
        if bucket <= _LAST
    ]


def key_of_packed(key: int) -> str:
    """Return `phase:bucket` of a packed number modulo `KEYS`."""
    phase, bucket = divmod(key, BUCKETS)
    return f"{[*Phase][phase]}:{bucket}"


def added(histograms: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of histograms."""
    total: Counter[str] = Counter()
    for each in histograms:
        total.update(each)
    return dict(total)


def buckets(counted: Mapping[str, int], phase: Phase) -> list[tuple[int, int]]:
    """Return the buckets of a phase and their counts, shortest first; unknown keys are ignored."""
    return sorted(_buckets(counted, phase))


def _buckets(counted: Mapping[str, int], phase: Phase) -> Iterator[tuple[int, int]]:
    for key, count in counted.items():
        name, _, number = key.partition(":")
        if name == phase and number.isascii() and number.isdigit() and count > 0:
            yield int(number), count


def percentile(counted: Mapping[str, int], phase: Phase, share: float) -> float | None:
    """Return the duration, in milliseconds, that a share of the micro-batches did not exceed.

    A share of 1 is the longest. None without micro-batches.
    """
    found = buckets(counted, phase)
    wanted = math.ceil(share * sum(count for _, count in found))
    for bucket, count in found:
        wanted -= count
        if wanted <= 0:
            return middle_of(bucket)
    return None
