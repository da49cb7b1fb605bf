"""The query of a run, and the work between its micro-batches: held records and events."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from pyspark.sql import DataFrame

from arrester.agents.definition.pipeline import Trigger
from arrester.agents.run.open_run import OpenRun
from arrester.agents.run.query import start_query
from arrester.agents.run.query_reports import QueryReports
from arrester.agents.run.run_lock import HeldLock, RunLock
from arrester.agents.run.source_retries import SourceRetries
from arrester.agents.run.termination import end_of
from arrester.agents.spark.jvm.active_session import activate
from arrester.agents.stop_signal import BatchEnded, BatchStopped, StopSignal
from arrester.domain.python_versions import UTC

_log = logging.getLogger("arrester.thread")

#: The interval at which held records and unsent entries are processed.
_TICK_SECONDS = 0.05
#: The interval at which a run checks that it still owns its checkpoint.
_OWNED_SECONDS = 5.0
#: The pause between two chunks of held records, so that a waiting micro-batch gets the lock.
_PAUSE_SECONDS = 0.01
#: After a command, held records wait this long for the next one, and at most that long for more:
#: the tasks of many commands run together.
_NEXT_COMMAND_SECONDS, _MORE_COMMANDS_SECONDS = 0.1, 2.0


class QueryLoop:
    """Run the query of one run, with its restarts, until all its work has ended.

    Micro-batches come from Spark's threads, everything else happens in the thread of `run`. An
    exception of either is recorded in the stop signal and ends the loop.
    """

    def __init__(
        self,
        opened: OpenRun,
        *,
        lock: RunLock,
        stop_signal: StopSignal,
        retries: SourceRetries,
        trigger: Trigger | None,
    ) -> None:
        self.opened = opened
        self._claimed = opened.claimed
        self.reports = QueryReports(opened.claimed.meter)
        self._lock = lock
        self._stop_signal = stop_signal
        self._retries = retries
        self._trigger = trigger
        #: The pass over a static source is done; what is left waits for operators.
        self.source_done = False
        #: Whether the server requested a report of the tasks' states.
        self.report_requested = False
        #: When the run last checked that it owns the checkpoint.
        self._owned_at = time.monotonic()
        #: When the last command was applied, and the first one of those that followed each other.
        self._command_at = self._first_command_at = -_MORE_COMMANDS_SECONDS

    def start_query(self) -> None:
        """Start the query, or the pass over a static source."""
        claimed = self._claimed
        with self._lock.held() as lock:
            self.opened.read_progress(lock)
        self.query = start_query(
            claimed.pipeline, claimed.files.root, claimed.progress, self._on_batch, self._trigger
        )

    def stop_query(self) -> None:
        """Stop the query and wait for its end; the caller does not hold the lock."""
        try:
            self.query.stop()
        except Exception:
            _log.debug("the query of %s ended while it was stopped", self._claimed.pipeline.name)

    def run(self) -> None:
        """Watch the query until it has ended, including its restarts."""
        self._run_until_end()
        while self._restart_query():
            self._run_until_end()

    def command_applied(self, _: HeldLock) -> None:
        """Let held records wait for further commands."""
        if not self._awaits_commands():
            self._first_command_at = time.monotonic()
        self._command_at = time.monotonic()

    def _awaits_commands(self) -> bool:
        now = time.monotonic()
        is_recent = now - self._command_at < _NEXT_COMMAND_SECONDS
        return is_recent and now - self._first_command_at < _MORE_COMMANDS_SECONDS

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        """Process a micro-batch, called by Spark; raises only a short exception."""
        try:
            began = time.monotonic()
            with self._lock_unless_paused() as lock:
                self.reports.waited(batch, time.monotonic() - began)
                self.opened.process(lock, frame, batch)
                self._retries.reset()
                return
        except BaseException as exc:  # SystemExit would hang the query forever
            self._stop_signal.record(exc)
        raise self._batch_end() from None

    @contextmanager
    def _lock_unless_paused(self) -> Iterator[HeldLock]:
        """Hold the run lock for a micro-batch, which waits while its pipeline is PAUSED.

        Spark has planned it, so the source keeps its place; a stop ends the wait.
        """
        while True:
            with self._lock.held() as lock:
                self._stop_signal.check()
                if self._claimed.pause is None:
                    yield lock
                    return
            self._stop_signal.sleep(_TICK_SECONDS)

    def _batch_end(self) -> BatchEnded | BatchStopped:
        """Return the exception for Spark: a failure only if the run fails."""
        exc, name = self._stop_signal.exception, self._claimed.pipeline.name
        if exc is None:
            return BatchStopped(f"pipeline {name} stopped")
        end = end_of(exc, stopped=None)
        wait_ms = self._retries.decide(exc, at=datetime.now(UTC))
        if end.superseded or end.finished or wait_ms is not None:
            return BatchStopped(f"pipeline {name} stopped; its agent has the reason")
        return BatchEnded(f"pipeline {name} failed; its agent has the reason")

    def _run_until_end(self) -> None:
        """Run held records and publish events until the query and all its work have ended."""
        try:
            # Steps are built in this thread for held records.
            activate(self._claimed.pipeline.source.sparkSession)
            while self._stop_signal.exception is None and self.query.isActive:
                worked = self._tick()
                self.reports.read(self.query)
                pause = _PAUSE_SECONDS if worked else _TICK_SECONDS
                if self._stop_signal.sleep(pause):
                    self.query.awaitTermination()
            if self._stop_signal.exception is None and not self._stop_signal.is_requested:
                self._finish()
        except BaseException as exc:
            self._stop_signal.record(exc)
        self.stop_query()
        self.reports.read(self.query, now=True)

    def _restart_query(self) -> bool:
        """Restart the query if its failed source may be retried; return False if it may not."""
        exc = self._stop_signal.exception
        wait_ms = None if exc is None else self._retries.wait_ms(exc, at=datetime.now(UTC))
        if wait_ms is None:
            return False
        self._stop_signal.clear_exception()
        if self._stop_signal.retry_after(wait_ms):
            return False
        try:
            self.start_query()
        except BaseException as failed:
            self._stop_signal.record(failed)
        if self._stop_signal.is_requested:
            # The requester may have stopped the query before this one.
            self.stop_query()
        return True

    def _tick(self) -> bool:
        """Run some held records and publish events; return whether there may be more of them."""
        with self._lock.held_within(_TICK_SECONDS) as lock:
            # If another one has the lock, it may be a resume, which adds some.
            return lock is None or self._worked(lock)

    def _worked(self, lock: HeldLock) -> bool:
        self._check_owned()
        self.opened.end_pause(lock)
        if self._awaits_commands():
            worked = True
        elif worked := self.opened.drain(lock):
            self._retries.reset()
        if self.opened.publish(lock) and self.report_requested:
            self.report_requested = False
            self._claimed.report()
        return worked

    def _check_owned(self) -> None:
        """Periodically end a run that has nothing to do and would not notice a newer one."""
        if time.monotonic() - self._owned_at >= _OWNED_SECONDS:
            self._claimed.journal.check_owned()
            self._owned_at = time.monotonic()

    def _finish(self) -> None:
        """End a run whose query ended by an exception or because its work is done."""
        exception = self.query.exception()
        if exception is not None:
            raise exception
        while self._works():
            # A waiting command gets the lock.
            is_paused = self._claimed.pause is not None
            self._stop_signal.sleep(_TICK_SECONDS if is_paused else _PAUSE_SECONDS)
            self._stop_signal.check()
        self.source_done = not self._claimed.pipeline.source.isStreaming
        while self._waits_for_commands() and not self._stop_signal.sleep(_TICK_SECONDS):
            self._tick()

    def _works(self) -> bool:
        """Run some held records; return whether there may be more, also of a beginning redrive."""
        # Looked up first: what a redrive that ends meanwhile has saved is for the next tick.
        is_redriving = self.opened.redriver.is_selecting
        awaits_resume = self._claimed.pause is not None and self.opened.has_work
        return self._tick() or is_redriving or awaits_resume

    def _waits_for_commands(self) -> bool:
        """Whether a static source is done and the rest is held; a command may have failed."""
        return self.source_done and self.opened.holds_rows and self._stop_signal.exception is None
