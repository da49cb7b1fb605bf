"""Tolerance: how many failed records a task may leave out in one run, and per window (KIP-298)."""

from __future__ import annotations

import msgspec

from arrester.domain.python_versions import StrEnum


class Window(StrEnum):
    """errors.tolerance.rate.duration: tumbling windows, aligned to the epoch."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def milliseconds(self) -> int:
        """The length of the window."""
        return {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}[self.value]

    def start_ms(self, now_ms: int) -> int:
        """Return the start of the window that contains `now_ms`."""
        return now_ms - now_ms % self.milliseconds


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """The two limits; None if not set, negative if unlimited."""

    #: errors.tolerance.limit: failed records of a task in one run.
    limit: int | None = None
    #: errors.tolerance.rate.limit: failed records of a task in one window.
    rate_limit: int | None = None
    window: Window = Window.MINUTE

    @property
    def configured(self) -> bool:
        """Whether a limit alone decides about a failed record."""
        return self.limit is not None or self.rate_limit is not None


class Exceeded(StrEnum):
    """The limit that a failed record exceeds."""

    TOTAL = "TOTAL"
    RATE = "RATE"


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The counted failed records of a task in its run; each run starts with an empty one."""

    total: int = 0
    window_start_ms: int = 0
    in_window: int = 0


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of counting: this many records are tolerated; the next one exceeds a limit."""

    tally: Tally
    tolerated: int
    exceeded: Exceeded | None = None


def count(tolerance: Tolerance, tally: Tally, *, now_ms: int, records: int = 1) -> Counted:
    """Count `records` failed records at once and find the exact one that exceeds a limit.

    With limit n the n+1st exceeds. Later records are not reached and not counted. If the same
    record exceeds both limits, the total is named.
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
    """Return how many more records the limit allows; None if unlimited."""
    return None if limit is None or limit < 0 else max(0, limit - counted)
