"""Everything that an agent does besides Spark: start and end of the instance, threads, commands."""

from __future__ import annotations

import atexit
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NoReturn, TypeVar
from uuid import UUID

from arrester.agents.config import AgentConfig
from arrester.agents.runtime.command_dispatch import Commands
from arrester.agents.runtime.heartbeat import heartbeat, in_progress
from arrester.agents.runtime.instance import Ending, Instance
from arrester.agents.runtime.shutdown import GRACE_SECONDS, stop_all
from arrester.agents.runtime.thread_protocol import Outbox, Thread, ThreadDeath
from arrester.agents.runtime.uncaught import DeadThreads, ThreadSlot, UncaughtHandler
from arrester.agents.transport.connection import FLUSH_SECONDS, Connection
from arrester.controlplane.domain.errors import InvalidValue, StartRefused
from arrester.controlplane.domain.events import (
    CommandApplied,
    CommandIssued,
    Event,
    Failure,
    InstanceStarted,
    InstanceStopped,
    InstanceStopping,
)
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.controlplane.domain.state.states import InstanceStatus, ThreadStatus

log = logging.getLogger("arrester.agent")

T = TypeVar("T", bound=Thread)

#: The interval at which `await_termination` checks whether anything is left to do.
WATCH_SECONDS = 0.05


