"""The distribution of test files to processes: every other one runs Spark, the rest none.

Files that take long begin first, so that no process is left with one at the end.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).parents[1]
#: Each process that runs one of their files starts a JVM, which is slow at first.
WITH_SPARK = (
    "tests/agents/",
    "tests/conformance/",
    "tests/dashboard/test_trips.py",
    "tests/upgrade/",
)


#: A broker takes some ten seconds of CPU to start: in the suite, one process runs all files that
#: request it.
BROKER = "kafka_broker: KafkaBroker"
#: Its pipelines are in other modules.
CASES = "tests/conformance/test_vectors.py"


class SparkInEveryOther(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives the files with Spark to every other process, and all others to the rest."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        is_suite = "not long" in self.config.option.markexpr
        return _unit_of(file) if is_suite else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        fitting = self._next_for(node)
        if fitting is not None:
            self.workqueue.move_to_end(fitting, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self.workqueue and self._next_for(node) is None and not node.shutting_down:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _next_for(self, node: WorkerController) -> str | None:
        """Return the file that this process runs next; None: those that are left fit another."""
        files: list[str] = list(self.workqueue)
        fitting = [each for each in files if each.startswith(WITH_SPARK) is _runs_spark(node)]
        if fitting:
            return max(fitting, key=_weight_of)
        others = (each for each in self.nodes if _runs_spark(each) is not _runs_spark(node))
        is_left = any(not each.shutting_down for each in others)
        return None if is_left else files[0]


@cache
def _unit_of(file: str) -> str:
    """Return the name of a file, or that of the files that share a broker."""
    return WITH_SPARK[0] + BROKER if BROKER in (ROOT / file).read_text() else file


@cache
def _weight_of(unit: str) -> float:
    """Return an estimate of the time of a file: how often it uses a pipeline or a browser."""
    if unit in (WITH_SPARK[0] + BROKER, CASES):
        return math.inf
    text = (ROOT / unit).read_text()
    long = sum(f"mark.{each}" in text for each in ("e2e", "chaos"))
    return 100 * long + text.count("bench") + text.count("windows")


def _runs_spark(node: WorkerController) -> bool:
    return int(node.gateway.id.removeprefix("gw")) % 2 == 0


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SparkInEveryOther:
    return SparkInEveryOther(config, log)
