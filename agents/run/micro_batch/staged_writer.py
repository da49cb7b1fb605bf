"""Write a micro-batch on the staged path: stage, decide, commit, publish."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeVar

from pyspark.sql import DataFrame

from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.batch.staged_path import StagedPath
from arrester.agents.decisions.judge import Decision
from arrester.agents.run.micro_batch.slow_path_writer import Input, SlowPathWriter, Written

_T = TypeVar("_T")
_log = logging.getLogger("arrester.thread")
_REPEATED: Final = "on the fast path; repeating it on the slow path"


class NotWritten(Enum):
    """Why the slow path has to write a micro-batch; nothing of it is visible."""

    #: Spark or the sink raised.
    RAISED = auto()
    #: More records failed, or are of stopped tasks, than the driver takes.
    TOO_MANY = auto()
    #: A task stops within the micro-batch, and its later rows are staged.
    STOPS_TASKS = auto()
    #: A record passed when its handler had it repeated, so it is not staged.
    RECOVERED = auto()


@dataclass(slots=True, kw_only=True)
class StagedWriter:
    """Writes the micro-batches of one run on the staged path."""

    path: StagedPath
    #: Decides, commits, and writes what this path cannot.
    slow_path: SlowPathWriter

    @classmethod
    def of(cls, slow_path: SlowPathWriter) -> StagedWriter | None:
        """Return the writer; None if the sink cannot stage, or for other steps."""
        path = StagedPath.of(slow_path.pipeline, slow_path.policy)
        return None if path is None else cls(path=path, slow_path=slow_path)

    def write(
        self, source: DataFrame, *, batch: int, blocked: tuple[str | None, ...]
    ) -> Written | NotWritten:
        """Write a micro-batch, or return why the slow path has to.

        If there is a decision about it then, the slow path replays it.
        """
        slow = self.slow_path
        number = slow.journal.ledger.batch_number(batch)
        with self.path.open_staged_write() as sink:
            slow.jobs.phase("fast path")
            reads = self.path.reads(source)
            rows = self.path.frame(reads.frame, blocked)

            def evaluate() -> Evaluated | NotWritten:
                with slow.stoppable.set():
                    sink.stage(rows, number)
                record_hash = slow.committer.replay_check.record_hash
                found = self.path.evaluated(records=reads.count(), record_hash=record_hash)
                return NotWritten.TOO_MANY if found is None else found

            evaluated = self._try(evaluate, batch)
            if isinstance(evaluated, NotWritten):
                return evaluated
            slow.check()
            evaluated = slow.with_shared_positions(evaluated) if evaluated.failed else evaluated
            try:
                not_written = self._commit(evaluated, batch)
            finally:
                evaluated.release()
            if not_written is not None:
                return not_written
            slow.jobs.phase("write")
            if self._try(lambda: sink.publish(number), batch) is NotWritten.RAISED:
                return NotWritten.RAISED
        return Written(evaluated.clean and not evaluated.retries, evaluated.records)

    def _commit(self, evaluated: Evaluated, batch: int) -> NotWritten | None:
        """Commit the decision about the collected records if the staged rows fit it."""
        slow, decision = self.slow_path, Decision()
        if evaluated.failed:
            slow.jobs.phase("decide")
            decision = slow.decide(
                evaluated, Input(batch=batch, saved_rows=(), is_replayed=False, needs_entry=False)
            )
            for each in decision.recovered:
                each.evaluated.release()
            if decision.recovered:
                return NotWritten.RECOVERED
            if decision.pause_offsets:
                return NotWritten.STOPS_TASKS
            slow.check()
        if slow.always_decides or not evaluated.clean or evaluated.retries:
            slow.jobs.phase("store decision")
            slow.judge.log(decision)
            slow.committer.commit(evaluated, decision, batch=batch)
        return None

    def _try(self, step: Callable[[], _T], batch: int) -> _T | NotWritten:
        """Return the result of a step; RAISED after an exception, which is logged.

        Raises if the run is to end.
        """
        try:
            return step()
        except BaseException as exc:  # SystemExit would hang the query forever
            self.slow_path.check()
            # A newer run deletes what this one has staged, and writes the micro-batch itself.
            self.slow_path.journal.check_owned()
            name, why = self.slow_path.pipeline.name, type(exc).__name__
            message = f"pipeline %r, batch %s: %s was raised {_REPEATED}"
            _log.info(message, name, batch, why)
            return NotWritten.RAISED
