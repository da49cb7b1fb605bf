"""How a script ended: an exception that no run has reported reaches the server."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession

from arrester.agents.failures.driver_failure import driver_failure
from arrester.agents.runtime.end.script_end import (
    ScriptEnd,
    mark_reported,
    script_end,
    uncaught_exception,
)
from arrester.agents.runtime.instance import Ending
from arrester.domain.events import InstanceStopped, ThreadDied
from tests.agents.runtime.test_runtime import alone, begin, stored_events

REFUSED = ValueError("no such table\nat all")


@dataclass(frozen=True)
class Refused(Exception):
    """An exception without attributes of its own that can be set."""

    table: str


REPORTED = Refused("orders")
mark_reported(REPORTED)

SCRIPT = """
    import sys
    from pathlib import Path
    from tests.agents.runtime.test_runtime import alone

    alone(Path(sys.argv[1])).open()
    raise KeyError("orders")
"""


@pytest.mark.parametrize(
    ("exc", "end"),
    [
        (None, ScriptEnd("the block ended")),
        (KeyboardInterrupt(), ScriptEnd("the driver received SIGINT")),
        (SystemExit(143), ScriptEnd("the driver received SIGTERM")),
        (SystemExit(0), ScriptEnd("the script has exited")),
        (GeneratorExit(), ScriptEnd("the block ended")),
        (REPORTED, ScriptEnd("the block ended: Refused")),
        (REFUSED, ScriptEnd("the script failed: ValueError: no such table", REFUSED)),
        (
            failed := SystemExit("no config"),
            ScriptEnd("the script failed: SystemExit: no config", failed),
        ),
        (silent := KeyError(), ScriptEnd("the script failed: KeyError", silent)),
    ],
)
def test_the_end_of_a_script_in_words(exc: BaseException | None, end: ScriptEnd) -> None:
    assert script_end(exc, usual="the block ended") == end


def test_a_failure_of_the_script_is_reported_with_its_trace_and_stops_the_runs(
    tmp_path: Path,
) -> None:
    runtime = alone(tmp_path)
    begin(runtime)
    try:
        raise REFUSED
    except ValueError as exc:
        end = script_end(exc, usual="the block ended")
    runtime.end(Ending.STOPPED, end.reason, exc=end.exception)

    events = {type(each.data): each for each in stored_events(tmp_path)}
    stopped, died = events[InstanceStopped].data, events[ThreadDied].data
    assert isinstance(stopped, InstanceStopped) and isinstance(died, ThreadDied)
    assert stopped.recordless and stopped.failure is not None
    assert (stopped.failure.stage, stopped.failure.message) == ("driver", "no such table\nat all")
    assert (stopped.failure.frame or "").startswith("test_script_end.py:")
    body = events[InstanceStopped].body
    assert body is not None and "raise REFUSED" in (body.stack or "")
    assert died.reason == "stopped: the script failed: ValueError: no such table"
    assert died.failure is None


def test_an_exception_without_a_block_is_reported_at_exit(tmp_path: Path) -> None:
    code = textwrap.dedent(SCRIPT)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True)
    assert done.returncode == 1
    [stopped] = [
        each.data for each in stored_events(tmp_path) if isinstance(each.data, InstanceStopped)
    ]
    assert stopped.failure is not None
    assert (stopped.failure.exception_class, stopped.reason) == (
        "KeyError",
        "the script failed: KeyError: 'orders'",
    )


def test_an_earlier_input_of_a_notebook_has_not_ended_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "last_exc", raising=False)
    monkeypatch.setattr(sys, "last_value", REFUSED, raising=False)
    assert uncaught_exception() is REFUSED
    monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
    assert uncaught_exception() is None


def test_an_exception_is_described_although_the_jvm_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone() -> None:
        raise Py4JNetworkError("no answer from the JVM")

    monkeypatch.setattr(SparkSession, "getActiveSession", gone)
    failure, body = driver_failure(OSError("no space"))
    assert (failure.exception_class, failure.message) == ("OSError", "no space")
    assert "no space" in (body.stack or "")
