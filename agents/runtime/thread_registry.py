"""The threads of an instance: those that start, run, were replaced or have ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from arrester.agents.runtime.thread_protocol import Outbox, Thread, ThreadEnd
from arrester.domain.state.states import ThreadStatus
from arrester.domain.state.uncaught_policy import Replacements

T = TypeVar("T", bound=Thread)

#: The interval of the checks whether the ends of all threads are handled.
_CHECK_SECONDS = 0.05


@dataclass(slots=True, kw_only=True)
class ThreadSlot(Generic[T]):
    """A pipeline on a checkpoint, and how its successive threads are made."""

    make: Callable[[Outbox, Callable[[ThreadEnd], None]], T]
    launch: Callable[[T], None]
    thread: T | None = None
    #: Removed by its author: a dead thread is not replaced.
    removed: bool = False
    replacements: Replacements = field(default_factory=Replacements)
    #: Held while its thread is followed by another one.
    lock: threading.Lock = field(default_factory=threading.Lock)


class ThreadRegistry:
    """The threads of one instance. Methods may be called from any thread."""

    def __init__(self) -> None:
        #: The newest thread of each slot, also if it has ended.
        self.threads: tuple[Thread, ...] = ()
        #: Threads that are starting: an end does not wait for them.
        self._launching: tuple[Thread, ...] = ()
        self._slots: tuple[ThreadSlot[Any], ...] = ()
        self._lock = threading.Lock()

    def add(self, slot: ThreadSlot[Any]) -> None:
        """Add a slot whose first thread has started."""
        with self._lock:
            self._slots = (*self._slots, slot)

    def launch(self, slot: ThreadSlot[T], outbox: Outbox, on_end: Callable[[ThreadEnd], None]) -> T:
        """Make and start the next thread of a slot, in place of the previous one."""
        thread = slot.make(outbox, on_end)
        # Set first: the thread may die before `launch` returns.
        previous, slot.thread = slot.thread, thread
        with self._lock:
            self._launching = (*self._launching, thread)
        try:
            slot.launch(thread)
        except BaseException:
            slot.thread = previous
            with self._lock:
                self._launching = _without(self._launching, thread)
            raise
        with self._lock:
            self._launching = _without(self._launching, thread)
            self.threads = (*_without(self.threads, previous), thread)
        return thread

    def remove(self, pipeline: str) -> list[Thread]:
        """Mark the slots of a pipeline as removed; return their threads that are RUNNING."""
        with self._lock:
            slots = self._slots_of(pipeline)
            for slot in slots:
                slot.removed = True
        return [slot.thread for slot in slots if slot.thread in self.running()]

    def restartable(self, pipeline: str) -> list[ThreadSlot[Any]]:
        """Return the slots of a pipeline whose threads run; if none does, the newest slot."""
        with self._lock:
            slots = self._slots_of(pipeline)
        running = self.running()
        return [slot for slot in slots if slot.thread in running] or slots[-1:]

    def _slots_of(self, pipeline: str) -> list[ThreadSlot[Any]]:
        """Return the slots of a pipeline that its script has not removed, under the lock."""
        return [
            slot
            for slot in self._slots
            if slot.thread is not None
            and slot.thread.pipeline_name == pipeline
            and not slot.removed
        ]

    def running(self) -> list[Thread]:
        """Return the threads that have not ended."""
        return [thread for thread in self.threads if thread.state is ThreadStatus.RUNNING]

    def stoppable(self) -> list[Thread]:
        """Return the threads that run or start."""
        with self._lock:
            return [*self.running(), *self._launching]

    @property
    def is_idle(self) -> bool:
        """Whether threads were started and none has anything to do without a command."""
        # A thread is DEAD before its handler has been called.
        return bool(self.threads) and all(
            thread.is_end_handled or thread.is_idle for thread in self.threads
        )

    @property
    def all_were_finished(self) -> bool:
        """Whether earlier runs had finished the passes over the sources of all threads."""
        return all(thread.was_finished for thread in self.threads)

    def await_ends_handled(self, timeout_seconds: float) -> None:
        """Wait until the handlers of all DEAD threads have returned, or the time is over."""
        deadline = time.monotonic() + timeout_seconds
        dead = [thread for thread in self.threads if thread.state is ThreadStatus.DEAD]
        while not all(thread.is_end_handled for thread in dead) and time.monotonic() < deadline:
            time.sleep(_CHECK_SECONDS)


def _without(threads: tuple[Thread, ...], thread: Thread | None) -> tuple[Thread, ...]:
    return tuple(each for each in threads if each is not thread)
