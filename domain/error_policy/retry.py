"""Whether a failed operation is retried, and after which wait (KIP-298). No clock, no random
source.

The executors run this file too, so it needs only the standard library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

UNLIMITED = -1
FIRST_WAIT_MS = 300
#: The limit of a doubling wait: the largest number of milliseconds that a long holds.
SATURATED_MS = 2**63 - 1

#: Returns a uniform random integer in [0, n); `random.randrange` is one.
Chance = Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The two retry budgets, of which the first used one ends the retries, and the longest wait.

    A negative number means unlimited. By default nothing is retried.
    """

    #: errors.retries.limit: retries, not attempts.
    limit: int = 0
    #: errors.retry.timeout: from the start of the first attempt.
    timeout_ms: int = UNLIMITED
    #: errors.retries.delay.max.ms, at least 1.
    delay_max_ms: int = 60_000

    def wait_after(self, made: int, *, started_ms: int, now_ms: int, chance: Chance) -> int | None:
        """Return the wait after `made` failed attempts; None if no further one is allowed."""
        attempts = Attempts(made=made, started_ms=started_ms, now_ms=now_ms)
        decision = next_attempt(self, attempts, chance=chance)
        return None if decision is None else decision.wait_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """The failed attempts at one operation so far."""

    #: How many, including the first.
    made: int = 1
    #: When the first one began and the last one failed, in milliseconds since the epoch.
    started_ms: int = 0
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Wait, then try again. A stop request ends the wait and leaves the record undecided."""

    wait_ms: int


def next_attempt(policy: RetryPolicy, attempts: Attempts, *, chance: Chance) -> RetryAfter | None:
    """Return the wait before the next attempt; None if the retries or their time are used up."""
    if 0 <= policy.limit < attempts.made:
        return None
    deadline = deadline_ms(policy, attempts)
    if deadline is not None and attempts.now_ms >= deadline:
        return None
    return RetryAfter(wait_ms(policy, attempts, chance=chance))


def deadline_ms(policy: RetryPolicy, attempts: Attempts) -> int | None:
    """Return when the time budget ends; None if it never does."""
    return None if policy.timeout_ms < 0 else attempts.started_ms + policy.timeout_ms


def wait_ms(policy: RetryPolicy, attempts: Attempts, *, chance: Chance) -> int:
    """Return the wait before the next attempt: never after the deadline, never negative."""
    wait = raw_wait_ms(attempts.made)
    if wait > policy.delay_max_ms:
        # A random wait below the maximum, not the maximum with jitter, as in Connect.
        wait = chance(policy.delay_max_ms)
    deadline = deadline_ms(policy, attempts)
    return wait if deadline is None else max(0, min(wait, deadline - attempts.now_ms))


def raw_wait_ms(attempt: int) -> int:
    """Return 300 ms, doubled with each attempt after the first, saturating."""
    if attempt > SATURATED_MS.bit_length():
        return SATURATED_MS
    return min(FIRST_WAIT_MS << max(0, attempt - 1), SATURATED_MS)
