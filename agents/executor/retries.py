"""One operation on one record, retried while the rules allow it.

The rules are not here: the driver sends them, as functions of modules shipped with these.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Row = dict[str, Any]

RETRIABLE = "RETRIABLE"
SELF_HEALING = "SELF_HEALING"
#: A wait is slept in parts: the system refuses extremely long sleeps.
_LONGEST_SLEEP_SECONDS = 3_600.0


class Cause(Protocol):
    """The classification of an exception."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def condition(self) -> str | None: ...


class Wait(Protocol):
    """Return the wait after a number of failed attempts; None: no further attempt."""

    def __call__(
        self, made: int, *, started_ms: int, now_ms: int, chance: Callable[[int], int]
    ) -> int | None: ...


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The driver's rules about failures."""

    wait_after: Wait
    describe: Callable[[BaseException], Cause]
    known_as: Callable[[Any, Mapping[str, str]], str | None]
    #: The kind of each class or condition.
    kinds: Mapping[str, str]
    #: Whether a second attempt is possible at all.
    retries: bool
    #: Whether the duration of failed operations is measured, which reads the clock for each record.
    timed: bool = True


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The last attempt at an operation failed."""

    error: BaseException
    cause: Cause
    kind: str | None


class Attempted(NamedTuple):
    """The result of an operation and its attempts."""

    attempts: int
    rows: list[Row]
    failed: Failed | None = None
    #: From the start of the first attempt to the end of the last.
    took_ms: int = 0


def call_with_retries(
    operation: Callable[[Row], list[Row]],
    fresh: Callable[[], Row],
    rules: Rules,
    *,
    raised: BaseException,
    started_ms: int,
) -> Attempted:
    """Return the final result of `operation` on a row whose first attempt has `raised`.

    Each attempt gets a `fresh` row: the author's function may change its argument. A self-healing
    exception is raised: Spark repairs it. A killed task ends a wait with its process.
    """
    made = 1
    while True:
        failed = failure_from(raised, rules)
        if failed.kind == SELF_HEALING:
            raise failed.error
        wait_ms = None
        if failed.kind == RETRIABLE:
            wait_ms = rules.wait_after(
                made, started_ms=started_ms, now_ms=now_ms(), chance=random.randrange
            )
        if wait_ms is None:
            return Attempted(made, [], failed, took_ms=now_ms() - started_ms)
        sleep(wait_ms)
        made += 1
        try:
            return Attempted(attempts=made, rows=operation(fresh()))
        except BaseException as exc:  # the author's code may raise anything, SystemExit too
            raised = exc


def failure_from(exc: BaseException, rules: Rules) -> Failed:
    """Return the rules' classification of an exception."""
    cause = rules.describe(exc)
    name = rules.known_as(cause, rules.kinds)
    return Failed(error=exc, cause=cause, kind=None if name is None else rules.kinds[name])


def now_ms() -> int:
    """Return the time by which budgets are measured."""
    return int(time.monotonic() * 1_000)


def sleep(wait_ms: int) -> None:
    """Wait before another attempt."""
    left = wait_ms / 1_000
    while left > 0:
        time.sleep(min(left, _LONGEST_SLEEP_SECONDS))
        left -= _LONGEST_SLEEP_SECONDS
