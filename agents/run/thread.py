"""One run of a pipeline: its query, the held records that run beside it, and its end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from uuid import UUID

from pyspark.sql import DataFrame

from arrester.agents.config import AgentConfig
from arrester.agents.definition.pipeline import Pipeline, Trigger
from arrester.agents.journal.journal import Superseded
from arrester.agents.journal.outbox import Outbox
from arrester.agents.run.engine import Engine, now
from arrester.agents.run.policy_command import PolicyCommand
from arrester.agents.run.query import start_query
from arrester.agents.run.resume_command import CommandOutcome, ResumeRequest
from arrester.agents.run.run_lock import RunLock, refuse_inside
from arrester.agents.run.source_retries import SourceRetries
from arrester.agents.run.status import RunStatus
from arrester.agents.run.termination import ThreadDeath
from arrester.agents.runtime.uncaught import UNCAUGHT_DEFAULT
from arrester.agents.spark.try_eval import require_classic
from arrester.agents.stop_signal import BatchEnded, StopRequested, StopSignal
from arrester.controlplane.domain.error_policy.policy import StageKind
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.events import ResumeHow, StageAnswer
from arrester.controlplane.domain.state.states import ThreadStatus
from arrester.controlplane.domain.state.transitions import Move, move_thread

_log = logging.getLogger("arrester.thread")

#: The interval at which held records and unsent entries are processed.
_TICK_SECONDS = 0.05
#: The interval at which a run checks that it still owns its checkpoint.
_OWNED_SECONDS = 5.0
#: The interval at which a stop checks whether to cancel an evaluation.
_STOP_TICK_SECONDS = 0.2
#: The pause between two chunks of held records, so that a waiting micro-batch gets the lock.
_BREATH_SECONDS = 0.01


class PipelineThread(RunStatus):
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
        on_death: Callable[[ThreadDeath], None],
        uncaught: str = UNCAUGHT_DEFAULT,
    ) -> None:
        require_classic(pipeline.source.sparkSession)
        super().__init__(pipeline)
        self._application = application
        self._instance = instance
        self._outbox = outbox
        self._config = config
        self._on_death = on_death
        self._uncaught = uncaught
        #: None: not started.
        self._state: ThreadStatus | None = None
        self._lock = RunLock()
        self._halt = StopSignal(pipeline.name)
        self._ended = threading.Event()
        #: Set when `start` has ended, with or without an exception.
        self._started = threading.Event()
        self._retries = SourceRetries(config.errors.policy(StageKind.SOURCE), pipeline.name)
        #: The pass over a static source is done; what is left waits for operators.
        self._passed = False
        #: Whether the server requested a report of the tasks' states.
        self._report_asked = False
        #: When the run last checked that it owns the checkpoint.
        self._owned_at = time.monotonic()
        self._loop = threading.Thread(
            target=self._look_after, name=f"arrester-{pipeline.name}", daemon=True
        )

    # ── what it is ───────────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> ThreadStatus:
        """RUNNING from its start to its end, then DEAD."""
        return self._state or ThreadStatus.DEAD

    @property
    def is_running(self) -> bool:
        """Whether the run is RUNNING."""
        return self.state is ThreadStatus.RUNNING

    @property
    def is_idle(self) -> bool:
        """Whether nothing happens without a command: a static source is done, the rest is held."""
        return self._passed and not self._engine.has_work

    def report(self) -> None:
        """Report the state of the tasks soon; the server's view differs."""
        self._report_asked = True

    # ── start and stop ───────────────────────────────────────────────────────────────────────

    def start(self, checkpoint: str, *, trigger: Trigger | None = None) -> None:
        """Claim the checkpoint and start the query, or the pass over a static source.

        Failures are raised here and not passed to `on_death`.
        """
        self._trigger = trigger
        self._engine = Engine(
            self.pipeline,
            checkpoint,
            application=self._application,
            instance=self._instance,
            outbox=self._outbox,
            config=self._config,
            uncaught=self._uncaught,
        )
        self._state = ThreadStatus.RUNNING
        try:
            self._engine.prepare(check=self._halt.check, wait=self._halt.wait)
            self._halt.check()
            self._start_query()
        except BaseException as exc:
            self._write_end(None if isinstance(exc, StopRequested) else exc)
            self._started.set()
            raise
        self._loop.start()
        self._started.set()

    def _start_query(self) -> None:
        engine = self._engine
        self._query = start_query(
            self.pipeline, engine.files.root, engine.progress, self._on_batch, self._trigger
        )

    def stop(self, *, timeout_seconds: float) -> bool:
        """End the run at the next boundary; return True if it has ended within the time.

        An undecided micro-batch is cancelled and replayed by the next run; a running sink may
        finish. After the time its Spark jobs are cancelled.
        """
        deadline = time.monotonic() + timeout_seconds
        self._halt.ask()
        # The unfinished work of an earlier run may wait for a broker without bound.
        while self.is_running and not self._started.wait(_STOP_TICK_SECONDS):
            self._engine.give_up()
            if time.monotonic() > deadline:
                return False
        if not self._loop.is_alive():
            return True
        # Half the time for the sink, half for Spark.
        while not self._lock.acquire(timeout=_STOP_TICK_SECONDS):
            if time.monotonic() > deadline - timeout_seconds / 2:
                break
            self._engine.give_up()
        else:
            self._lock.release()
        stopper = threading.Thread(target=self._stop_query, name="arrester-stop", daemon=True)
        stopper.start()
        if threading.current_thread() is self._loop:
            return True
        return self._ended.wait(max(0.0, deadline - time.monotonic()))

    def _stop_query(self) -> None:
        try:
            self._query.stop()
        except Exception:
            _log.debug("the query of %s ended while it was stopped", self.pipeline.name)

    # ── commands ──────────────────────────────────────────────────────────────────────────────

    def resume(
        self,
        key: str | None,
        *,
        how: ResumeHow | None,
        position: int | None = None,
        target: int | None = None,
        command: UUID | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> CommandOutcome:
        """Apply a command to a task after the running micro-batch.

        `how` is RETRY (a PAUSED task continues at the failed record), SKIP (after it: the record
        becomes a dead letter with `actor` and `reason`), AT (at `target`: held records before it
        become dead letters), RESTART (a DEAD task continues at the failed record), or None: a
        RUNNING task is paused by hand. Held records run first. `position`, if given, must be the
        one at which the task stopped.

        Raises Superseded if a newer run owns the checkpoint, which then answers; and InvalidValue
        inside a function of the pipeline, for which the command would wait.
        """
        requested = ResumeRequest(
            key=key,
            how=how,
            position=position,
            target=target,
            command=command,
            actor=actor,
            reason=reason,
        )
        return self._apply(lambda: self._engine.resume(requested))

    def set_policy(
        self,
        stage: str,
        answer: StageAnswer | None,
        *,
        command: UUID | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> CommandOutcome:
        """Override the policy of a stage from the next micro-batch on and in later runs.

        None: the policy of the author and the configuration. Raises as `resume`.
        """
        requested = PolicyCommand(
            stage=stage, answer=answer, command=command, actor=actor, reason=reason
        )
        return self._apply(lambda: self._engine.set_policy(requested))

    def _apply(self, do: Callable[[], CommandOutcome]) -> CommandOutcome:
        refuse_inside("a command for its tasks or policies")
        with self._lock:
            if not self.is_running or self._halt.asked:
                return CommandOutcome(applied=False, reason=f"{self.pipeline.name} is not running")
            try:
                return do()
            except InvalidValue:
                raise
            except Superseded as exc:
                self._halt.note(exc)
                raise
            except BaseException as exc:
                self._halt.note(exc)
                return CommandOutcome(applied=False, reason=f"{self.pipeline.name} ends: {exc}")

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        """Called by Spark for each micro-batch; only a short exception leaves it."""
        try:
            with self._lock:
                self._halt.check()
                self._engine.process(frame, batch)
                self._retries.went_well()
                return
        except BaseException as exc:  # SystemExit would hang the query for ever
            self._halt.note(exc)
        raise BatchEnded(
            f"pipeline {self.pipeline.name} stopped; its agent has the reason"
        ) from None

    def _look_after(self) -> None:
        """Watch the query until it has ended, including its restarts."""
        self._until_ended()
        while self._begins_again():
            self._until_ended()
        self._end(self._halt.raised)

    def _until_ended(self) -> None:
        """Run held records and publish events until the query and all its work have ended."""
        try:
            while self._halt.raised is None and self._query.isActive:
                worked = self._tick()
                pause = _BREATH_SECONDS if worked else _TICK_SECONDS
                if self._halt.pause(pause):
                    self._query.awaitTermination()
            if self._halt.raised is None and not self._halt.asked:
                self._finish()
        except BaseException as exc:
            self._halt.note(exc)
        self._stop_query()

    def _begins_again(self) -> bool:
        """Whether the source failed and may be retried; then the query has been restarted."""
        failed = self._halt.raised
        wait_ms = None if failed is None else self._retries.wait_ms(failed, at=now())
        if wait_ms is None:
            return False
        self._halt.forgive()
        if self._halt.retry_after(wait_ms):
            return False
        try:
            with self._lock:
                self._engine.look_at_progress()
            self._start_query()
        except BaseException as exc:
            self._halt.note(exc)
        if self._halt.asked:
            # The requester may have stopped the query before this one.
            self._stop_query()
        return True

    def _tick(self) -> bool:
        """Do some waiting work; return whether there may be more."""
        if not self._lock.acquire(timeout=_TICK_SECONDS):
            # A running resume may add some.
            return True
        try:
            self._look_who_owns()
            worked = self._engine.drain()
            if worked:
                self._retries.went_well()
            if self._engine.put_ready() and self._report_asked:
                self._report_asked = False
                self._engine.report()
            return worked
        finally:
            self._lock.release()

    def _look_who_owns(self) -> None:
        """Periodically end a run that has nothing to do and would not notice a newer one."""
        if time.monotonic() - self._owned_at >= _OWNED_SECONDS:
            self._engine.journal.check_owned()
            self._owned_at = time.monotonic()

    def _finish(self) -> None:
        """End a run whose query ended by an exception or because its work is done."""
        exception = self._query.exception()
        if exception is not None:
            raise exception
        while self._tick():
            self._halt.check()
        self._passed = not self.pipeline.source.isStreaming
        while self._rests() and not self._halt.pause(_TICK_SECONDS):
            self._tick()

    def _rests(self) -> bool:
        """Whether a static source is done and the rest is held; a command may have failed."""
        return self._passed and self._engine.holds_rows and self._halt.raised is None

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def _end(self, exc: BaseException | None) -> None:
        """Commit the end, publish it, and react to it once."""
        death = self._write_end(exc)
        self._ended.set()
        try:
            if exc is not None or death.finished or death.superseded:
                self._on_death(death)
        finally:
            self._answered = True

    def _write_end(self, exc: BaseException | None) -> ThreadDeath:
        with self._lock:
            death = self._engine.end(exc, stopped=self._halt.asked)
            if self._state is not None and move_thread(self._state, ThreadStatus.DEAD) is Move.DONE:
                self._state = ThreadStatus.DEAD
            return death
