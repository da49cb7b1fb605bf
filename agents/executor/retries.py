"""One operation on one record, tried again while the rules allow it.

The rules are not here: the driver sends them, functions of modules that are shipped beside these.
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
#: A wait is slept in parts: a sleep of centuries is refused by the system.
_LONGEST_SLEEP_SECONDS = 3_600.0


class Cause(Protocol):
    """What is known of an exception."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def condition(self) -> str | None: ...


class Wait(Protocol):
    """Says how long to wait after so many failed attempts; None: there is no further one."""

    def __call__(
        self, made: int, *, started_ms: int, now_ms: int, chance: Callable[[int], int]
    ) -> int | None: ...


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the driver says about failures."""

    wait_after: Wait
    describe: Callable[[BaseException], Cause]
    known_as: Callable[[Any, Mapping[str, str]], str | None]
    #: What the name of a class, or of a condition, means.
    kinds: Mapping[str, str]
    #: Whether a second attempt is possible at all.
    retries: bool
    #: Whether it is told how long failed operations took: a look at the clock for each record.
    timed: bool = True


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The last of all attempts at an operation failed."""

    error: BaseException
    cause: Cause
    kind: str | None


class Attempted(NamedTuple):
    """What came of an operation after so many attempts."""

    attempts: int
    rows: list[Row]
    failed: Failed | None = None
    #: From the beginning of the first attempt to the end of the last.
    took_ms: int = 0


def call_with_retries(
    operation: Callable[[Row], list[Row]],
    fresh: Callable[[], Row],
    rules: Rules,
    *,
    raised: BaseException,
    started_ms: int,
) -> Attempted:
    """Return what `operation` made of a row at last, whose first attempt has `raised`.

    Each attempt gets a `fresh` row: the author's function may change what it is given. A
    self-healing exception is raised: to repair that is Spark's affair. A killed task ends a wait
    with its process.
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
    """Return what the rules know of an exception."""
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
