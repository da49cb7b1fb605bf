"""The uncaught exception handler of an agent, and the replacement of dead threads."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar

from arrester.agents.config import dotted, loaded
from arrester.agents.failure_log import say
from arrester.agents.journal.outbox import Outbox
from arrester.agents.runtime.instance import Instance, Tell
from arrester.agents.runtime.protocols import Death, Thread
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.events import (
    ApplicationShutdownRequested,
    Event,
    Failure,
    Run,
    ThreadReplaced,
)
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.controlplane.domain.state.uncaught_policy import (
    TO_ERROR,
    Replacements,
    UncaughtAnswer,
    uncaught,
)

_log = logging.getLogger("arrester.agent")

T = TypeVar("T", bound=Thread)

#: Called with the exception that ended a thread.
Ask = Callable[[BaseException], object]

_ALLOWED = (
    "an UncaughtAnswer, a function of an exception that returns one, an object with "
    "handle(exception), or a dotted path to one of these"
)

#: The answer without a handler.
UNCAUGHT_DEFAULT = UncaughtAnswer.SHUTDOWN_CLIENT.value


class End(Protocol):
    """Start to end the instance."""

    def __call__(self, reason: str, *, failure: Failure | None, error: bool) -> None: ...


@dataclass(slots=True, kw_only=True)
class Line(Generic[T]):
    """A pipeline on a checkpoint, and how its successive threads are made."""

    make: Callable[[Outbox, Callable[[Death], None]], T]
    launch: Callable[[T], None]
    thread: T | None = None
    #: Removed by its author: a dead thread is not replaced.
    removed: bool = False
    replacements: Replacements = field(default_factory=Replacements)


class Uncaught:
    """Call the handler when a thread has died, and start the replacement."""

    def __init__(
        self,
        ask: Ask | None,
        application: str,
        instance: Instance,
        *,
        launch: Callable[[Line[Any]], object],
        tell: Tell,
        end: End,
    ) -> None:
        #: The exception of the first thread that failed.
        self.exception: BaseException | None = None
        #: Exceptions for which the handler answered DEFAULT, each for the next caller that waits
        #: for the end.
        self._to_raise: deque[BaseException] = deque()
        #: Threads that are about to replace a dead one.
        self.replacing = 0
        self._ask = ask
        self._application = application
        self._instance = instance
        self._launch = launch
        self._tell = tell
        self._end = end
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Start no further thread: the instance ends."""
        self._stopping.set()

    def raise_next(self) -> None:
        """Raise the exceptions for which the handler answered DEFAULT, each once, in order."""
        try:
            exception = self._to_raise.popleft()
        except IndexError:
            return
        raise exception

    def died(self, line: Line[Any], death: Death) -> None:
        """Receive the death of a thread, and do what the handler answers."""
        if death.superseded or death.finished:
            _log.info("%s: a thread ended: %s", self._application, death.reason)
            return
        self._failed(line, death.exception, death.reason, death.failure)

    def _failed(
        self,
        line: Line[Any],
        exception: BaseException | None,
        reason: str,
        failure: Failure | None = None,
    ) -> None:
        if self.exception is None:
            self.exception = exception
        result = uncaught(
            asked(self._ask, exception or RuntimeError(reason)),
            instance=self._instance.status,
            global_task=line.thread is not None and line.thread.is_global,
            replacements=line.replacements,
            now_ms=int(datetime.now(UTC).timestamp() * 1_000),
        )
        line.replacements = result.replacements
        for saying in result.said:
            say(saying, f"{self._application}: {reason}", exception=exception)
        if result.raises:
            self._to_raise.append(exception or RuntimeError(reason))
        if result.replace_after_ms is not None and not line.removed:
            self._replace_soon(line, reason, wait_ms=result.replace_after_ms)
        if result.shuts_application:
            self._ask_all_to_end(line, reason, failure)
        if result.instance_path:
            self._end(reason, failure=failure, error=result.instance_path == TO_ERROR)

    def _ask_all_to_end(self, line: Line[Any], reason: str, failure: Failure | None) -> None:
        """Request that the server ends all instances of the application."""
        now = datetime.now(UTC)
        data = ApplicationShutdownRequested(reason=reason, failure=failure)
        run = None if line.thread is None else _run(line.thread)
        event = Event(occurred_at=now, instance=self._instance.id, run=run, data=data)
        self._tell(uuid7(now), [event])

    def _replace_soon(self, line: Line[Any], reason: str, *, wait_ms: int) -> None:
        """Report the replacement and start it after its wait, unless the instance ends."""
        dead = line.thread
        assert dead is not None
        run = _run(dead)
        number = len(line.replacements.at_ms)
        data = ThreadReplaced(reason=reason, wait_ms=wait_ms, replacement=number)
        now = datetime.now(UTC)
        event = Event(occurred_at=now, instance=self._instance.id, run=run, data=data)
        with self._lock:
            self.replacing += 1
        self._tell(uuid7(now), [event])
        threading.Thread(
            target=self._replace, args=(line, wait_ms), name="arrester-replace", daemon=True
        ).start()

    def _replace(self, line: Line[Any], wait_ms: int) -> None:
        try:
            if not self._stopping.wait(wait_ms / 1_000) and not line.removed:
                self._launch(line)
        except Exception as exc:  # whatever keeps it from starting is the handler's to answer
            if not self._stopping.is_set():
                self._failed(line, exc, f"a new thread could not start: {exc}")
        finally:
            with self._lock:
                self.replacing -= 1


def _run(thread: Thread) -> Run:
    return Run(pipeline=thread.pipeline_name, checkpoint=thread.checkpoint_id, epoch=thread.epoch)


def uncaught_handler(given: object) -> Ask | None:
    """Return how the handler is called, None without one; raises InvalidValue if it is not
    valid."""
    if given is None:
        return None
    try:
        found = given if isinstance(given, UncaughtAnswer) else loaded(given)
    except (ImportError, AttributeError, TypeError, ValueError) as exc:
        raise InvalidValue("on_uncaught", given, _ALLOWED) from exc
    if isinstance(found, UncaughtAnswer):
        return lambda exception: found
    ask = getattr(found, "handle", found)
    if not callable(ask):
        raise InvalidValue("on_uncaught", given, _ALLOWED)
    return ask


def checked_uncaught(given: object) -> tuple[Ask | None, list[InvalidValue]]:
    """Return how the handler is called, and what is wrong with it."""
    try:
        return uncaught_handler(given), []
    except InvalidValue as fault:
        return None, [fault]


def uncaught_shown(given: object) -> str:
    """Return the handler's constant answer, or where it is defined, for display."""
    if given is None:
        return UNCAUGHT_DEFAULT
    if isinstance(given, UncaughtAnswer):
        return given.value
    return given.strip() if isinstance(given, str) else dotted(given)


def asked(ask: Ask | None, exception: BaseException) -> object:
    """Return the handler's answer; None without a handler, False if it raises."""
    if ask is None:
        return None
    try:
        answer = ask(exception)
    except BaseException:  # the author's code; it runs in a thread that has to end in order
        _log.exception("the uncaught exception handler raised")
        return False
    return False if answer is None else answer
