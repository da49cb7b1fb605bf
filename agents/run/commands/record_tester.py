"""Test a held record or a dead letter: run the steps on it once, without effects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame

from arrester.agents.arguments import first_line
from arrester.agents.batch.slow_path import Evaluated, evaluate
from arrester.agents.dead_letters.row_json import PARSED_ROW
from arrester.agents.failures.fingerprints import failure_of
from arrester.agents.failures.payload import Redaction
from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.journal.task_ledger import TaskLedger
from arrester.agents.run.commands.answers import tested_detail
from arrester.agents.run.commands.record_mender import RecordMender
from arrester.agents.run.micro_batch.processor import Processor
from arrester.agents.runtime.thread_protocol import RecordTestAnswer
from arrester.agents.worker.columns import ROW
from arrester.domain.errors import ArresterError
from arrester.domain.events import Failure, RecordTest

#: The longest duration of a test: meanwhile, no micro-batch and no held record begins.
LIMIT_SECONDS: Final = 30.0
#: The interval at which jobs are cancelled after the limit: a test may have several.
_CANCEL_SECONDS = 0.2


class RecordNotTested(ArresterError):
    """The steps cannot be run on the record, or not in time; nothing is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTester:
    """Tests records of one run. The run lock is held."""

    processor: Processor
    mender: RecordMender
    redaction: Redaction

    def test(self, task: TaskLedger, patch: str | None) -> CommandAnswer:
        """Run the steps on the record that stopped a task, which the patch may change.

        Each step runs once. No handler, sink or journal is called, and no counter changes. What
        fails otherwise is the answer: the run continues.
        """
        if self.processor.journal.ledger.open_chunks:
            reason = "held records are being written; test it again"
            return CommandAnswer(applied=False, reason=f"the record is not tested: {reason}")
        return self._answer(
            f"the record of {task.state.id.printed}",
            lambda: self.mender.changed(task, patch).select(f"{PARSED_ROW}.*"),
        )

    def test_dead_letter(self, rows: DataFrame) -> CommandAnswer:
        """Run the steps on a dead letter in the same way."""
        return self._answer("the dead letter", lambda: rows.select(f"{ROW}.*"))

    def _answer(self, what: str, find: Callable[[], DataFrame]) -> CommandAnswer:
        """Return the answer to a test of the rows that `find` returns."""
        try:
            test = self._test(find)
        except Exception as exc:  # of Spark, which may have any
            return CommandAnswer(applied=False, reason=f"{what} is not tested: {first_line(exc)}")
        return RecordTestAnswer(applied=True, reason=tested_detail(test), test=test)

    def _test(self, find: Callable[[], DataFrame]) -> RecordTest:
        processor = self.processor
        final = processor.pipeline.final_transform
        if final is not None and final.stateful:
            raise RecordNotTested(f"{final.stage} is stateful, and one record alone shows nothing")
        with self._limited() as is_over:
            try:
                processor.refresh_schemas()
                with processor.jobs.of_held_records(), processor.stoppable.set():
                    processor.jobs.phase("test")
                    return self._tested(find())
            except Exception:
                if not is_over.is_set():
                    raise
        raise RecordNotTested(f"the steps took more than {LIMIT_SECONDS:.0f} s, and were cancelled")

    def _tested(self, rows: DataFrame) -> RecordTest:
        try:
            evaluated = evaluate(rows, self.processor.pipeline)
            try:
                if not evaluated.failed:
                    return RecordTest(rows=evaluated.passed(self.processor.pipeline).count())
                self.processor.slow_path.check_registries(evaluated)
                return RecordTest(failure=self._failure(evaluated))
            finally:
                evaluated.release()
        except BaseException as exc:  # a step that raises SystemExit must not end the run
            raise RecordNotTested(self._redacted(rows, first_line(exc))) from exc

    def _failure(self, evaluated: Evaluated) -> Failure:
        """Return the failure of the record, as one that is reported."""
        failures = evaluated.failures
        first = min(failures.on_driver, key=lambda each: each.order)
        [failed] = failures.load_by_id(self.processor.pipeline, [first.id])
        [message] = self.redaction.texts(failed.row.asDict(), failed.problem.message)
        problem = replace(failed.problem, message=message or "")
        return failure_of(replace(failed, problem=problem))

    def _redacted(self, rows: DataFrame, text: str) -> str:
        for row in rows.collect():
            [redacted] = self.redaction.texts(row.asDict(), text)
            text = redacted or ""
        return text

    @contextmanager
    def _limited(self) -> Iterator[threading.Event]:
        """Cancel the Spark jobs of the block after the limit; the event is set then."""
        ended, is_over = threading.Event(), threading.Event()

        def cancel() -> None:
            if ended.wait(LIMIT_SECONDS):
                return
            is_over.set()
            while not ended.wait(_CANCEL_SECONDS):
                self.processor.stoppable.cancel()

        watch = threading.Thread(target=cancel, name="arrester-test-limit", daemon=True)
        watch.start()
        try:
            yield is_over
        finally:
            ended.set()
            # It must not cancel a later job.
            watch.join()
