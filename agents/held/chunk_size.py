"""The size of chunks: how many held records the next call of the sink takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: How long the records of a chunk may delay the next micro-batch.
SECONDS_MIN: Final = 2.0
SECONDS_MAX: Final = 5.0
#: A chunk is at most this many times larger than the last one.
_GROWTH: Final = 8.0
#: Two sizes whose times can be compared differ by this factor.
_DIFFERENT: Final = 1.5


@dataclass(slots=True)
class ChunkSize:
    """The most records of the next chunk; it follows the time that chunks take.

    A part of this time is that of the jobs of a chunk. On a busy cluster or a slow file system it
    may exceed any limit, and smaller chunks do not save it: they would only divide the rate. So two
    chunks of different sizes are compared, and only the time of the records counts.
    """

    records: int
    _last: tuple[int, float] | None = field(default=None, repr=False)
    #: The seconds of a chunk without records; None until two sizes are compared.
    _of_jobs: float | None = field(default=None, repr=False)

    def adapt(self, taken: int, *, seconds: float) -> None:
        """Halve the size after a slow chunk of `taken` records, or enlarge it after a fast one."""
        self._compare(taken, seconds)
        self._last = taken, seconds
        of_records = seconds - (self._of_jobs or 0.0)
        if of_records > SECONDS_MAX:
            self.records = max(1, self.records // 2)
        elif (of_records < SECONDS_MIN or self._of_jobs is None) and taken > self.records // 2:
            growth = 2 * SECONDS_MIN / max(of_records, 2 * SECONDS_MIN / _GROWTH)
            # Chunks grow to at least twice the size: two sizes are to be compared.
            self.records = int(self.records * max(2.0, growth))

    def _compare(self, taken: int, seconds: float) -> None:
        """Derive the time of the jobs from the last chunk, if that had another size."""
        if self._last is None:
            return
        size, before = self._last
        if size != taken and max(size, taken) >= _DIFFERENT * min(size, taken):
            per_record = max(0.0, (seconds - before) / (taken - size))
            self._of_jobs = max(0.0, seconds - per_record * taken)
