"""A thread that dies and is replaced, on Spark."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agents import Agent, UncaughtAnswer
from agents.handlers import LogAndFail
from controlplane.domain.states import ThreadStatus
from tests.agents.engine.bench import Bench, wait_until
from tests.conformance.cases import Case

Row = dict[str, Any]


class Replacing:
    """The uncaught exception handler of the cases."""

    def __init__(self) -> None:
        self.calls: list[BaseException] = []

    def handle(self, exception: BaseException) -> UncaughtAnswer:
        self.calls.append(exception)
        return UncaughtAnswer.REPLACE_THREAD


def failing_once(place: str) -> Any:
    """Return a step whose first call fails; each call leaves a file."""

    def check(row: Row) -> Row:
        import os
        import uuid

        os.makedirs(place, exist_ok=True)
        first = not os.listdir(place)
        open(f"{place}/{uuid.uuid4()}-{row['position']}", "w").close()
        if first:
            raise ValueError("the first time")
        return row

    return check


def replaced(bench: Bench, values: list[str]) -> tuple[Replacing, list[str]]:
    """Run `values` through a thread that dies once; return the handler and what was written."""
    handler = Replacing()
    for position, value in enumerate(values):
        bench.add(("0_0", position, value))
    with Agent(bench.spark, application="tests", on_uncaught=handler) as agent:
        pipeline = bench.checking(
            failing_once(str(bench.folder / "calls")), LogAndFail(), runner=agent
        )
        first: Any = pipeline.start(bench.checkpoint)
        wait_until(lambda: bench.committed() >= len(values) - 1)
        assert first.state is ThreadStatus.DEAD
    written = sorted(bench.written(), key=lambda each: each[1])
    return handler, [values[position] for _, position in written]


def check_single(case: Case, bench: Bench) -> None:
    assert case.given["threads"] == case.given["first_n_handler_calls_fail"] == 1
    handler, _ = replaced(bench, ["A"])
    assert len(handler.calls) == case.expect["handler_calls"]
    calls = list((bench.folder / "calls").iterdir())
    assert len(calls) == case.expect["record_processed_times"]


def check_no_loss(case: Case, bench: Bench) -> None:
    _, written = replaced(bench, case.given["records"])
    assert written == case.expect["output"]


def check_default_handler(case: Case, bench: Bench) -> None:
    called: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", called.append)
        replaced(bench, ["A"])
    assert bool(called) is case.expect["jvm_default_handler_called"]


CHECKS = {
    "replace-single-thread": check_single,
    "replace-no-loss": check_no_loss,
    "replace-does-not-reach-jvm-default-handler": check_default_handler,
}
