"""How many failed records a task may leave out in one run: in total, and per window (KIP-298)."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Window(StrEnum):
    """errors.tolerance.rate.duration: tumbling windows, aligned to the epoch."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def milliseconds(self) -> int:
        """How long the window is."""
        return {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}[self.value]

    def start_ms(self, now_ms: int) -> int:
        """Return when the window that holds `now_ms` began."""
        return now_ms - now_ms % self.milliseconds


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """The two limits; None where nobody set one, negative where somebody set it to infinite."""

    #: errors.tolerance.limit: failed records of a task in one run.
    limit: int | None = None
    #: errors.tolerance.rate.limit: failed records of a task in one window.
    rate_limit: int | None = None
    window: Window = Window.MINUTE

    @property
    def configured(self) -> bool:
        """Whether a limit alone says what becomes of a failed record."""
        return self.limit is not None or self.rate_limit is not None


class Exceeded(StrEnum):
    """Which limit a failed record was one too many for."""

    TOTAL = "TOTAL"
    RATE = "RATE"


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The failed records of a task that its run has counted; each run starts with an empty one."""

    total: int = 0
    window_start_ms: int = 0
    in_window: int = 0


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What counting came to: so many records are tolerated; the one after them exceeds a limit."""

    tally: Tally
    tolerated: int
    exceeded: Exceeded | None = None


def count(tolerance: Tolerance, tally: Tally, *, now_ms: int, records: int = 1) -> Counted:
    """Count `records` failed records at once and find the exact one that exceeds a limit.

    With limit n the n+1st exceeds. Records after the one that exceeds are not reached and not
    counted. Of two limits that the same record exceeds, the total is named.
    """
    start = tolerance.window.start_ms(now_ms)
    in_window = tally.in_window if start == tally.window_start_ms else 0
    left = {
        Exceeded.TOTAL: _left(tolerance.limit, tally.total),
        Exceeded.RATE: _left(tolerance.rate_limit, in_window),
    }
    first = min(
        (limit for limit, number in left.items() if number is not None and number < records),
        key=lambda limit: left[limit] or 0,
        default=None,
    )
    tolerated = records if first is None else left[first] or 0
    reached = tolerated if first is None else tolerated + 1
    counted = Tally(
        total=tally.total + reached, window_start_ms=start, in_window=in_window + reached
    )
    return Counted(tally=counted, tolerated=tolerated, exceeded=first)


def _left(limit: int | None, counted: int) -> int | None:
    """Return how many more records the limit allows; None for any number."""
    return None if limit is None or limit < 0 else max(0, limit - counted)
