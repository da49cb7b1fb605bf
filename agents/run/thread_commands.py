"""Apply commands to a running pipeline, between two micro-batches, or refuse them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from pyspark.sql import DataFrame

from arrester.agents.arguments import first_line
from arrester.agents.journal.journal import Superseded
from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.run.commands.find_dead_letters import FoundDeadLetters, find_dead_letters
from arrester.agents.run.commands.redrive import SelectedDeadLetters, log_result
from arrester.agents.run.open_run import OpenRun
from arrester.agents.run.query_loop import QueryLoop
from arrester.agents.run.run_lock import HeldLock, RunLock, refuse_inside
from arrester.agents.runtime.redrive_result import Redriven
from arrester.agents.runtime.thread_protocol import RedriveCommand, ThreadCommand
from arrester.agents.stop_signal import StopSignal
from arrester.domain.errors import InvalidValue
from arrester.domain.events import CommandApplied


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCommands:
    """The commands of one run. Methods may be called from any Python thread.

    An exception of the journal ends the run.
    """

    opened: OpenRun
    query_loop: QueryLoop
    lock: RunLock
    stop_signal: StopSignal
    is_running: Callable[[], bool]

    def apply(self, command: ThreadCommand) -> CommandAnswer:
        """Apply a command after the running micro-batch; held records of a resumed task run first.

        Raises Superseded if a newer run owns the checkpoint, which then answers; and InvalidValue
        inside a function of the pipeline, for which the command would wait.
        """
        refuse_inside("a command for its tasks or policies")
        if isinstance(command, RedriveCommand):
            return self._apply_redrive(command)
        with self.lock.held() as lock:
            if not self._is_active:
                return self._not_running()
            try:
                answer = self.opened.apply(lock, command)
                self.query_loop.command_applied(lock)
                return answer
            except Superseded as exc:
                self.stop_signal.record(exc)
                raise
            except BaseException as exc:
                self.stop_signal.record(exc)
                return CommandAnswer(applied=False, reason=f"{self._pipeline} ends: {exc}")

    def redrive(self, dead_letters: DataFrame, *, actor: str | None, reason: str) -> Redriven:
        """Process dead letters once more; see `Agent.redrive`."""
        refuse_inside("redrive()")
        with self.opened.redriver.select(dead_letters) as selected, self.lock.held() as lock:
            if not self._is_active:
                raise InvalidValue("pipeline", self._pipeline, "a pipeline that is running")
            self._save_redriven(lock, selected, actor=actor, reason=reason)
        log_result(self._pipeline, selected.result, actor=actor, reason=reason)
        return selected.result

    def _apply_redrive(self, command: RedriveCommand) -> CommandAnswer:
        """Apply a command to process dead letters once more, or refuse it.

        What cannot be read or saved is the answer: the run continues.
        """
        earlier_answer = self.opened.claimed.journal.ledger.answers.get(str(command.command))
        if earlier_answer is not None:
            return earlier_answer
        redriver, destination = self.opened.redriver, self.opened.claimed.destination
        try:
            with (
                find_dead_letters(command, redriver=redriver, destination=destination) as found,
                self.lock.held() as lock,
            ):
                if not self._is_active:
                    return self._not_running()
                if command.is_test:
                    return self._test(found)
                if not found.redriven:
                    return self._refuse(lock, command, found.detail)
                self._save_redriven(
                    lock,
                    found.selected,
                    actor=command.actor,
                    reason=command.reason or "",
                    redrive=command.redrive,
                    answer=CommandApplied(command=command.command, detail=found.detail),
                )
                return CommandAnswer(applied=True, reason=found.detail)
        except Superseded as exc:
            self.stop_signal.record(exc)
            raise
        except Exception as exc:  # of a destination, which may have any
            with self.lock.held() as lock:
                if not self._is_active:
                    return self._not_running()
                if command.is_test:
                    return _not_tested(first_line(exc))
                return self._refuse(lock, command, first_line(exc))

    def _test(self, found: FoundDeadLetters) -> CommandAnswer:
        """Run the steps on the found dead letter, and return the result; nothing is changed."""
        if not found.redriven:
            return _not_tested("; ".join(found.problems))
        return self.opened.commands.tester.test_dead_letter(found.selected.rows)

    def _save_redriven(
        self,
        lock: HeldLock,
        selected: SelectedDeadLetters,
        *,
        actor: str | None,
        reason: str,
        redrive: UUID | None = None,
        answer: CommandApplied | None = None,
    ) -> None:
        """Hold the selected dead letters again.

        What cannot be saved, on a full disk, is the caller's: the run continues.
        """
        entry = self.opened.redriver.save(
            lock,
            selected,
            after=self.opened.processor.last_begun,
            actor=actor,
            reason=reason,
            redrive=redrive,
            answer=answer,
        )
        if entry is None:
            return
        try:
            self.opened.claimed.journal.append(entry)
        except BaseException as exc:
            self.stop_signal.record(exc)
            raise
        self.query_loop.command_applied(lock)

    def _refuse(self, lock: HeldLock, command: RedriveCommand, reason: str) -> CommandAnswer:
        """Record a refusal."""
        try:
            return self.opened.refuse(lock, command.command, reason)
        except BaseException as exc:
            self.stop_signal.record(exc)
            raise

    @property
    def _pipeline(self) -> str:
        return self.opened.claimed.pipeline.name

    @property
    def _is_active(self) -> bool:
        signal = self.stop_signal
        return self.is_running() and not signal.is_requested and signal.exception is None

    def _not_running(self) -> CommandAnswer:
        return CommandAnswer(applied=False, reason=f"{self._pipeline} is not running")


def _not_tested(reason: str) -> CommandAnswer:
    return CommandAnswer(applied=False, reason=f"the dead letter is not tested: {reason}")
