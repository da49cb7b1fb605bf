"""One run of a pipeline in this process: its status, its start and its end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from uuid import UUID

from pyspark.sql import DataFrame

from arrester.agents.config import AgentConfig
from arrester.agents.definition.pipeline import Pipeline, Trigger
from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.run.claimed_run import claim_run
from arrester.agents.run.open_run import open_run
from arrester.agents.run.query_loop import QueryLoop
from arrester.agents.run.run_lock import RunLock
from arrester.agents.run.source_retries import SourceRetries
from arrester.agents.run.thread_commands import ThreadCommands
from arrester.agents.runtime.redrive_result import Redriven
from arrester.agents.runtime.thread_protocol import (
    Outbox,
    ThreadCommand,
    ThreadEnd,
)
from arrester.agents.runtime.uncaught_handler import UNCAUGHT_DEFAULT
from arrester.agents.spark.job_description import HELD_RECORDS
from arrester.agents.spark.jvm.versions import require_supported
from arrester.agents.stop_signal import StopRequested, StopSignal
from arrester.domain.error_policy.policy import StageKind
from arrester.domain.state.states import (
    PipelinePause,
    TaskState,
    TaskStatus,
    ThreadStatus,
)
from arrester.domain.state.transitions import Transition, thread_transition
from arrester.domain.wire.codec import InProgress, RunFlow

_log = logging.getLogger("arrester.thread")

#: The interval at which a stop checks whether to cancel an evaluation.
_STOP_TICK_SECONDS = 0.2
#: How long a forced stop waits after it has cancelled the jobs: a sink may not notice.
_FORCED_SECONDS = 5.0


class PipelineThread:
    """One run of a pipeline in this process. Methods may be called from any Python thread.

    One lock serializes micro-batches, chunks of held records and commands; `query.stop()` is never
    called with the lock held.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        application: str,
        instance: UUID,
        outbox: Outbox,
        config: AgentConfig,
        on_end: Callable[[ThreadEnd], None],
        uncaught: str = UNCAUGHT_DEFAULT,
    ) -> None:
        require_supported(pipeline.source.sparkSession)
        self.pipeline = pipeline
        self._claim = partial(
            claim_run,
            pipeline,
            application=application,
            instance=instance,
            outbox=outbox,
            config=config,
            uncaught=uncaught,
        )
        self._on_end = on_end
        #: Whether it has ended and the agent has reacted.
        self.is_end_handled = False
        self._state = ThreadStatus.DEAD
        self._lock = RunLock()
        self._stop_signal = StopSignal(pipeline.name)
        self._ended = threading.Event()
        #: Set when `start` has ended, with or without an exception.
        self._started = threading.Event()
        self._source_policy = config.errors.policy(StageKind.SOURCE)
        self._loop = threading.Thread(
            target=self._run, name=f"arrester-{pipeline.name}", daemon=True
        )

    # ── status: readable without the lock, which a micro-batch may hold for long ───────────────

    @property
    def pipeline_name(self) -> str:
        """The pipeline's name."""
        return self.pipeline.name

    @property
    def checkpoint_id(self) -> str:
        """The id in the checkpoint's metadata; known once the run has started."""
        return self._claimed.journal.ledger.checkpoint

    @property
    def is_global(self) -> bool:
        """Whether the pipeline has one task only, the global one."""
        return self.pipeline.task is None

    @property
    def is_static(self) -> bool:
        """Whether its source is a static DataFrame, which is read once."""
        return not self.pipeline.source.isStreaming

    @property
    def epoch(self) -> int:
        """The number of this run on its checkpoint."""
        return self._claimed.run.epoch

    @property
    def state(self) -> ThreadStatus:
        """RUNNING from its start to its end, then DEAD."""
        return self._state

    @property
    def is_running(self) -> bool:
        """Whether the run is RUNNING."""
        return self.state is ThreadStatus.RUNNING

    @property
    def pause(self) -> PipelinePause | None:
        """The pause of its pipeline; None: it is not PAUSED."""
        return self._claimed.pause

    @property
    def is_idle(self) -> bool:
        """Whether nothing happens without a command: a static source is done, the rest is held."""
        return self._query_loop.source_done and not self._query_loop.opened.has_work

    @property
    def in_progress(self) -> InProgress | None:
        """What it processes now; None between two inputs, and during its start."""
        return self._claimed.jobs.in_progress if self._loop.is_alive() else None

    @property
    def rows_per_second(self) -> float | None:
        """The rows per second of the last micro-batch, or chunk of held records while some are
        left; None if unknown."""
        if not self._loop.is_alive():
            return None
        drained = self._query_loop.opened.processor.drained_per_second
        now = self.in_progress
        if drained is None and (now is None or now.input != HELD_RECORDS):
            return self._query_loop.query.rows_per_second
        return drained

    @property
    def flow(self) -> RunFlow | None:
        """What flows through the run now; None if nothing is measured, and during its start."""
        if not self._claimed.meter.is_on or not self._loop.is_alive():
            return None
        return self._query_loop.reports.flow(self.rows_per_second)

    @property
    def was_finished(self) -> bool:
        """Whether an earlier run had finished the pass over a static source."""
        return self._claimed.was_finished

    def tasks(self) -> list[TaskState]:
        """Return the tasks that ever failed or changed state here; all others are RUNNING."""
        return self._claimed.tasks()

    def paused_tasks(self) -> list[TaskState]:
        """Return the PAUSED tasks."""
        return [state for state in self.tasks() if state.status is TaskStatus.PAUSED]

    def task_weight(self) -> int | None:
        """Return what its tasks add to the heartbeat's hash; None while events are unpublished."""
        return self._claimed.task_weight()

    def answer_to(self, command: UUID) -> CommandAnswer | None:
        """Return the answer to a command, from this run or an earlier one; None if it is
        unknown."""
        return self._claimed.journal.ledger.answers.get(str(command))

    def report(self) -> None:
        """Report the state of the tasks soon; the server has stored other states."""
        self._query_loop.report_requested = True

    # ── start and stop ───────────────────────────────────────────────────────────────────────

    def start(
        self, checkpoint: str, *, trigger: Trigger | None = None, adopt: bool = False
    ) -> None:
        """Claim the checkpoint and start the query, or the pass over a static source.

        Failures are raised here and not passed to `on_end`.
        """
        self._claimed = self._claim(checkpoint, adopt=adopt)
        self._state = ThreadStatus.RUNNING
        try:
            signal = self._stop_signal
            opened = open_run(self._claimed, check=signal.check, wait=signal.wait)
            self._query_loop = QueryLoop(
                opened,
                lock=self._lock,
                stop_signal=signal,
                retries=SourceRetries(self._source_policy, self.pipeline.name),
                trigger=trigger,
            )
            self._commands = ThreadCommands(
                opened=opened,
                query_loop=self._query_loop,
                lock=self._lock,
                stop_signal=signal,
                is_running=lambda: self.is_running,
            )
            signal.check()
            self._query_loop.start_query()
        except BaseException as exc:
            self._write_end(None if isinstance(exc, StopRequested) else exc)
            self._started.set()
            raise
        self._loop.start()
        self._started.set()
        if self.was_finished:
            _log.warning(
                "pipeline %r: a run at %s has finished the pass over this source; no row of it is "
                "read again, only held records run. For new input use a checkpoint per run, such "
                "as a folder per date, or a streaming source",
                self.pipeline.name,
                self._claimed.files.root,
            )

    def stop(self, reason: str, *, timeout_seconds: float) -> bool:
        """End the run at the next boundary; return True if it has ended there within the time.

        An undecided micro-batch is cancelled and replayed by the next run; a running sink may
        finish. After the time, or if the stop is forced, its Spark jobs are cancelled.
        """
        deadline = time.monotonic() + timeout_seconds
        self._stop_signal.request(reason)
        # The unfinished work of an earlier run may wait for a broker without bound.
        while self.is_running and not self._started.wait(_STOP_TICK_SECONDS):
            self._claimed.cancel_evaluation()
            if self._stop_signal.is_forced or time.monotonic() > deadline:
                return False
        if not self._loop.is_alive():
            return True
        # Half the time for the sink, half for Spark.
        while not self._is_between_inputs():
            if self._stop_signal.is_forced or time.monotonic() > deadline - timeout_seconds / 2:
                break
            self._claimed.cancel_evaluation()
        stopper = threading.Thread(
            target=self._query_loop.stop_query, name="arrester-stop", daemon=True
        )
        stopper.start()
        if threading.current_thread() is self._loop:
            return True
        return self._await_end(deadline)

    def force_stop(self) -> None:
        """Let a stop, present or future, cancel Spark jobs in progress at once."""
        self._stop_signal.force()

    def _is_between_inputs(self) -> bool:
        """Whether no micro-batch, chunk or command is in progress, at least for a moment."""
        with self._lock.held_within(_STOP_TICK_SECONDS) as lock:
            return lock is not None

    def _await_end(self, deadline: float) -> bool:
        """Wait for the end; return True if it came in time and was not forced."""
        forced_deadline = None
        while not self._ended.wait(_STOP_TICK_SECONDS):
            now = time.monotonic()
            if self._stop_signal.is_forced and forced_deadline is None:
                forced_deadline = now + _FORCED_SECONDS
            if now > min(deadline, forced_deadline or deadline):
                return False
        return not self._stop_signal.is_forced

    # ── commands ─────────────────────────────────────────────────────────────────────────────

    def apply(self, command: ThreadCommand) -> CommandAnswer:
        """Apply or refuse a command after the running micro-batch.

        Raises Superseded if a newer run owns the checkpoint, which then answers; and InvalidValue
        inside a function of the pipeline, for which the command would wait.
        """
        return self._commands.apply(command)

    def redrive(self, dead_letters: DataFrame, *, actor: str | None, reason: str) -> Redriven:
        """Process dead letters once more; see `Agent.redrive`."""
        return self._commands.redrive(dead_letters, actor=actor, reason=reason)

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        self._query_loop.run()
        self._end(self._stop_signal.exception)

    def _end(self, exc: BaseException | None) -> None:
        """Commit the end, publish it, and react to it once."""
        end = self._write_end(exc)
        self._ended.set()
        try:
            if exc is not None or end.finished or end.superseded:
                self._on_end(end)
        finally:
            self.is_end_handled = True

    def _write_end(self, exc: BaseException | None) -> ThreadEnd:
        with self._lock.held():
            end = self._claimed.end(exc, stopped=self._stop_signal.reason)
            if thread_transition(self._state, ThreadStatus.DEAD) is Transition.DONE:
                self._state = ThreadStatus.DEAD
            return end
