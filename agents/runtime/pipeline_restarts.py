"""Restart a pipeline by command: its run ends at a micro-batch boundary, and a new one starts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.runtime.dead_threads import DeadThreads
from arrester.agents.runtime.thread_protocol import Thread, run_of
from arrester.agents.runtime.thread_registry import ThreadRegistry, ThreadSlot
from arrester.domain.state.states import ThreadStatus

_log = logging.getLogger("arrester.agent")

#: The interval of the checks whether a run has ended.
_CHECK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _Restarted:
    """The result for one slot; `exc` ended a pipeline that ran before."""

    slot: ThreadSlot[Any]
    answer: CommandAnswer
    exc: Exception | None = None


class PipelineRestarts:
    """Restart the threads of a pipeline, each at its checkpoint, in the same instance.

    A restart is no replacement after a failure: it does not count against their limit (KIP-671).
    """

    def __init__(
        self,
        registry: ThreadRegistry,
        dead_threads: DeadThreads,
        *,
        launch: Callable[[ThreadSlot[Any]], Thread],
        timeout_seconds: float,
    ) -> None:
        self._registry = registry
        self._dead_threads = dead_threads
        self._launch = launch
        #: How long a running sink may take before its jobs are cancelled.
        self._timeout_seconds = timeout_seconds

    def restart(self, pipeline: str, reason: str, answer: Callable[[CommandAnswer], None]) -> None:
        """Restart a pipeline and answer once: applied if each of its threads runs again.

        `reason` is of the end of its run.
        If a run was ended and the next one does not start, the handler of uncaught exceptions is
        called after the answer, as for a replacement that does not start.
        """
        slots = self._registry.restartable(pipeline)
        results = [self._restart(slot, reason) for slot in slots]
        refused = [each.answer for each in results if not each.answer.applied]
        if not results:
            answer(_refused(f"no thread of this instance runs pipeline {pipeline}"))
        elif refused:
            answer(refused[0])
        else:
            reasons = "; ".join(each.answer.reason for each in results)
            answer(CommandAnswer(applied=True, reason=reasons))
        for each in results:
            if each.exc is not None:
                self._dead_threads.start_failed(each.slot, each.exc)

    def _restart(self, slot: ThreadSlot[Any], reason: str) -> _Restarted:
        with self._dead_threads.replacement(), slot.lock:
            thread: Thread | None = slot.thread
            assert thread is not None, "only a slot that has started is restarted"
            if thread.is_static:
                name = thread.pipeline_name
                return _Restarted(
                    slot, _refused(f"{name} reads a static source once; run its script again")
                )
            was_running = thread.state is ThreadStatus.RUNNING
            if not self._end(thread, reason):
                return _Restarted(slot, _refused("the instance ends"))
            if slot.removed:
                return _Restarted(slot, _refused("its script has removed the pipeline"))
            try:
                started = run_of(self._launch(slot))
            except Exception as exc:  # the author's source may raise anything
                _log.exception("pipeline %r could not be restarted", thread.pipeline_name)
                refusal = f"{thread.pipeline_name} did not start: {type(exc).__name__}: {exc}"
                return _Restarted(slot, _refused(refusal), exc if was_running else None)
        detail = f"run {started.epoch} of {started.pipeline} is RUNNING"
        return _Restarted(slot, CommandAnswer(applied=True, reason=detail))

    def _end(self, thread: Thread, reason: str) -> bool:
        """End the run; return False if the instance ends meanwhile."""
        if thread.state is ThreadStatus.RUNNING:
            thread.stop(reason, timeout_seconds=self._timeout_seconds)
        # A sink that does not return holds the checkpoint: no other run may start.
        while not thread.is_end_handled:
            if self._dead_threads.is_stopping(within_seconds=_CHECK_SECONDS):
                return False
        return not self._dead_threads.is_stopping()


def _refused(reason: str) -> CommandAnswer:
    return CommandAnswer(applied=False, reason=reason)
