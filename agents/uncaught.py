"""The uncaught exception handler of an agent, and the threads that take a dead one's place."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from agents.config import loaded
from agents.outbox import Outbox
from agents.threads import Death, Thread
from controlplane.domain.errors import InvalidValue
from controlplane.domain.uncaught import Replacements, UncaughtAnswer

_log = logging.getLogger("arrester.agent")

T = TypeVar("T", bound=Thread)

#: Asked with the exception that a thread died of.
Ask = Callable[[BaseException], object]

_ALLOWED = (
    "an UncaughtAnswer, a function of an exception that returns one, an object with "
    "handle(exception), or a dotted path to one of these"
)
_ALONE = (
    "SHUTDOWN_APPLICATION is not available yet: the other instances would not be told; "
    "answer SHUTDOWN_CLIENT, or shut the application down from the dashboard"
)


@dataclass(slots=True, kw_only=True)
class Line(Generic[T]):
    """A pipeline at a checkpoint: how its threads are made, one after the other."""

    make: Callable[[Outbox, Callable[[Death], None]], T]
    launch: Callable[[T], None]
    thread: T | None = None
    replacements: Replacements = field(default_factory=Replacements)


def uncaught_handler(given: object) -> Ask | None:
    """Return how the handler is asked, None for none; raises InvalidValue for what is none."""
    if given is None:
        return None
    try:
        found = given if isinstance(given, UncaughtAnswer) else loaded(given)
    except (ImportError, AttributeError, TypeError, ValueError) as exc:
        raise InvalidValue("on_uncaught", given, _ALLOWED) from exc
    if found is UncaughtAnswer.SHUTDOWN_APPLICATION:
        raise InvalidValue("on_uncaught", given, f"another answer: {_ALONE}")
    if isinstance(found, UncaughtAnswer):
        return lambda exception: found
    ask = getattr(found, "handle", found)
    if not callable(ask):
        raise InvalidValue("on_uncaught", given, _ALLOWED)
    return ask


def asked(ask: Ask | None, exception: BaseException) -> object:
    """Return the handler's answer; None without a handler, False for one that raises."""
    if ask is None:
        return None
    try:
        answer = ask(exception)
    except BaseException:  # the author's code; it runs in a thread that has to end in order
        _log.exception("the uncaught exception handler raised")
        return False
    if answer is UncaughtAnswer.SHUTDOWN_APPLICATION:
        _log.error("%s", _ALONE)
        return UncaughtAnswer.SHUTDOWN_CLIENT
    return False if answer is None else answer
