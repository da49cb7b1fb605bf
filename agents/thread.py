"""One run of a pipeline: the streaming query, the held records that run beside it, and its end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from uuid import UUID

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from agents.config import AgentConfig
from agents.death import ThreadDeath
from agents.engine import Engine, now
from agents.guard import require_classic
from agents.journal import Superseded
from agents.outbox import Outbox
from agents.pipeline import Pipeline, Trigger
from agents.resume import Outcome, Wish
from controlplane.domain.errors import ArresterError, InvalidValue
from controlplane.domain.events import ResumeHow
from controlplane.domain.states import TaskState, TaskStatus, ThreadStatus

_log = logging.getLogger("arrester.thread")

#: How often held records and unsent entries are looked after.
_TICK_SECONDS = 0.05
#: How often a run looks whether it still owns its checkpoint, also when it has nothing to do.
_OWNED_SECONDS = 5.0
#: How often a stop looks whether an evaluation is to be given up.
_STOP_TICK_SECONDS = 0.2
#: Between two chunks of held records, so that a waiting micro-batch gets the lock.
_BREATH_SECONDS = 0.01


class BatchEnded(Exception):
    """What Spark sees of an end: one short line. The agent keeps the real exception."""


class StopRequested(ArresterError):
    """The run is to end at a boundary; its micro-batch stays undecided and is replayed."""


class PipelineThread:
    """One run of a pipeline in this process. Methods may be called from any Python thread.

    One lock goes round micro-batches, chunks of held records and resumes; `query.stop()` is never
    called while it is held.
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
    ) -> None:
        require_classic(pipeline.source.sparkSession)
        self.pipeline = pipeline
        self.state = ThreadStatus.DEAD
        self._application = application
        self._instance = instance
        self._outbox = outbox
        self._config = config
        self._on_death = on_death
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        #: Set by whatever went wrong first.
        self._raised: BaseException | None = None
        #: When the checkpoint was last known to be ours.
        self._owned_at = time.monotonic()
        self._loop = threading.Thread(
            target=self._look_after, name=f"arrester-{pipeline.name}", daemon=True
        )

    @property
    def pipeline_name(self) -> str:
        """The pipeline's name."""
        return self.pipeline.name

    @property
    def checkpoint_id(self) -> str:
        """The id in the checkpoint's metadata; known once the run has started."""
        return self._engine.journal.ledger.checkpoint

    @property
    def is_global(self) -> bool:
        """Whether the pipeline has one task only, the global one."""
        return self.pipeline.task is None

    @property
    def epoch(self) -> int:
        """The number of this run at its checkpoint."""
        return self._engine.run.epoch

    def start(self, checkpoint: str, *, trigger: Trigger | None = None) -> None:
        """Claim the checkpoint and start the streaming query.

        What goes wrong is raised here, and not told to `on_death`.
        """
        self._engine = Engine(
            self.pipeline,
            checkpoint,
            application=self._application,
            instance=self._instance,
            outbox=self._outbox,
            config=self._config,
        )
        try:
            self._engine.prepare(check=self._check_stop, wait=self._wait)
            self.state = ThreadStatus.RUNNING
            self._query = self._started_query(self._engine.files.root, trigger)
        except BaseException as exc:
            self._write_end(exc)
            raise
        self._loop.start()

    def _started_query(self, checkpoint: str, trigger: Trigger | None) -> StreamingQuery:
        writer = self.pipeline.source.writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", checkpoint)
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.start()

    def stop(self, *, timeout_seconds: float) -> bool:
        """End the run at the next boundary; True when it has ended within the time.

        A micro-batch that has not decided yet is given up and replayed by the next run; one whose
        sink is at work may finish. When the time is over its Spark jobs are cancelled.
        """
        deadline = time.monotonic() + timeout_seconds
        self._stopping.set()
        if not self._loop.is_alive():
            return True
        # Half the time for the sink, half for Spark.
        while not self._lock.acquire(timeout=_STOP_TICK_SECONDS):
            if time.monotonic() > deadline - timeout_seconds / 2:
                break
            self._give_up()
        else:
            self._lock.release()
        stopper = threading.Thread(target=self._stop_query, name="arrester-stop", daemon=True)
        stopper.start()
        if threading.current_thread() is self._loop:
            return True
        return self._ended.wait(max(0.0, deadline - time.monotonic()))

    def _give_up(self) -> None:
        try:
            self._engine.processor.give_up()
        except Exception:
            _log.debug("the evaluation of %s ended while it was given up", self.pipeline.name)

    def _stop_query(self) -> None:
        try:
            self._query.stop()
        except Exception:
            _log.debug("the query of %s ended while it was stopped", self.pipeline.name)

    def tasks(self) -> list[TaskState]:
        """Return the tasks that ever failed or changed state here; all others are RUNNING."""
        return [each.state for each in list(self._engine.journal.ledger.tasks.values())]

    def paused_tasks(self) -> list[TaskState]:
        """Return the PAUSED tasks."""
        return [each for each in self.tasks() if each.status is TaskStatus.PAUSED]

    def resume(
        self,
        key: str | None,
        *,
        how: ResumeHow,
        position: int | None = None,
        command: UUID | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Outcome:
        """Resume a PAUSED task after the micro-batch at work; its held records run first.

        `how` is RETRY (from the failed record) or SKIP (past it: it becomes a dead letter with
        `actor` and `reason`). `position`, where it is given, must be the one the task is held at.

        Raises Superseded when a newer run owns the checkpoint: the answer is that one's.
        """
        wish = Wish(
            key=key, how=how, position=position, command=command, actor=actor, reason=reason
        )
        with self._lock:
            if self.state is not ThreadStatus.RUNNING or self._stopping.is_set():
                return Outcome(applied=False, reason=f"{self.pipeline.name} is not running")
            try:
                # Rows of a chunk that is not known to be written are not to be skipped twice.
                self._engine.processor.finish_open_chunk()
                return self._engine.resumer.resume(wish, now())
            except InvalidValue:
                raise
            except Superseded as exc:
                self._note(exc)
                raise
            except BaseException as exc:
                self._note(exc)
                return Outcome(applied=False, reason=f"{self.pipeline.name} ends: {exc}")

    def is_applied(self, command: UUID) -> Outcome | None:
        """Return what was answered to a command, by this run or one before it; None: never seen.

        One look into a dictionary, without the lock: a micro-batch may hold that for long.
        """
        return self._engine.resumer.answered(command)

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        """Be the function that Spark calls; whatever happens, only a short exception leaves it."""
        try:
            with self._lock:
                self._check_stop()
                self._engine.processor.process(frame, batch)
                self._engine.awaited_batch = None
                return
        except BaseException as exc:  # SystemExit would hang the query for ever
            self._note(exc)
        raise BatchEnded(f"pipeline {self.pipeline.name} has ended; see its agent") from None

    def _check_stop(self) -> None:
        if self._stopping.is_set() or self._raised is not None:
            raise StopRequested(f"{self.pipeline.name} is to end")

    def _wait(self, wait_ms: int) -> None:
        """Wait before another attempt; a stop ends it at once, and then nothing is decided."""
        self._stopping.wait(min(wait_ms / 1000, threading.TIMEOUT_MAX))
        self._check_stop()

    def _note(self, exc: BaseException) -> None:
        # An interrupted job after a stop request is the stop, not a failure of its own.
        if self._raised is None and not self._stopping.is_set():
            self._raised = exc

    def _look_after(self) -> None:
        """Run held records, put events, and end the run when its query has ended."""
        try:
            while self._raised is None and self._query.isActive:
                worked = self._tick()
                pause = _BREATH_SECONDS if worked else _TICK_SECONDS
                if self._stopping.wait(pause):
                    self._query.awaitTermination()
            if self._raised is None and not self._stopping.is_set():
                self._finish()
        except BaseException as exc:
            self._note(exc)
        self._stop_query()
        self._end(self._raised)

    def _tick(self) -> bool:
        """Do a little of what waits; return whether there may be more."""
        if not self._lock.acquire(timeout=_TICK_SECONDS):
            return False
        try:
            self._look_who_owns()
            engine = self._engine
            worked = engine.awaited_batch is None and engine.processor.drain()
            engine.release.put_ready()
            engine.release.compact()
            return worked
        finally:
            self._lock.release()

    def _look_who_owns(self) -> None:
        """Now and then, end a run that has nothing to do and would not notice a newer one."""
        if time.monotonic() - self._owned_at >= _OWNED_SECONDS:
            self._engine.journal.check_owned()
            self._owned_at = time.monotonic()

    def _finish(self) -> None:
        """The query has ended by itself: by an exception, or because its work is done."""
        exception = self._query.exception()
        if exception is not None:
            raise exception
        while self._tick():
            self._check_stop()

    def _end(self, exc: BaseException | None) -> None:
        """Make the end durable, tell it, and answer for it once."""
        death = self._write_end(exc)
        self._ended.set()
        if exc is not None or death.finished or death.superseded:
            self._on_death(death)

    def _write_end(self, exc: BaseException | None) -> ThreadDeath:
        with self._lock:
            death = self._engine.end(exc, stopped=self._stopping.is_set())
            self.state = ThreadStatus.DEAD
            return death
