"""The thread that sets the metrics of an agent in Spark's metrics system, if a setting asks for it.

A failure here never affects a pipeline.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from arrester.agents.runtime.status import metrics_of
from arrester.domain.state.states import TaskState

log = logging.getLogger("arrester.agent")
#: Shorter than the usual period of Spark's sinks and of Prometheus.
PERIOD_SECONDS: Final = 5.0
#: The end of an instance waits so long for its last values.
CLOSE_SECONDS: Final = 2.0


class Source(Protocol):
    """What receives the values, by name."""

    def set(self, values: Mapping[str, int]) -> None:
        """Set the values."""


class SparkMetrics:
    """Sets the metrics of an agent every few seconds, until it ends."""

    def __init__(
        self,
        application: str,
        source: Source,
        *,
        tasks: Callable[[], Sequence[TaskState]],
        agent: Callable[[], Mapping[str, int]],
    ) -> None:
        self._application = application
        self._source = source
        self._tasks = tasks
        self._agent = agent
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arrester-metrics", daemon=True)

    def start(self) -> None:
        """Begin to set the metrics."""
        self._thread.start()

    def stop(self) -> None:
        """Set the last values, and end."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            while True:
                over = self._over.is_set()
                self._source.set(values(self._application, self._tasks(), self._agent()))
                if over:
                    return
                self._over.wait(PERIOD_SECONDS)
        except Exception as exc:  # of py4j, also while Spark ends
            message = "%s: its metrics are no longer set in Spark: %s: %s"
            log.warning(message, self._application, type(exc).__name__, exc)


def values(
    application: str, tasks: Sequence[TaskState], agent: Mapping[str, int]
) -> dict[str, int]:
    """Return the numbers by name: of each pipeline, then of the agent itself."""
    by_pipeline: dict[str, list[TaskState]] = defaultdict(list)
    for each in tasks:
        by_pipeline[each.id.pipeline].append(each)
    found = {
        f"arrester.{application}.{pipeline}.{name}": number
        for pipeline, own in by_pipeline.items()
        for name, number in {
            **metrics_of(own, {}),
            "records-failed": sum(each.failed for each in own),
            "records-held": sum(each.held for each in own),
        }.items()
    }
    return found | {f"arrester.{application}.{name}": number for name, number in agent.items()}
