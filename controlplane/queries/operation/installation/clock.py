"""The difference of two clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from arrester.controlplane.queries.operation.installation.finding import (
    Finding,
    error,
    ok,
    warning,
)

#: Times of events and of the log are compared, and heartbeats end after some seconds.
_WARNING, _ERROR = timedelta(seconds=1), timedelta(seconds=30)
ADVICE = "Synchronise the clocks by NTP."


def compared(check: str, read: Callable[[], datetime]) -> Iterator[Finding]:
    """Report how far another clock is ahead of this one."""
    before = datetime.now(UTC)
    other = read()
    after = datetime.now(UTC)
    ahead = other - (before + (after - before) / 2)
    # Without a negative zero.
    value = f"{round(ahead.total_seconds(), 1) + 0.0:+.1f} s to the web process"
    if abs(ahead) > _ERROR:
        yield error(check, value, ADVICE)
    elif abs(ahead) > _WARNING:
        yield warning(check, value, ADVICE)
    else:
        yield ok(check, value)