class Runtime:
    """One instance from its first pipeline to its end. Methods may be called from any thread."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        versions: dict[str, str],
        spark_ui: str | None = None,
        on_uncaught: UncaughtHandler | None = None,
    ) -> None:
        self.config = config
        self.id = uuid7(datetime.now(UTC))
        self.ending: Ending | None = None
        self.instance = Instance(config.application, self.id, put=self._put)
        self.threads: tuple[Thread, ...] = ()
        #: Threads that are starting: an end does not wait for them.
        self._launching: tuple[Thread, ...] = ()
        self._slots: tuple[ThreadSlot[Any], ...] = ()
        self._versions = versions
        self._spark_ui = spark_ui
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._connection: Connection | None = None
        #: When the last pipeline was started, and whether the end was awaited.
        self._started_at, self._awaited = 0.0, False
        #: Shutdown commands that are answered when the instance has ended.
        self._shutdowns: list[CommandIssued] = []
        self._dead_threads = DeadThreads(
            on_uncaught or UncaughtHandler(),
            config.application,
            self.instance,
            launch=self._launch,
            end=partial(self.end_soon, Ending.FAILED),
        )
        self._commands = Commands(self.instance, threads=self.running, shut_down=self._shut_down)

    def open(self) -> None:
        """Bring the instance to RUNNING; a second call has no effect.

        Raises StartRefused, with the instance ended, if the application was shut down;
        InvalidValue if the instance has ended: each run of a process is a new Agent.
        """
        with self._lock:
            if self.ending is not None:
                raise InvalidValue("agent", self.ending.value, "an agent that has not ended")
            if self._connection is not None:
                return
            self._connection = Connection(self.config, self.id)
            started = InstanceStarted(
                host=socket.gethostname(),
                pid=os.getpid(),
                versions=self._versions,
                spark_ui=self._spark_ui,
            )
            if self._connection.is_latched():
                self._refuse_start(started)
            self.instance.emit(started)
            self._connection.start_sending(heartbeat=self._heartbeat, report=self._report)
            self._connection.start_polling(take=self._commands.take, on_latched=self._on_latched)
            atexit.register(self.end, Ending.STOPPED, "the process ends")

    def start(
        self,
        make: Callable[[Outbox, Callable[[ThreadDeath], None]], T],
        launch: Callable[[T], None],
    ) -> T:
        """Start, with `launch`, the thread that `make` returns; exceptions are raised here."""
        self.open()
        slot = ThreadSlot(make=make, launch=launch)
        self._started_at = time.monotonic()
        thread = self._launch(slot)
        with self._lock:
            self._slots = (*self._slots, slot)
        return thread

    def remove(self, pipeline: str) -> bool:
        """End the pipeline's thread for good, within error.shutdown.timeout.ms; return False if
        there is none.

        Only a RUNNING instance has threads to remove.
        """
        with self._lock:
            if self.instance.status is not InstanceStatus.RUNNING:
                return False
            found = [
                slot
                for slot in self._slots
                if slot.thread is not None
                and slot.thread.pipeline_name == pipeline
                and not slot.removed
            ]
            for slot in found:
                slot.removed = True
        running = [slot.thread for slot in found if slot.thread in self.running()]
        for thread in running:
            thread.stop(timeout_seconds=self.config.shutdown_timeout_seconds)
        return bool(running)

    def _launch(self, slot: ThreadSlot[T]) -> T:
        """Start the next thread of a slot in place of the previous one."""
        thread = slot.make(self._opened.spool, partial(self._dead_threads.on_death, slot))
        # Set first: the thread may die before `launch` returns.
        before, slot.thread = slot.thread, thread
        with self._lock:
            self._launching = (*self._launching, thread)
        try:
            slot.launch(thread)
        except BaseException:
            slot.thread = before
            with self._lock:
                self._launching = _without(self._launching, thread)
            raise
        with self._lock:
            self._launching = _without(self._launching, thread)
            self.threads = (*(each for each in self.threads if each is not before), thread)
            too_late = self.ending
        if too_late is not None:
            thread.stop(timeout_seconds=self.config.shutdown_timeout_seconds)
            raise InvalidValue("agent", too_late.value, "an agent that has not ended")
        self._commands.retry_unclaimed()
        return thread

    @property
    def exception(self) -> BaseException | None:
        """The exception of the first thread that failed."""
        return self._dead_threads.exception

    def running(self) -> list[Thread]:
        """Return the threads that have not ended."""
        return [thread for thread in self.threads if thread.state is ThreadStatus.RUNNING]

    def await_ending(self, timeout_seconds: float | None, *, raises: bool = True) -> Ending | None:
        """Return how the instance ended; None if it has not ended in time.

        With `raises`, each failure is raised once: at the end, or at once for the answer DEFAULT.
        """
        self._awaited = True
        deadline = time.monotonic() + (math.inf if timeout_seconds is None else timeout_seconds)
        idle = False
        while not self._over.wait(max(0.0, min(WATCH_SECONDS, deadline - time.monotonic()))):
            if raises:
                self._dead_threads.raise_next(at_end=False)
            # A dead thread may be being replaced at this moment: check twice.
            if idle and self._nothing_left():
                return self._result(self._outcome(), raises=raises)
            idle = self._nothing_left()
            if time.monotonic() >= deadline:
                return None
        return self._result(self.ending, raises=raises)

    def _result(self, ending: Ending | None, *, raises: bool) -> Ending | None:
        """Return `ending` to the caller, or raise a failure that no caller has received."""
        if raises:
            self._dead_threads.raise_next(at_end=True)
        else:
            self._dead_threads.mark_seen()
        return ending

    def raise_unseen(self) -> None:
        """Raise a failure that no caller has received, after the instance has ended."""
        deadline = time.monotonic() + GRACE_SECONDS
        # A thread is DEAD before its handler has been called.
        dead = [each for each in self.threads if each.state is ThreadStatus.DEAD]
        while not all(each.is_end_handled for each in dead) and time.monotonic() < deadline:
            time.sleep(WATCH_SECONDS)
        self._dead_threads.raise_next(at_end=True)

    def warn_unawaited(self) -> None:
        """Log a WARNING if pipelines are at work whose end was not awaited."""
        at_work = [each.pipeline_name for each in self.running() if not each.is_idle]
        if not at_work or self._awaited or self.ending is not None:
            return
        log.warning(
            "%s: the block ended %d ms after the start of %s, and nothing was awaited: unprocessed "
            "records wait for the next run; call agent.await_termination() in the block",
            self.config.application,
            (time.monotonic() - self._started_at) * 1_000,
            ", ".join(f"pipeline {name!r}" for name in at_work),
        )

    def _outcome(self) -> Ending:
        """Return the ending of an instance that has nothing left to do."""
        outcome = self._dead_threads.outcome
        if outcome is Ending.FINISHED and all(each.was_finished for each in self.threads):
            return Ending.ALREADY_FINISHED
        return outcome

    def await_over(self) -> None:
        """Wait until the instance has ended, at most for as long as that may take."""
        self._over.wait(self.config.shutdown_timeout_seconds + GRACE_SECONDS + FLUSH_SECONDS)

    def end(
        self,
        ending: Ending,
        reason: str,
        *,
        failure: Failure | None = None,
        error: bool = False,
        caused_by: UUID | None = None,
    ) -> None:
        """Stop all threads within error.shutdown.timeout.ms, end the instance, and wait for it.

        The first call decides how the instance ends; later calls only wait. With `error` it ends in
        ERROR: an uncaught exception shuts the whole application down.
        """
        with self._lock:
            first, self.ending = self.ending is None, self.ending or ending
        self._dead_threads.stop()
        if self._connection is None:
            self._end_unopened(reason)
        elif not first:
            self.await_over()
        else:
            log.info("%s: this instance stops: %s", self.config.application, reason)
            try:
                self.instance.emit(
                    InstanceStopping(reason=reason, error=error), caused_by=caused_by
                )
                seconds = self.config.shutdown_timeout_seconds
                with self._lock:
                    stopping = [*self.running(), *self._launching]
                graceful = stop_all(stopping, timeout_seconds=seconds)
                stopped = InstanceStopped(reason=reason, failure=failure, error=error)
                self._report_end(stopped, caused_by, graceful=graceful)
                self._commands.stop()
                sent = self._connection.close()
                if error and caused_by is None and not sent:
                    self._log_unreached()
            finally:
                self._over.set()
                atexit.unregister(self.end)

    def end_soon(
        self,
        ending: Ending,
        reason: str,
        *,
        failure: Failure | None = None,
        error: bool = False,
        caused_by: UUID | None = None,
    ) -> None:
        """Start to end in a separate thread: the caller may be a thread that has to end, or may
        be interrupted."""
        threading.Thread(
            target=self.end,
            args=(ending, reason),
            kwargs={"failure": failure, "error": error, "caused_by": caused_by},
            name="arrester-end",
            daemon=True,
        ).start()

    def metrics(self) -> dict[str, int]:
        """Return counts of the agent itself; none before it is opened."""
        if self._connection is None:
            return {}
        now = datetime.now(UTC)
        ages = [(now - each.since).total_seconds() for each in in_progress(self.running())]
        return self._connection.metrics() | {
            "command-errors": self._commands.internal_errors,
            "in-progress-seconds": int(max(ages, default=0)),
        }

    @property
    def _opened(self) -> Connection:
        assert self._connection is not None
        return self._connection

    def _put(self, batch_id: UUID, events: Sequence[Event]) -> None:
        # An instance that was never opened has nothing to report and no connection.
        if self._connection is not None:
            self._connection.spool.put(batch_id, events)

    def _end_unopened(self, reason: str) -> None:
        self.instance.emit(InstanceStopping(reason=reason), InstanceStopped(reason=reason))
        self._over.set()

    def _log_unreached(self) -> None:
        why = (
            "there is no server (REDIS_URL is not set)"
            if self.config.redis_url is None
            else "Redis could not be reached; the application's next agent on this host reports it"
        )
        log.error(
            "%s: the other instances did not receive the shutdown: %s", self.config.application, why
        )

    def _refuse_start(self, started: InstanceStarted) -> NoReturn:
        """Report why the instance does not start, and raise."""
        reason = (
            f"{self.config.application} is LATCHED: it was shut down, by a person or by a failure; "
            "start it from the dashboard, then run again"
        )
        self.ending = Ending.SHUT_DOWN
        stopping = InstanceStopping(reason=reason)
        self.instance.emit(started, stopping, InstanceStopped(reason=reason))
        self._opened.start_sending(heartbeat=self._heartbeat)
        self._opened.close()
        self._over.set()
        raise StartRefused(reason)

    def _heartbeat(self) -> bytes:
        return heartbeat(self.instance.status, self.running(), self._opened.spool)

    def _report(self, id: str) -> None:
        log.warning("the server's task states differ; this instance reports its own")
        for each in self.running():
            each.report()

    def _nothing_left(self) -> bool:
        # A thread is DEAD before its handler has been called.
        at_work = [each for each in self.threads if not (each.is_end_handled or each.is_idle)]
        idle = not at_work and not self._dead_threads.replacing
        return bool(self.threads) and idle and self.ending is None

    def _shut_down(self, command: CommandIssued) -> None:
        with self._lock:
            self._shutdowns.append(command)
        reason = f"shut down by {command.actor}: {command.reason}"
        self.end_soon(Ending.SHUT_DOWN, reason, error=command.error, caused_by=command.command)

    def _on_latched(self) -> None:
        self.end_soon(Ending.SHUT_DOWN, f"{self.config.application} is LATCHED")

    def _report_end(
        self, stopped: InstanceStopped, caused_by: UUID | None, *, graceful: bool
    ) -> None:
        """Report the end, and answer the commands that requested it."""
        detail = "stopped" if graceful else "stopped by force: the shutdown timeout was over"
        with self._lock:
            answers = [
                CommandApplied(command=command.command, detail=detail)
                for command in self._shutdowns
            ]
            self.instance.emit(stopped, *answers, caused_by=caused_by)


def _without(threads: tuple[Thread, ...], thread: Thread) -> tuple[Thread, ...]:
    return tuple(each for each in threads if each is not thread)
