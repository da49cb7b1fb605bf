"""React to the death of a thread: call the handler, then replace the thread or end the instance."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any, Protocol

from arrester.agents.failure_log import log_failure
from arrester.agents.runtime.end.script_end import mark_reported
from arrester.agents.runtime.instance import Ending, Instance
from arrester.agents.runtime.thread_protocol import (
    DescribeFailure,
    Thread,
    ThreadEnd,
    run_of,
)
from arrester.agents.runtime.thread_registry import ThreadSlot
from arrester.agents.runtime.uncaught_handler import UncaughtHandler
from arrester.domain.events import (
    ApplicationShutdownRequested,
    Failure,
    Run,
    ThreadReplaced,
)
from arrester.domain.python_versions import UTC
from arrester.domain.state.uncaught_policy import (
    TO_ERROR,
    uncaught,
)

_log = logging.getLogger("arrester.agent")


class EndAfterDeath(Protocol):
    """Start to end the instance, since a thread died."""

    def __call__(self, reason: str, *, failure: Failure | None, error: bool) -> None: ...


class DeadThreads:
    """React to each death of a thread as the handler of uncaught exceptions answers."""

    def __init__(
        self,
        handler: UncaughtHandler,
        application: str,
        instance: Instance,
        *,
        launch: Callable[[ThreadSlot[Any]], object],
        end: EndAfterDeath,
        describe: DescribeFailure,
    ) -> None:
        #: The exception of the first thread that failed.
        self.exception: BaseException | None = None
        #: Whether a thread failed and was not replaced.
        self.failed = False
        #: Whether a newer run took over the checkpoint of a thread.
        self.superseded = False
        #: Failures that no caller has received, and whether to raise them before the end.
        self._unseen: list[tuple[Exception, bool]] = []
        #: Threads that are about to replace a dead one.
        self.replacing = 0
        self._handler = handler
        self._application = application
        self._instance = instance
        self._launch = launch
        self._end = end
        self._describe = describe
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    @property
    def outcome(self) -> Ending:
        """How the work ended, once no thread has anything to do."""
        if self.failed:
            return Ending.FAILED
        return Ending.SUPERSEDED if self.superseded else Ending.FINISHED

    def stop(self) -> None:
        """Start no further thread: the instance ends."""
        self._stopping.set()

    def is_stopping(self, *, within_seconds: float = 0) -> bool:
        """Whether the instance ends, now or within some seconds."""
        return self._stopping.wait(within_seconds)

    @contextmanager
    def replacement(self) -> Iterator[None]:
        """While a thread is to follow another one, the instance has something left to do."""
        with self._lock:
            self.replacing += 1
        try:
            yield
        finally:
            with self._lock:
                self.replacing -= 1

    def raise_next(self, *, at_end: bool) -> None:
        """Raise the next failure that no caller has received; each is raised once, in order.

        Before the end only those for which the handler answered DEFAULT.
        """
        with self._lock:
            unseen = next((each for each in self._unseen if at_end or each[1]), None)
            if unseen is None:
                return
            self._unseen.remove(unseen)
        raise unseen[0]

    def mark_seen(self) -> None:
        """Raise none of the failures so far: the caller has received the ending."""
        with self._lock:
            self._unseen.clear()

    def on_end(self, slot: ThreadSlot[Any], end: ThreadEnd) -> None:
        """React to the death of a thread as the handler answers."""
        self.superseded |= end.superseded
        if end.superseded or end.finished:
            _log.info("%s: a thread ended: %s", self._application, end.reason)
        else:
            self._handle_failure(slot, end)

    def _handle_failure(self, slot: ThreadSlot[Any], end: ThreadEnd) -> None:
        exception = end.exception
        if self.exception is None:
            self.exception = exception
        result = uncaught(
            self._handler.answer(exception or RuntimeError(end.reason)),
            instance=self._instance.status,
            global_task=slot.thread is not None and slot.thread.is_global,
            replacements=slot.replacements,
            now_ms=int(datetime.now(UTC).timestamp() * 1_000),
        )
        slot.replacements = result.replacements
        for message in result.messages:
            line = end.line or end.reason
            log_failure(message, f"{self._application}: {line}", exception=exception)
        if result.replace_after_ms is not None and not slot.removed:
            self._replace_soon(slot, end.reason, wait_ms=result.replace_after_ms)
        else:
            self.failed = True
            with self._lock:
                self._unseen.append((_raisable(end), result.raises))
        if result.shuts_application:
            requested = ApplicationShutdownRequested(reason=end.reason, failure=end.failure)
            self._instance.emit(requested, run=_run(slot))
        if result.instance_path:
            error = result.instance_path == TO_ERROR
            self._end(end.reason, failure=end.failure, error=error)

    def _replace_soon(self, slot: ThreadSlot[Any], reason: str, *, wait_ms: int) -> None:
        """Report the replacement and start it after its wait, unless the instance ends."""
        number = len(slot.replacements.at_ms)
        waiting = ExitStack()
        waiting.enter_context(self.replacement())
        replaced = ThreadReplaced(reason=reason, wait_ms=wait_ms, replacement=number)
        self._instance.emit(replaced, run=_run(slot))
        threading.Thread(
            target=self._replace,
            args=(slot, slot.thread, wait_ms, waiting),
            name="arrester-replace",
            daemon=True,
        ).start()

    def _replace(
        self, slot: ThreadSlot[Any], dead: Thread | None, wait_ms: int, waiting: ExitStack
    ) -> None:
        with waiting:
            if self._stopping.wait(wait_ms / 1_000):
                return
            try:
                with slot.lock:
                    # An operator may have restarted it meanwhile.
                    if not slot.removed and slot.thread is dead:
                        self._launch(slot)
            except Exception as exc:  # any exception at the start is a failure for the handler
                self.start_failed(slot, exc)

    def start_failed(self, slot: ThreadSlot[Any], exc: Exception) -> None:
        """React to a thread that could not start in the place of another one."""
        if self._stopping.is_set():
            return
        failure, body = self._describe(exc)
        reason = f"a new thread could not start: {exc}"
        end = ThreadEnd(reason, exception=exc, failure=failure, recordless=True, stack=body.stack)
        # The run that it was to follow is the last one of the pipeline.
        self._instance.emit(end.event, run=_run(slot), body=end.body)
        mark_reported(exc)
        self._handle_failure(slot, end)


def _raisable(end: ThreadEnd) -> Exception:
    """Return what a caller receives; never SystemExit(0), which would end a script with success."""
    if isinstance(end.exception, Exception):
        return end.exception
    raisable = RuntimeError(end.reason)
    raisable.__cause__ = end.exception
    mark_reported(raisable)
    return raisable


def _run(slot: ThreadSlot[Any]) -> Run | None:
    return None if slot.thread is None else run_of(slot.thread)
