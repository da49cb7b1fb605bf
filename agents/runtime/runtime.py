"""The runtime of an agent: start and end of its instance, its threads and its commands."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import NoReturn, TypeVar
from uuid import UUID

from arrester.agents.config import AgentConfig
from arrester.agents.runtime.command_dispatch import CommandDispatcher
from arrester.agents.runtime.dead_threads import DeadThreads
from arrester.agents.runtime.end.one_line import end_in_one_line
from arrester.agents.runtime.end.script_end import script_end, uncaught_exception
from arrester.agents.runtime.end.shutdown import GRACE_SECONDS, stop_all
from arrester.agents.runtime.end.shutdown_commands import ShutdownCommands
from arrester.agents.runtime.end.termination_wait import TerminationWait
from arrester.agents.runtime.heartbeat import heartbeat, in_progress
from arrester.agents.runtime.instance import Ending, Instance
from arrester.agents.runtime.pipeline_restarts import PipelineRestarts
from arrester.agents.runtime.thread_protocol import (
    DescribeFailure,
    Outbox,
    Thread,
    ThreadEnd,
)
from arrester.agents.runtime.thread_registry import ThreadRegistry, ThreadSlot
from arrester.agents.runtime.uncaught_handler import UncaughtHandler
from arrester.agents.transport.connection import FLUSH_SECONDS, Connection
from arrester.agents.transport.flow_store import FlowStore
from arrester.domain.errors import InvalidValue, StartRefused
from arrester.domain.events import (
    Event,
    Failure,
    InstanceStarted,
    InstanceStopped,
    InstanceStopping,
)
from arrester.domain.identity.uuids import uuid7
from arrester.domain.python_versions import UTC
from arrester.domain.state.states import InstanceStatus
from arrester.domain.tracing import tracer

log = logging.getLogger("arrester.agent")

T = TypeVar("T", bound=Thread)


class Runtime:
    """One instance from its first pipeline to its end. Methods may be called from any thread."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        versions: dict[str, str],
        describe: DescribeFailure,
        spark_ui: str | None = None,
        on_uncaught: UncaughtHandler | None = None,
    ) -> None:
        self.config = config
        self.id = uuid7(datetime.now(UTC))
        self.ending: Ending | None = None
        self.instance = Instance(config.application, self.id, put=self._put)
        self.registry = ThreadRegistry()
        self._versions = versions
        self._describe = describe
        self._spark_ui = spark_ui
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._connection: Connection | None = None
        #: What begins with the instance, after its connection.
        self.at_start: list[Callable[[], None]] = []
        #: What ends with the instance, before its last events are sent.
        self.at_end: list[Callable[[], None]] = []
        #: When the last pipeline was started.
        self._started_at = 0.0
        self._dead_threads = DeadThreads(
            on_uncaught or UncaughtHandler(),
            config.application,
            self.instance,
            launch=self._launch,
            end=partial(self.end_soon, Ending.FAILED),
            describe=describe,
        )
        self.termination = TerminationWait(
            self.registry, self._dead_threads, over=self._over, ending=lambda: self.ending
        )
        self._shutdowns = ShutdownCommands(self.instance, self.registry, end=self.end_soon)
        self.restarts = PipelineRestarts(
            self.registry,
            self._dead_threads,
            launch=self._launch,
            timeout_seconds=config.shutdown_timeout_seconds,
        )
        self._commands = CommandDispatcher(
            self.instance,
            threads=self.registry.running,
            shut_down=self._shutdowns.receive,
            restart=self.restarts.restart,
        )

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
            # Imports the SDK now, if spans are wanted: not in the first micro-batch that fails.
            tracer.tracer_of(self.config.application)
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
            self._connection.start_polling(
                receive=self._commands.receive, on_latched=self._on_latched
            )
            atexit.register(self._end_at_exit)
            for start in self.at_start:
                start()

    def start(
        self,
        make: Callable[[Outbox, Callable[[ThreadEnd], None]], T],
        launch: Callable[[T], None],
    ) -> T:
        """Start, with `launch`, the thread that `make` returns; exceptions are raised here."""
        self.open()
        slot = ThreadSlot(make=make, launch=launch)
        self._started_at = time.monotonic()
        thread = self._launch(slot)
        self.registry.add(slot)
        return thread

    def flow_store(self) -> FlowStore | None:
        """Open the instance, and return where its flow is stored; None without a server."""
        self.open()
        return None if self.config.redis_url is None else self._opened.spool.flow

    def remove(self, pipeline: str) -> bool:
        """End the pipeline's thread for good, within error.shutdown.timeout.ms; return False if
        there is none.

        Only a RUNNING instance has threads to remove.
        """
        if self.instance.status is not InstanceStatus.RUNNING:
            return False
        removed = self.registry.remove(pipeline)
        for thread in removed:
            thread.stop(
                "stopped: its script removed the pipeline",
                timeout_seconds=self.config.shutdown_timeout_seconds,
            )
        return bool(removed)

    def _launch(self, slot: ThreadSlot[T]) -> T:
        """Start the next thread of a slot in place of the previous one."""
        spool, on_end = self._opened.spool, partial(self._dead_threads.on_end, slot)
        thread = self.registry.launch(slot, spool, on_end)
        if self.ending is not None:
            thread.stop(
                "stopped: the instance ends", timeout_seconds=self.config.shutdown_timeout_seconds
            )
            raise InvalidValue("agent", self.ending.value, "an agent that has not ended")
        self._commands.retry_unclaimed()
        return thread

    @property
    def exception(self) -> BaseException | None:
        """The exception of the first thread that failed."""
        return self._dead_threads.exception

    def warn_unawaited(self) -> None:
        """Log a WARNING if pipelines are at work whose end was not awaited."""
        at_work = [each.pipeline_name for each in self.registry.running() if not each.is_idle]
        if not at_work or self.termination.was_awaited or self.ending is not None:
            return
        log.warning(
            "%s: the block ended %d ms after the start of %s, and nothing was awaited: unprocessed "
            "records wait for the next run; call agent.await_termination() in the block",
            self.config.application,
            (time.monotonic() - self._started_at) * 1_000,
            ", ".join(f"pipeline {name!r}" for name in at_work),
        )

    @property
    def longest_end_seconds(self) -> float:
        """How long the end of the instance may take."""
        return self.config.shutdown_timeout_seconds + GRACE_SECONDS + FLUSH_SECONDS

    def await_over(self) -> None:
        """Wait until the instance has ended, at most for as long as that may take."""
        self._over.wait(self.longest_end_seconds)

    def end(
        self,
        ending: Ending,
        reason: str,
        *,
        failure: Failure | None = None,
        error: bool = False,
        caused_by: UUID | None = None,
        exc: BaseException | None = None,
    ) -> None:
        """Stop all threads within error.shutdown.timeout.ms, end the instance, and wait for it.

        The first call decides how the instance ends; later calls only wait. With `error` it ends in
        ERROR: an uncaught exception shuts the whole application down. `failure` ended a run; `exc`
        ended the script, and no run has reported it.
        """
        with self._lock:
            first, self.ending = self.ending is None, self.ending or ending
        self._dead_threads.stop()
        if self._connection is None:
            self.instance.emit(InstanceStopping(reason=reason), InstanceStopped(reason=reason))
            self._over.set()
        elif not first:
            self.await_over()
        else:
            # A command is of another person, who may not have this log.
            level = logging.INFO if caused_by is None else logging.WARNING
            log.log(level, "%s: this instance stops: %s", self.config.application, reason)
            try:
                stopping = InstanceStopping(reason=reason, error=error)
                self.instance.emit(stopping, caused_by=caused_by)
                why = f"stopped: {reason}" if caused_by is None else reason
                seconds = self.config.shutdown_timeout_seconds
                graceful = stop_all(self.registry.stoppable(), why, timeout_seconds=seconds)
                body = None
                if exc is not None:
                    failure, body = self._describe(exc)
                stopped = InstanceStopped(
                    reason=reason, failure=failure, error=error, recordless=exc is not None
                )
                self._shutdowns.report_end(stopped, caused_by, graceful=graceful, body=body)
                self._commands.stop()
                for end in self.at_end:
                    end()
                sent = self._connection.close()
                tracer.close(self.config.application)
                if error and caused_by is None and not sent:
                    self._log_unreached()
            finally:
                self._over.set()
                atexit.unregister(self._end_at_exit)

    def end_soon(
        self,
        ending: Ending,
        reason: str,
        *,
        failure: Failure | None = None,
        error: bool = False,
        caused_by: UUID | None = None,
        exc: BaseException | None = None,
    ) -> None:
        """End the instance in a separate thread, without waiting.

        The caller may be a thread that has to end, or may be interrupted.
        """
        threading.Thread(
            target=self.end,
            args=(ending, reason),
            kwargs={"failure": failure, "error": error, "caused_by": caused_by, "exc": exc},
            name="arrester-end",
            daemon=True,
        ).start()

    def _end_at_exit(self) -> None:
        """End the instance of a script without a block, which an exception may have ended."""
        reason, exc = script_end(uncaught_exception(), usual="the process ends")
        self.end(Ending.STOPPED, reason, exc=exc)

    def metrics(self) -> dict[str, int]:
        """Return counts of the agent itself; none before it is opened."""
        if self._connection is None:
            return {}
        now = datetime.now(UTC)
        ages = [(now - each.since).total_seconds() for each in in_progress(self.registry.running())]
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

    def _log_unreached(self) -> None:
        cause = (
            "there is no server (REDIS_URL is not set)"
            if self.config.redis_url is None
            else "Redis could not be reached; the application's next agent on this host reports it"
        )
        log.error(
            "%s: the other instances did not receive the shutdown: %s",
            self.config.application,
            cause,
        )

    def _refuse_start(self, started: InstanceStarted) -> NoReturn:
        """Report why the instance does not start, and raise."""
        by = self._opened.latched_by or "a person or a failure"
        reason = (
            f"{self.config.application} is LATCHED: it was shut down by {by}; start it from the "
            "dashboard, then run again"
        )
        self.ending = Ending.SHUT_DOWN
        stopping = InstanceStopping(reason=reason)
        self.instance.emit(started, stopping, InstanceStopped(reason=reason))
        self._opened.start_sending(heartbeat=self._heartbeat)
        self._opened.close()
        self._over.set()
        refused = StartRefused(reason)
        end_in_one_line(refused, f"the start is refused: {reason}")
        raise refused

    def _heartbeat(self) -> bytes:
        return heartbeat(self.instance.status, self.registry.running(), self._opened.spool)

    def _report(self, id: str) -> None:
        log.warning("the server's task states differ; this instance reports its own")
        for thread in self.registry.running():
            thread.report()

    def _on_latched(self) -> None:
        self.end_soon(Ending.SHUT_DOWN, f"{self.config.application} is LATCHED")
